//! The subscriber's thread: waits on sockets and time, feeds the [`Stream`], does what it says.

use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::hub::Hub;
use super::link::{Link, LinkEvent};
use super::sockets::{self, Received};
use super::{StatsHandle, SubscriberConfig, Testimony};
use crate::frames;
use crate::replay::{ReplayClient, Reply};
use crate::stream::{Output, Stream, Update};

/// Messages taken from one socket before the others have their turn.
const TURN: usize = 256;

/// Between looks whether a publisher has connected to a hub.
const HUB_PAUSE: Duration = Duration::from_millis(50);

/// The consumer is gone.
struct Gone;

/// Why the thread left its waiting.
#[derive(Default)]
struct Ready {
    stop: bool,
    monitor: bool,
    live: bool,
    replay: bool,
}

pub(super) struct Worker {
    config: SubscriberConfig,
    /// What binds the address, where several publishers connect to it.
    hub: Option<Arc<Hub>>,
    updates: mpsc::Sender<Update>,
    stop: UnixStream,
    testimony: Arc<Mutex<Option<Testimony>>>,
    stats: StatsHandle,
}

/// What a running worker holds. Sockets stand before the context: they are closed first.
struct Running {
    link: Option<Link>,
    replay: Option<ReplayClient>,
    stream: Stream,
    /// When to open the next link.
    open_at: Instant,
    /// Links lost in a row.
    failures: u32,
    /// It was said that no link can be opened.
    complained: bool,
    connected_at: Option<Instant>,
}

impl Worker {
    pub(super) fn new(
        config: SubscriberConfig,
        hub: Option<Arc<Hub>>,
        updates: mpsc::Sender<Update>,
        stop: UnixStream,
        testimony: Arc<Mutex<Option<Testimony>>>,
        stats: StatsHandle,
    ) -> Self {
        Self { config, hub, updates, stop, testimony, stats }
    }

    pub(super) fn run(self) {
        let span = tracing::info_span!("kv_events", stream = %self.config.name);
        let _entered = span.enter();
        let context = sockets::shared_context();
        let replay = self.config.replay.clone();
        let seed = RandomState::new().hash_one(&self.config.name);
        let mut running = Running {
            link: None,
            replay: replay.map(|at| ReplayClient::new(at, self.config.max_message_bytes)),
            stream: Stream::new(self.config.stream(), seed),
            open_at: Instant::now(),
            failures: 0,
            complained: false,
            connected_at: None,
        };
        while self.carry_out(&context, &mut running).is_ok() {
            self.open_if_due(&context, &mut running);
            let ready = self.wait(&running);
            if ready.stop && self.is_stopped() {
                break;
            }
            self.take_testimony(&mut running);
            let outcome = self.take_in(&ready, &mut running);
            if let Err(error) = outcome {
                tracing::warn!(%error, "socket failed; opening a new one");
                self.close(&mut running);
            }
            running.stream.tick(Instant::now());
        }
        tracing::debug!("subscriber ended");
    }

    /// Does what the stream wants done.
    fn carry_out(&self, context: &zmq::Context, running: &mut Running) -> Result<(), Gone> {
        while let Some(output) = running.stream.next_output() {
            match output {
                Output::Update(update) => {
                    // Visible no later than the update itself.
                    self.stats.publish(&running.stream);
                    self.hand_on(update)?;
                }
                Output::Ask(start) => {
                    if let Some(replay) = &mut running.replay
                        && let Err(error) = replay.ask(context, start)
                    {
                        // The question times out.
                        tracing::debug!(%error, "cannot ask the replay socket");
                    }
                }
                Output::Abandon => {
                    if let Some(replay) = &mut running.replay {
                        replay.abandon();
                    }
                }
            }
        }
        self.stats.publish(&running.stream);
        Ok(())
    }

    /// Hands an update on; waits where nobody takes them as fast as they come.
    fn hand_on(&self, update: Update) -> Result<(), Gone> {
        match self.updates.try_send(update) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(update)) => self.updates.blocking_send(update).map_err(|_| Gone),
            Err(TrySendError::Closed(_)) => Err(Gone),
        }
    }

    fn open_if_due(&self, context: &zmq::Context, running: &mut Running) {
        let now = Instant::now();
        if running.link.is_some() || running.open_at > now {
            return;
        }
        let hub = self.hub.as_ref().map(|hub| hub.address());
        if let Some(None) = hub {
            // No publisher is connected there.
            running.open_at = now + HUB_PAUSE;
            return;
        }
        match Link::open(context, &self.config, hub.flatten().as_deref()) {
            Ok(link) => {
                running.link = Some(link);
                running.complained = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut running.complained, true) {
                    tracing::warn!(%error, address = %self.config.address, "cannot open a socket");
                }
                self.back_off(running, now);
            }
        }
    }

    /// Waits until a socket is readable, something is due, or the subscriber was dropped.
    fn wait(&self, running: &Running) -> Ready {
        let opens = running.link.is_none().then_some(running.open_at);
        let due = [running.stream.deadline(), opens].into_iter().flatten().min();
        let timeout = due.map_or(-1, |due| {
            let left = due.saturating_duration_since(Instant::now());
            // Rounded up, so as not to spin through the last millisecond.
            i64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i64::MAX)
        });
        let mut items = vec![zmq::PollItem::from_fd(self.stop.as_raw_fd(), zmq::POLLIN)];
        let link = running.link.as_ref();
        items.extend(link.map(|link| link.monitor().as_poll_item(zmq::POLLIN)));
        items.extend(link.map(|link| link.subscription().as_poll_item(zmq::POLLIN)));
        let replay = running.replay.as_ref().and_then(ReplayClient::socket);
        items.extend(replay.map(|socket| socket.as_poll_item(zmq::POLLIN)));
        match zmq::poll(&mut items, timeout) {
            Ok(_) => {}
            Err(zmq::Error::EINTR) => return Ready::default(),
            Err(error) => {
                tracing::warn!(%error, "cannot wait on sockets");
                std::thread::sleep(Duration::from_millis(50));
                return Ready::default();
            }
        }
        let mut readable = items.iter().map(|item| !item.get_revents().is_empty());
        let mut next = |present: bool| present && readable.next().unwrap_or(false);
        Ready {
            stop: next(true),
            monitor: next(link.is_some()),
            live: next(link.is_some()),
            replay: next(replay.is_some()),
        }
    }

    /// Whether the subscriber was dropped; else it was woken.
    fn is_stopped(&self) -> bool {
        let mut bytes = [0; 64];
        match (&self.stop).read(&mut bytes) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn take_testimony(&self, running: &mut Running) {
        let testimony = self.testimony.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Testimony { asked, seconds }) = testimony {
            running.stream.process_started(Instant::now(), asked, seconds);
        }
    }

    /// Feeds the stream with what has arrived.
    fn take_in(&self, ready: &Ready, running: &mut Running) -> Result<(), zmq::Error> {
        let now = Instant::now();
        // The monitor first: it tells of a connection before the connection's first batch.
        if ready.monitor || ready.live {
            self.take_events(running, now)?;
        }
        if ready.live
            && let Some(link) = &running.link
        {
            for _ in 0..TURN {
                match link.receive()? {
                    Received::Nothing => break,
                    Received::TooManyParts => running.stream.malformed(),
                    Received::Message(mut parts) => match frames::parse_live(&parts) {
                        // A topic may begin with another publisher's.
                        Ok(message)
                            if self.hub.is_some()
                                && message.topic != self.config.topic.as_bytes() => {}
                        Ok(message) => {
                            let seq = message.seq;
                            running.stream.live(now, seq, parts.pop().unwrap_or_default());
                        }
                        Err(_) => running.stream.malformed(),
                    },
                }
            }
        }
        if ready.replay
            && let Some(replay) = &mut running.replay
        {
            for _ in 0..TURN {
                match replay.receive()? {
                    None => break,
                    Some(Reply::Batch { seq, payload }) => {
                        running.stream.replay_batch(now, seq, payload);
                    }
                    Some(Reply::End) => {
                        running.stream.replay_end(now);
                        break;
                    }
                    Some(Reply::Malformed) => running.stream.replay_malformed(),
                }
            }
        }
        Ok(())
    }

    fn take_events(&self, running: &mut Running, now: Instant) -> Result<(), zmq::Error> {
        while let Some(link) = &mut running.link {
            match link.event()? {
                None => break,
                Some(LinkEvent::Connected) if running.connected_at.is_some() => {
                    tracing::warn!("a second publisher connected");
                    running.stream.crowded();
                }
                Some(LinkEvent::Connected) => {
                    running.connected_at = Some(now);
                    running.stream.connected(now);
                }
                // A stranger at our own address is no matter.
                Some(LinkEvent::Refused) if self.config.bind && self.hub.is_none() => {}
                Some(LinkEvent::Refused) => {
                    tracing::debug!(address = %self.config.address, "no publisher answers there");
                    self.close(running);
                }
                Some(LinkEvent::Disconnected) => self.close(running),
            }
        }
        Ok(())
    }

    /// Closes the link and everything that depends on it.
    fn close(&self, running: &mut Running) {
        running.link = None;
        running.stream.disconnected();
        if let Some(replay) = &mut running.replay {
            replay.abandon();
        }
        let now = Instant::now();
        let stable = running
            .connected_at
            .take()
            .is_some_and(|at| now - at > self.config.backoff_max.max(Duration::from_secs(1)));
        if stable {
            running.failures = 0;
        }
        self.back_off(running, now);
    }

    fn back_off(&self, running: &mut Running, now: Instant) {
        let min = self.config.backoff_min.max(Duration::from_millis(1));
        let delay = min.saturating_mul(1 << running.failures.min(16));
        let delay = delay.min(self.config.backoff_max.max(min));
        running.failures = running.failures.saturating_add(1);
        // Between half of it and all of it.
        let share = u32::from(RandomState::new().hash_one(running.failures).to_le_bytes()[0]);
        running.open_at = now + delay / 2 + delay * share / 512;
    }
}
