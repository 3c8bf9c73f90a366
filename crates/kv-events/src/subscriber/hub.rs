//! One address of ours that several publishers connect to, told apart by their topics.
//!
//! The address can be bound once. A hub binds it and passes what comes on to a socket inside this
//! machine, which the subscribers connect to, each for its own topic. Which of the publishers a
//! lost connection belonged to cannot be known, so when one is lost the hub breaks with all its
//! subscribers: each of them makes sure anew that its publisher is still the same.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::SubscriberConfig;
use super::link::{Link, LinkEvent};
use super::sockets::{self, Received};

/// Messages taken before connections are looked at again.
const TURN: usize = 256;
/// Messages dropped at most when a connection was lost.
const MOST_DROPPED: usize = 1 << 20;
/// Between attempts to bind.
const PAUSE_MS: i64 = 500;

/// Ends with the last of its subscribers.
#[derive(Debug)]
pub(super) struct Hub {
    inside: Arc<Mutex<Option<String>>>,
    /// Closing it ends the thread.
    _stop: UnixStream,
}

impl Hub {
    /// The hub of the configured address; started where there is none.
    pub(super) fn join(config: &SubscriberConfig) -> io::Result<Arc<Self>> {
        static HUBS: Mutex<Option<HashMap<String, Weak<Hub>>>> = Mutex::new(None);
        let mut hubs = HUBS.lock().unwrap_or_else(PoisonError::into_inner);
        let hubs = hubs.get_or_insert_default();
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let address = config.address.to_string();
        if let Some(hub) = hubs.get(&address).and_then(Weak::upgrade) {
            return Ok(hub);
        }
        let (stop, stopped) = UnixStream::pair()?;
        let inside = Arc::<Mutex<Option<String>>>::default();
        let config = SubscriberConfig { topic: String::new(), ..config.clone() };
        let worker = Worker { config, inside: Arc::clone(&inside), stopped };
        std::thread::Builder::new().name("kv-events-hub".to_owned()).spawn(move || worker.run())?;
        let hub = Arc::new(Self { inside, _stop: stop });
        hubs.insert(address, Arc::downgrade(&hub));
        Ok(hub)
    }

    /// Where to connect to now; `None` while no publisher is connected.
    pub(super) fn address(&self) -> Option<String> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Worker {
    config: SubscriberConfig,
    inside: Arc<Mutex<Option<String>>>,
    stopped: UnixStream,
}

impl Worker {
    fn run(self) {
        let context = sockets::shared_context();
        let mut complained = false;
        loop {
            match Link::open(&context, &self.config, None) {
                Ok(link) => match self.serve(&context, link) {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(%error, "socket failed; opening a new one"),
                },
                Err(error) if !std::mem::replace(&mut complained, true) => {
                    tracing::warn!(%error, address = %self.config.address, "cannot listen");
                }
                Err(_) => {}
            }
            self.tell(None);
            if self.wait(&[], PAUSE_MS) {
                return;
            }
        }
    }

    /// Passes messages on until it is told to stop.
    fn serve(&self, context: &zmq::Context, mut link: Link) -> Result<(), zmq::Error> {
        let mut inner: Option<zmq::Socket> = None;
        let mut peers = 0_usize;
        loop {
            if self.wait(&[link.monitor(), link.subscription()], -1) {
                return Ok(());
            }
            let mut lost = false;
            while let Some(event) = link.event()? {
                match event {
                    LinkEvent::Connected => peers += 1,
                    LinkEvent::Disconnected => {
                        peers = peers.saturating_sub(1);
                        lost = true;
                    }
                    // A stranger at our own address is no matter.
                    LinkEvent::Refused => {}
                }
            }
            if lost {
                inner = None;
                self.tell(None);
                // Nothing of a life that is over may reach those who connect next.
                for _ in 0..MOST_DROPPED {
                    if link.receive()? == Received::Nothing {
                        break;
                    }
                }
            }
            if inner.is_none() && peers > 0 {
                inner = Some(self.open(context)?);
            }
            for _ in 0..TURN {
                match (link.receive()?, &inner) {
                    (Received::Nothing, _) => break,
                    (Received::Message(parts), Some(inner)) => {
                        // It drops what a subscriber is too slow for, as a publisher does.
                        inner.send_multipart(parts, zmq::DONTWAIT)?;
                    }
                    (Received::Message(_) | Received::TooManyParts, _) => {}
                }
            }
        }
    }

    fn open(&self, context: &zmq::Context) -> Result<zmq::Socket, zmq::Error> {
        let inner = context.socket(zmq::PUB)?;
        inner.set_linger(0)?;
        inner.set_sndhwm(100_000)?;
        inner.bind("tcp://127.0.0.1:*")?;
        let address = inner.get_last_endpoint()?.map_err(|_| zmq::Error::EINVAL)?;
        self.tell(Some(address));
        Ok(inner)
    }

    fn tell(&self, address: Option<String>) {
        *self.inside.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Waits for something to read; whether that is the end.
    fn wait(&self, sockets: &[&zmq::Socket], timeout_ms: i64) -> bool {
        let mut items = vec![zmq::PollItem::from_fd(self.stopped.as_raw_fd(), zmq::POLLIN)];
        items.extend(sockets.iter().map(|socket| socket.as_poll_item(zmq::POLLIN)));
        match zmq::poll(&mut items, timeout_ms) {
            Ok(_) => {}
            Err(zmq::Error::EINTR) => return false,
            Err(error) => {
                tracing::warn!(%error, "cannot wait on sockets");
                std::thread::sleep(Duration::from_millis(50));
                return false;
            }
        }
        items.first().is_some_and(|item| !item.get_revents().is_empty())
    }
}
