//! One h2 connection, shared by many requests, and one request's part of it.

mod shared;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;

use crate::dial::Deadline;
use crate::failure::{Failure, Phase, is_users, root_cause};
use crate::io::Io;
use crate::lost::{Fate, Lost, Outgoing};
use crate::pool::{Pool, Slot};

pub(crate) use self::shared::Shared;

/// Requests on one connection at a time, where the engine allows as many: more would wait for each
/// other's lost packets.
const MOST_STREAMS: u32 = 100;
/// Bytes of one answer that may have come and not been read: a client that reads slowly holds no
/// more. Enough for 128 MiB/s at a round trip of 1 ms.
const STREAM_WINDOW: u32 = 128 << 10;
/// Bytes of all answers together: those that nobody reads leave room for the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * (MOST_STREAMS + 1);
/// Without a sign of life for this long an engine is asked for one, and given up after as long.
const PING: Duration = Duration::from_secs(15);
/// How often a new connection is looked at until the engine has said what it takes.
const LOOK: Duration = Duration::from_millis(1);

/// What hands requests to the connection.
type Task = Connection<TokioIo<Io>, Full<Bytes>, TokioExecutor>;

/// How far a connection is.
enum State {
    Open(Task),
    /// It came to its end, for this reason.
    Ended(String),
}

/// One connection.
pub(crate) struct H2 {
    sender: SendRequest<Full<Bytes>>,
    streams: AtomicUsize,
    /// It says how many streams the engine allows now.
    state: Arc<Mutex<State>>,
    born: Instant,
    idle_since: Mutex<Instant>,
    /// Held until the last request is done.
    _slot: Slot,
}

/// One request's part of a connection. The order of its fields is that in which they are dropped:
/// whoever waits is woken when the place, and with the last one the connection, is free.
pub(crate) struct Stream {
    place: Place,
    _wakes: Wakes,
    /// Whether the connection had been there before.
    pub(crate) kept: bool,
}

/// One of the streams of a connection.
struct Place(Arc<H2>);

/// Tells the next in line that a place is free.
struct Wakes(Arc<Pool>);

// === impl H2 ===

impl H2 {
    /// Speaks h2 over `io`, and waits until the engine has said how many streams it takes.
    async fn over(io: Io, slot: Slot, deadline: Deadline) -> Result<Arc<Self>, Failure> {
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // It is not guessed: what is beyond would be refused.
            .initial_max_send_streams(0)
            .handshake(TokioIo::new(io));
        let what = "no h2 from the engine";
        let (sender, connection) = deadline
            .of(Phase::Tcp, what, handshake)
            .await?
            .map_err(|error| Failure::new(Phase::Tcp, format!("h2: {}", root_cause(&error))))?;
        let state = Arc::new(Mutex::new(State::Open(connection)));
        tokio::spawn(drive(Arc::clone(&state)));
        let now = Instant::now();
        let connection = Arc::new(Self {
            sender,
            streams: AtomicUsize::new(0),
            state,
            born: now,
            idle_since: Mutex::new(now),
            _slot: slot,
        });
        deadline.of(Phase::Tcp, what, connection.speaks()).await??;
        Ok(connection)
    }

    /// Ready when the engine takes streams.
    async fn speaks(&self) -> Result<(), Failure> {
        loop {
            match &*self.state.lock() {
                State::Ended(why) => return Err(Failure::new(Phase::Tcp, format!("h2: {why}"))),
                State::Open(task) if task.current_max_send_streams() > 0 => return Ok(()),
                State::Open(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn is_unused(&self) -> bool {
        self.streams.load(Ordering::Relaxed) == 0
    }

    fn has_room(&self) -> bool {
        let most = match &*self.state.lock() {
            State::Open(task) => task.current_max_send_streams(),
            State::Ended(_) => 0,
        };
        self.streams.load(Ordering::Relaxed) < most.min(MOST_STREAMS as usize)
    }
}

impl fmt::Debug for H2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H2").field("streams", &self.streams).finish_non_exhaustive()
    }
}

/// Ends when no request and no pool has the sender any more.
async fn drive(state: Arc<Mutex<State>>) {
    poll_fn(move |cx| {
        let mut state = state.lock();
        let State::Open(task) = &mut *state else { return Poll::Ready(()) };
        let why = match ready!(Pin::new(task).poll(cx)) {
            Ok(()) => "the engine closed the connection".to_owned(),
            Err(error) => root_cause(&error),
        };
        tracing::debug!(why, "h2 connection to an engine ended");
        // It may hold requests, and gives them back.
        *state = State::Ended(why);
        Poll::Ready(())
    })
    .await;
}

// === impl Stream ===

impl Stream {
    fn new(connection: &Arc<H2>, pool: &Arc<Pool>, kept: bool) -> Self {
        connection.streams.fetch_add(1, Ordering::Relaxed);
        Self { place: Place(Arc::clone(connection)), _wakes: Wakes(Arc::clone(pool)), kept }
    }

    /// The connection it is part of, which this does not keep open.
    pub(crate) fn connection(&self) -> Weak<H2> {
        Arc::downgrade(&self.place.0)
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn head(&self, request: Outgoing) -> Result<Response<Incoming>, Lost> {
        let mut sender = self.place.0.sender.clone();
        sender.try_send_request(request).await.map_err(|mut error| {
            let failure = why(error.error());
            if let Some(back) = error.take_message() {
                return Lost { fate: Fate::Unsent(Box::new(back)), failure: failure.unsent() };
            }
            // A connection of h2 ends with word of what was not looked at: without it there is no
            // telling, other than over HTTP/1.1.
            let refused = failure.phase() == Phase::Refused;
            Lost { fate: if refused { Fate::Refused } else { Fate::Taken }, failure }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Instant::now();
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.0.shared.released();
    }
}

/// What became of an answer before its first data.
pub(crate) fn why(error: &hyper::Error) -> Failure {
    let cause = root_cause(error);
    if is_unprocessed(error) {
        return Failure::new(
            Phase::Refused,
            format!("h2: the engine refused the request: {cause}"),
        );
    }
    let phase = match error {
        error if is_users(error) => Phase::Invalid,
        error if error.is_parse() => Phase::NotHttp,
        _ => Phase::Broke,
    };
    Failure::new(phase, format!("h2: {cause}"))
}

/// Whether the engine says that it did nothing with the request (RFC 9113, 8.7): it reset the
/// stream with `REFUSED_STREAM`, or goes away and names a last stream before it. A stream hears of
/// a `GOAWAY` only if it is beyond that one.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(h2) = error.downcast_ref::<::h2::Error>() {
            let refused = h2.is_reset() && h2.reason() == Some(::h2::Reason::REFUSED_STREAM);
            return h2.is_remote() && (refused || h2.is_go_away());
        }
        cause = error.source();
    }
    false
}
