//! Listening to a publisher without understanding it: every message as it came, for recordings.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc as commands;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;

use super::link::{Link, LinkEvent};
use super::sockets::{self, Received};
use super::{SubscribeError, SubscriberConfig, refuse_wildcards};
use crate::frames;

/// Delay before a lost connection is opened anew.
const REOPEN: Duration = Duration::from_millis(250);
/// Messages taken from one socket before the others have their turn.
const TURN: usize = 256;
/// Answers that may wait inside the replay socket.
const REPLAY_HIGH_WATER: i32 = 12_000;

/// What a [`Tap`] heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A connection to the publisher was made.
    Connected,
    /// The connection was lost; it is opened anew.
    Disconnected,
    /// The parts of a published message.
    Live(Vec<Vec<u8>>),
    /// The parts of an answer to the last question asked of the replay socket.
    Answer(Vec<Vec<u8>>),
}

/// Hears one publisher and asks its replay socket, and draws no conclusion.
///
/// Like [`Subscriber`](super::Subscriber) it lives on a thread of its own and ends when dropped.
/// Of its configuration the fields about replays and checks mean nothing here.
pub struct Tap {
    heard: mpsc::Receiver<(SystemTime, Heard)>,
    questions: commands::Sender<u64>,
    /// A byte wakes the thread, closing it ends it.
    wake: Mutex<UnixStream>,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

impl Tap {
    /// Starts listening. A publisher that is not there yet is waited for.
    ///
    /// # Errors
    /// A wildcard address to connect to, or no thread to be had.
    pub fn spawn(config: SubscriberConfig) -> Result<Self, SubscribeError> {
        refuse_wildcards(&config)?;
        let (sender, heard) = mpsc::channel(config.queue.max(1));
        let (questions, asked) = commands::channel();
        let (wake, woken) = UnixStream::pair().map_err(SubscribeError::Spawn)?;
        woken.set_nonblocking(true).map_err(SubscribeError::Spawn)?;
        let listener = Listener { config, heard: sender, asked, woken };
        std::thread::Builder::new()
            .name("kv-tap".to_owned())
            .spawn(move || listener.run())
            .map_err(SubscribeError::Spawn)?;
        Ok(Self { heard, questions, wake: Mutex::new(wake) })
    }

    /// The next thing heard, and when; `None` only if the thread died. Cancel safe.
    pub async fn recv(&mut self) -> Option<(SystemTime, Heard)> {
        self.heard.recv().await
    }

    /// Polls for the next thing heard.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<(SystemTime, Heard)>> {
        self.heard.poll_recv(cx)
    }

    /// Asks the replay socket for everything from `start` on. What an earlier question may still
    /// bring is dropped. Without a replay socket nothing comes of it.
    pub fn ask(&self, start: u64) {
        if self.questions.send(start).is_ok()
            && let Ok(mut wake) = self.wake.lock()
        {
            // A full pipe wakes as well.
            let _ = wake.write(&[0]);
        }
    }
}

struct Listener {
    config: SubscriberConfig,
    heard: mpsc::Sender<(SystemTime, Heard)>,
    asked: commands::Receiver<u64>,
    woken: UnixStream,
}

/// The consumer is gone.
struct Gone;

#[derive(Default)]
struct Sockets {
    link: Option<Link>,
    connected: bool,
    replay: Option<zmq::Socket>,
    reopen_at: Option<Instant>,
}

impl Listener {
    fn run(self) {
        let context = sockets::shared_context();
        // Declared after the context: closed before it.
        let mut open = Sockets::default();
        loop {
            self.open_if_due(&context, &mut open);
            let [woken, others @ ..] = self.wait(&open);
            if woken && !self.take_questions(&context, &mut open) {
                return;
            }
            match self.take_in(&mut open, others) {
                Ok(Ok(())) => {}
                Ok(Err(Gone)) => return,
                Err(error) => {
                    tracing::warn!(%error, "socket failed; opening a new one");
                    if self.close(&mut open).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn open_if_due(&self, context: &zmq::Context, open: &mut Sockets) {
        let due = open.reopen_at.is_none_or(|at| at <= Instant::now());
        if open.link.is_some() || !due {
            return;
        }
        match Link::open(context, &self.config, None) {
            Ok(link) => open.link = Some(link),
            Err(error) => {
                tracing::warn!(%error, address = %self.config.address, "cannot open a socket");
                open.reopen_at = Some(Instant::now() + REOPEN);
            }
        }
    }

    /// Waits for any socket; which of wake, monitor, publisher and replay are readable.
    fn wait(&self, open: &Sockets) -> [bool; 4] {
        let link = open.link.as_ref();
        let sockets = [link.map(Link::monitor), link.map(Link::subscription), open.replay.as_ref()];
        let mut items = vec![zmq::PollItem::from_fd(self.woken.as_raw_fd(), zmq::POLLIN)];
        items.extend(sockets.iter().flatten().map(|socket| socket.as_poll_item(zmq::POLLIN)));
        let timeout = if link.is_some() { -1 } else { REOPEN.as_millis() as i64 };
        if let Err(error) = zmq::poll(&mut items, timeout) {
            if error != zmq::Error::EINTR {
                tracing::warn!(%error, "cannot wait on sockets");
                std::thread::sleep(Duration::from_millis(50));
            }
            return [false; 4];
        }
        let mut readable = items.iter().map(|item| !item.get_revents().is_empty());
        let woken = readable.next().unwrap_or(false);
        let [monitor, live, replay] =
            sockets.map(|socket| socket.is_some() && readable.next().unwrap_or(false));
        [woken, monitor, live, replay]
    }

    /// Sends what was asked; `false` when the consumer is gone.
    fn take_questions(&self, context: &zmq::Context, open: &mut Sockets) -> bool {
        let mut bytes = [0; 64];
        match (&self.woken).read(&mut bytes) {
            Ok(0) => return false,
            Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return false,
            _ => {}
        }
        let (Some(start), Some(address)) = (self.asked.try_iter().last(), &self.config.replay)
        else {
            return true;
        };
        // A new socket: late answers to an earlier question do not reach it.
        open.replay = None;
        match self.question(context, &address.to_string(), start) {
            Ok(socket) => open.replay = Some(socket),
            Err(error) => tracing::warn!(%error, "cannot ask the replay socket"),
        }
        true
    }

    fn question(
        &self,
        context: &zmq::Context,
        address: &str,
        start: u64,
    ) -> Result<zmq::Socket, zmq::Error> {
        let socket = context.socket(zmq::DEALER)?;
        sockets::common_options(&socket, self.config.max_message_bytes)?;
        socket.set_rcvhwm(REPLAY_HIGH_WATER)?;
        socket.connect(address)?;
        socket.send_multipart(frames::request(start), zmq::DONTWAIT)?;
        Ok(socket)
    }

    fn take_in(
        &self,
        open: &mut Sockets,
        [monitor, live, replay]: [bool; 3],
    ) -> Result<Result<(), Gone>, zmq::Error> {
        // The monitor first: it tells of a connection before the connection's first batch.
        if monitor || live {
            while let Some(event) = open.link.as_mut().map(Link::event).transpose()?.flatten() {
                let gone = match event {
                    LinkEvent::Connected => {
                        open.connected = true;
                        self.tell(Heard::Connected)
                    }
                    LinkEvent::Refused if self.config.bind => Ok(()),
                    LinkEvent::Refused | LinkEvent::Disconnected => self.close(open),
                };
                if gone.is_err() {
                    return Ok(gone);
                }
            }
        }
        if let (true, Some(link)) = (live, &open.link)
            && self.pass_on(link.subscription(), Heard::Live)?.is_err()
        {
            return Ok(Err(Gone));
        }
        match (replay, &open.replay) {
            (true, Some(socket)) => self.pass_on(socket, Heard::Answer),
            _ => Ok(Ok(())),
        }
    }

    fn pass_on(
        &self,
        socket: &zmq::Socket,
        heard: impl Fn(Vec<Vec<u8>>) -> Heard,
    ) -> Result<Result<(), Gone>, zmq::Error> {
        for _ in 0..TURN {
            match sockets::receive(socket)? {
                Received::Nothing => break,
                // No publisher sends such.
                Received::TooManyParts => {}
                Received::Message(parts) => {
                    if self.tell(heard(parts)).is_err() {
                        return Ok(Err(Gone));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    fn close(&self, open: &mut Sockets) -> Result<(), Gone> {
        open.link = None;
        open.reopen_at = Some(Instant::now() + REOPEN);
        if std::mem::take(&mut open.connected) { self.tell(Heard::Disconnected) } else { Ok(()) }
    }

    fn tell(&self, heard: Heard) -> Result<(), Gone> {
        self.heard.blocking_send((SystemTime::now(), heard)).map_err(|_| Gone)
    }
}
