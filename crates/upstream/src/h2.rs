//! The h2 connections of one engine, each shared by many requests.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::dial::Deadline;
use crate::failure::{Failure, Phase, root_cause};
use crate::h1::{Lost, Outgoing};
use crate::io::Io;
use crate::pool::{Pool, Slot};

/// Requests on one connection at a time, where the engine allows as many: more would wait for each
/// other's lost packets.
const MOST_STREAMS: usize = 100;
/// Without requests for this long a connection is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Without a sign of life for this long an engine is asked for one, and given up after as long.
const PING: Duration = Duration::from_secs(15);

/// The h2 connections of one engine.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    list: Mutex<Vec<Arc<H2>>>,
    /// One is opened at a time, since the next may do for those who wait as well.
    opening: tokio::sync::Mutex<()>,
    /// A request ended.
    released: Notify,
}

/// What hands requests to the connection; `None` when it came to its end.
type Task = Connection<TokioIo<Io>, Full<Bytes>, TokioExecutor>;

/// One connection.
pub(crate) struct H2 {
    sender: SendRequest<Full<Bytes>>,
    streams: AtomicUsize,
    /// It says how many streams the engine allows now.
    task: Arc<Mutex<Option<Task>>>,
    born: Instant,
    idle_since: Mutex<Instant>,
    /// Held until the last request is done.
    _slot: Slot,
}

/// One request's part of a connection.
pub(crate) struct Stream {
    connection: Arc<H2>,
    pool: Arc<Pool>,
    /// Whether the connection had been there before.
    pub(crate) kept: bool,
}

// === impl Shared ===

impl Shared {
    /// Closes what was unused for long; what is old takes no more requests.
    pub(crate) fn sweep(&self, lifetime: Duration) {
        self.list.lock().retain(|one| {
            let unused = one.is_unused() && one.idle_since.lock().elapsed() >= IDLE;
            !one.sender.is_closed() && !unused && one.born.elapsed() < lifetime
        });
    }

    pub(crate) fn close(&self) {
        self.list.lock().clear();
    }

    /// Connections without requests.
    pub(crate) fn idle(&self) -> usize {
        self.list.lock().iter().filter(|one| one.is_unused()).count()
    }

    fn pick(&self, pool: &Arc<Pool>) -> Option<Stream> {
        let mut list = self.list.lock();
        // A connection that was told to go away is done with its last request.
        list.retain(|one| !one.sender.is_closed());
        let one = list.iter().find(|one| one.has_room())?;
        Some(Stream::new(one, pool, true))
    }
}

impl Pool {
    /// A part of a connection: of one there is, or of a new one that `dial` opens.
    pub(crate) async fn stream<F: Future<Output = Result<Io, Failure>>>(
        self: &Arc<Self>,
        deadline: Deadline,
        fresh: bool,
        dial: impl Fn() -> F,
    ) -> Result<Stream, Failure> {
        let pick = || if fresh { None } else { self.shared.pick(self) };
        if let Some(stream) = pick() {
            return Ok(stream);
        }
        let busy = "all connections to the engine are busy";
        let _opening = deadline.of(Phase::Pool, busy, self.shared.opening.lock()).await?;
        loop {
            if let Some(stream) = pick() {
                return Ok(stream);
            }
            let Some(slot) = self.free_slot() else {
                // Where no other may be opened, one of those there are has to do.
                if let Some(stream) = self.shared.pick(self) {
                    return Ok(stream);
                }
                deadline.of(Phase::Pool, busy, self.shared.released.notified()).await?;
                continue;
            };
            let opened = H2::over(dial().await?, slot);
            let opened = deadline.of(Phase::Tcp, "no h2 from the engine", opened).await??;
            let stream = Stream::new(&opened, self, false);
            self.shared.list.lock().push(opened);
            return Ok(stream);
        }
    }
}

// === impl H2 ===

impl H2 {
    async fn over(io: Io, slot: Slot) -> Result<Arc<Self>, Failure> {
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| Failure::new(Phase::Tcp, format!("h2: {}", root_cause(&error))))?;
        let task = Arc::new(Mutex::new(Some(connection)));
        let driven = Arc::clone(&task);
        // Ends when no request and no pool has the sender any more.
        tokio::spawn(poll_fn(move |cx| {
            let mut task = driven.lock();
            let Some(connection) = task.as_mut() else { return Poll::Ready(()) };
            let ended = ready!(Pin::new(connection).poll(cx));
            // It may hold requests, and gives them back.
            *task = None;
            if let Err(error) = ended {
                tracing::debug!(%error, "h2 connection to an engine ended");
            }
            Poll::Ready(())
        }));
        let now = Instant::now();
        Ok(Arc::new(Self {
            sender,
            streams: AtomicUsize::new(0),
            task,
            born: now,
            idle_since: Mutex::new(now),
            _slot: slot,
        }))
    }

    fn is_unused(&self) -> bool {
        self.streams.load(Ordering::Relaxed) == 0
    }

    fn has_room(&self) -> bool {
        let task = self.task.lock();
        let most = task.as_ref().map_or(0, Connection::current_max_send_streams);
        self.streams.load(Ordering::Relaxed) < most.min(MOST_STREAMS)
    }
}

impl fmt::Debug for H2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H2").field("streams", &self.streams).finish_non_exhaustive()
    }
}

// === impl Stream ===

impl Stream {
    fn new(connection: &Arc<H2>, pool: &Arc<Pool>, kept: bool) -> Self {
        connection.streams.fetch_add(1, Ordering::Relaxed);
        Self { connection: Arc::clone(connection), pool: Arc::clone(pool), kept }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn head(&self, request: Outgoing) -> Result<Response<Incoming>, Lost> {
        let mut sender = self.connection.sender.clone();
        sender.try_send_request(request).await.map_err(|mut error| Lost {
            unsent: error.take_message(),
            answered: false,
            refused: is_unprocessed(error.error()),
            failure: why(error.error()),
        })
    }
}

/// Whether the engine says that it did nothing with the request: too many streams, or one that came
/// after it had said that it goes away.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(h2) = error.downcast_ref::<::h2::Error>() {
            let goes = h2.is_go_away() && h2.reason() == Some(::h2::Reason::NO_ERROR);
            return h2.is_remote() && (goes || h2.reason() == Some(::h2::Reason::REFUSED_STREAM));
        }
        cause = error.source();
    }
    false
}

/// What became of an answer before its first data.
pub(crate) fn why(error: &hyper::Error) -> Failure {
    let phase = if error.is_parse() { Phase::NotHttp } else { Phase::Broke };
    Failure::new(phase, format!("h2: {}", root_cause(error)))
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.connection.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.connection.idle_since.lock() = Instant::now();
        }
        self.pool.shared.released.notify_one();
    }
}
