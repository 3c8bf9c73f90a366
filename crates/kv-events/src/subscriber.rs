//! Follows one publisher on a thread of its own.

mod hub;
mod link;
pub(crate) mod sockets;
mod tap;
mod worker;

pub use self::tap::{Heard, Tap};

use std::fmt;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use self::hub::Hub;

use crate::address::{Address, EndpointError};
use crate::stats::StreamStats;
use crate::stream::{Stream, StreamConfig, Update};

/// What to follow, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriberConfig {
    /// Names the stream in logs, for example the endpoint's URL and rank.
    pub name: String,
    /// The publisher's address, see [`Address::resolve`].
    pub address: Address,
    /// Bind `address` and let the publisher connect, for engines configured with an address of
    /// ours. Without a `topic` one publisher per address; several are told apart by their topics.
    pub bind: bool,
    /// Follow topics that begin with this; empty for all. Together with `bind` the whole topic.
    pub topic: String,
    /// The publisher's replay socket, if it has one. It is always connected to.
    pub replay: Option<Address>,
    /// Updates that may wait for the consumer. When it is full, batches wait in the socket, then
    /// in the publisher; what is lost there shows as a gap.
    pub queue: usize,
    /// The largest message accepted, in bytes; a larger one ends the connection.
    pub max_message_bytes: usize,
    /// Live batches that may wait behind a replay.
    pub pending_batches: usize,
    /// Bytes of live batches that may wait behind a replay.
    pub pending_bytes: usize,
    /// First delay before connecting or asking again; doubles, with jitter.
    pub backoff_min: Duration,
    /// Longest delay before connecting or asking again.
    pub backoff_max: Duration,
    /// Silence after which the last batch is checked against the replay socket.
    pub idle_check: Duration,
    /// Silence after which an answer of the replay socket is given up.
    pub replay_timeout: Duration,
    /// Unanswered requests before a repair is given up.
    pub replay_attempts: u32,
    /// How long after a new connection a [`Witness`] is waited for, where there is no replay
    /// socket.
    pub witness_timeout: Duration,
    /// Time between heartbeats; a peer silent for three of them is disconnected.
    pub heartbeat: Duration,
}

impl SubscriberConfig {
    /// The defaults, for a publisher without a replay socket.
    #[must_use]
    pub fn new(address: Address) -> Self {
        let stream = StreamConfig::default();
        Self {
            name: address.to_string(),
            address,
            bind: false,
            topic: String::new(),
            replay: None,
            queue: 256,
            max_message_bytes: 32 << 20,
            pending_batches: stream.pending_batches,
            pending_bytes: stream.pending_bytes,
            backoff_min: stream.backoff_min,
            backoff_max: stream.backoff_max,
            idle_check: stream.idle_check,
            replay_timeout: stream.replay_timeout,
            replay_attempts: stream.replay_attempts,
            witness_timeout: stream.witness_timeout,
            heartbeat: Duration::from_secs(2),
        }
    }

    fn stream(&self) -> StreamConfig {
        StreamConfig {
            replay: self.replay.is_some(),
            pending_batches: self.pending_batches,
            pending_bytes: self.pending_bytes,
            idle_check: self.idle_check,
            settle: StreamConfig::default().settle.min(self.idle_check),
            replay_timeout: self.replay_timeout,
            replay_attempts: self.replay_attempts,
            witness_timeout: self.witness_timeout,
            backoff_min: self.backoff_min,
            backoff_max: self.backoff_max.max(self.backoff_min),
        }
    }
}

/// Addresses to connect to have to name a host.
fn refuse_wildcards(config: &SubscriberConfig) -> Result<(), EndpointError> {
    let connected = (!config.bind).then_some(&config.address).into_iter();
    match connected.chain(&config.replay).find(|address| address.is_wildcard()) {
        Some(address) => Err(EndpointError::Wildcard(address.to_string())),
        None => Ok(()),
    }
}

/// A subscriber that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// An address that cannot be used in its place.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The operating system refused a thread or a pair of sockets.
    #[error("cannot start a subscriber thread")]
    Spawn(#[source] std::io::Error),
}

/// Follows one publisher; yields [`Update`]s, first of all [`Update::Forget`].
///
/// libzmq runs on the subscriber's own thread. Dropping the subscriber stops that thread, within
/// milliseconds and without waiting for it.
pub struct Subscriber {
    updates: mpsc::Receiver<Update>,
    stats: StatsHandle,
    testimony: Arc<Mutex<Option<Testimony>>>,
    /// A byte wakes the thread; closing it ends it.
    stop: Arc<UnixStream>,
}

/// What an engine said of its process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Testimony {
    asked: Instant,
    seconds: f64,
}

/// Tells a subscriber what the engine says of its process; outlives the subscriber.
#[derive(Clone, Debug)]
pub struct Witness {
    testimony: Weak<Mutex<Option<Testimony>>>,
    wake: Weak<UnixStream>,
}

impl Witness {
    /// The engine says that its process started at `seconds` since the epoch
    /// (`process_start_time_seconds`), in an answer to a question of `asked`. To be told each time:
    /// see [`Stream::process_started`](crate::stream::Stream::process_started).
    pub fn process_started(&self, asked: Instant, seconds: f64) {
        let (Some(testimony), Some(wake)) = (self.testimony.upgrade(), self.wake.upgrade()) else {
            return;
        };
        *testimony.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Testimony { asked, seconds });
        // A full pipe means that the thread is awake already.
        let _ = (&*wake).write(&[0]);
    }
}

impl Subscriber {
    /// Starts following.
    ///
    /// A publisher that is not there yet is waited for; only what can never work is an error.
    ///
    /// # Errors
    /// A wildcard address to connect to, or no thread to be had.
    pub fn spawn(config: SubscriberConfig) -> Result<Self, SubscribeError> {
        refuse_wildcards(&config)?;
        let (sender, updates) = mpsc::channel(config.queue.max(1));
        let (stop, stopped) = UnixStream::pair().map_err(SubscribeError::Spawn)?;
        for end in [&stop, &stopped] {
            end.set_nonblocking(true).map_err(SubscribeError::Spawn)?;
        }
        let stats = StatsHandle::default();
        let testimony = Arc::default();
        let shares = config.bind && !config.topic.is_empty();
        let hub = shares.then(|| Hub::join(&config)).transpose().map_err(SubscribeError::Spawn)?;
        let worker = worker::Worker::new(
            config,
            hub,
            sender,
            stopped,
            Arc::clone(&testimony),
            stats.clone(),
        );
        std::thread::Builder::new()
            .name("kv-events".to_owned())
            .spawn(move || worker.run())
            .map_err(SubscribeError::Spawn)?;
        Ok(Self { updates, stats, testimony, stop: Arc::new(stop) })
    }

    /// The next update. `None` only if the subscriber's thread died.
    ///
    /// Cancel safe: an update not returned is kept.
    pub async fn recv(&mut self) -> Option<Update> {
        self.updates.recv().await
    }

    /// Appends up to `limit` updates that wait, at least one; returns how many, 0 only if the
    /// subscriber's thread died. Cancel safe.
    pub async fn recv_many(&mut self, into: &mut Vec<Update>, limit: usize) -> usize {
        self.updates.recv_many(into, limit).await
    }

    /// An update that waits, if one does.
    pub fn try_recv(&mut self) -> Option<Update> {
        self.updates.try_recv().ok()
    }

    /// What tells it of the engine's process.
    #[must_use]
    pub fn witness(&self) -> Witness {
        Witness { testimony: Arc::downgrade(&self.testimony), wake: Arc::downgrade(&self.stop) }
    }

    /// The counters; the handle outlives the subscriber.
    #[must_use]
    pub fn stats(&self) -> StatsHandle {
        self.stats.clone()
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("stats", &self.stats).finish_non_exhaustive()
    }
}

/// Reads a subscriber's counters from anywhere.
#[derive(Clone, Debug, Default)]
pub struct StatsHandle(Arc<Mutex<Published>>);

/// What the subscriber's thread tells.
#[derive(Debug, Default)]
struct Published {
    stats: StreamStats,
    heard_at: Option<Instant>,
    schema_error: Option<Arc<str>>,
}

impl StatsHandle {
    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> StreamStats {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        StreamStats { last_event_age: told.heard_at.map(|at| at.elapsed()), ..told.stats }
    }

    /// The cause of the first schema error since the publisher was connected to: the kind of
    /// event, the field and what is wrong with it, such as `BlockStored.block_hashes: has an
    /// unexpected type`. Bounded, and without bytes of the event.
    #[must_use]
    pub fn first_schema_error(&self) -> Option<String> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.schema_error.as_deref().map(str::to_owned)
    }

    /// Tells the counters of a stream that is not subscribed to.
    pub(crate) fn tell(&self, stats: StreamStats, heard_at: Option<Instant>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.stats = stats;
        told.heard_at = heard_at;
    }

    fn publish(&self, stream: &Stream) {
        let (stats, heard_at) = stream.stats();
        self.tell(stats, heard_at);
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.schema_error.as_ref() != stream.schema_error() {
            told.schema_error = stream.schema_error().cloned();
        }
    }
}
