//! A scriptable OpenAI-compatible engine on a loopback port.
//!
//! It answers as vLLM 0.32 does, unless told otherwise, and keeps a record of every
//! request and of what became of it, seen from its own end of the socket.
//!
//! ```
//! use kvasir_testkit::client;
//! use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! let engine = FakeEngine::start(EngineConfig::default()).await?;
//! engine.push([Reply::status(http::StatusCode::TOO_MANY_REQUESTS)]);
//! let body = br#"{"model":"tiny","prompt":[1,2,3]}"#;
//! let refused = client::post(engine.addr(), "/v1/completions", body).await?;
//! let answered = client::post(engine.addr(), "/v1/completions", body).await?;
//! assert_eq!((refused.status, answered.status), (429, 200));
//! assert_eq!(engine.requests().len(), 2);
//! # Ok(()) }
//! ```

mod answer;
mod body;
mod cache;
mod config;
mod metrics;
mod record;
mod reply;
mod routes;
mod serve;
mod state;
mod wire;

pub use self::cache::Stored;
pub use self::config::{EngineConfig, Model, StoredSink, Tokenize};
pub use self::metrics::Load;
pub use self::record::{Fate, Kind, Recorded};
pub use self::reply::{RawEnd, RawStep, Reply, SseChunk};
pub use self::state::Handler;

use self::state::State;
use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Connections waiting to be accepted.
const BACKLOG: u32 = 1024;

/// A running fake engine. Dropping it closes everything.
#[derive(Debug)]
pub struct FakeEngine {
    state: Arc<State>,
    addr: SocketAddr,
    port: Mutex<Option<Port>>,
}

#[derive(Debug)]
enum Port {
    /// Closing `stop` ends the task. `spare` is bound to the same port, so that it is never free.
    Listening { stop: oneshot::Sender<()>, task: JoinHandle<()>, spare: TcpSocket },
    /// Bound without listening: connections are refused and nobody else gets it.
    Held(TcpSocket),
}

impl FakeEngine {
    /// Starts an engine on a free port of 127.0.0.1, on the current runtime.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(config: EngineConfig) -> io::Result<Self> {
        let socket = bind((std::net::Ipv4Addr::LOCALHOST, 0).into())?;
        let addr = socket.local_addr()?;
        let state = Arc::new(State::new(config));
        let port = Mutex::new(Some(listen(socket, state.clone())?));
        Ok(Self { state, addr, port })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:port`, without a final slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Queues replies for the next routed requests, one each. The queue comes
    /// before handler and default.
    pub fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.state.push(replies);
    }

    /// Asks `handler` for the reply when the queue is empty.
    pub fn set_handler(
        &self,
        handler: impl Fn(&Recorded) -> Option<Reply> + Send + Sync + 'static,
    ) {
        self.state.set_handler(Some(Box::new(handler)));
    }

    /// What routed requests get when neither queue nor handler has a reply.
    pub fn set_default(&self, reply: Reply) {
        self.state.set_default(reply);
    }

    /// Replaces a built-in page, such as `/health`, until `None` restores it.
    pub fn set_page(&self, path: &str, reply: impl Into<Option<Reply>>) {
        self.state.set_page(path, reply.into());
    }

    /// What `/metrics` says about the scheduler.
    pub fn set_load(&self, load: Load) {
        self.state.set_load(load);
    }

    /// From now on `POST /kv_cache_events` answers as TensorRT-LLM does: with all events pushed here
    /// since it was asked before.
    pub fn push_cache_events(&self, events: Vec<serde_json::Value>) {
        self.state.push_cache_events(events);
    }

    /// Empties the prefix cache. The sink is not told.
    pub fn reset_cache(&self) {
        self.state.reset_cache();
    }

    /// The routed requests in order of arrival, without built-in pages. A request
    /// appears when its head has been read.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.ledger.of_kind(Kind::Inference)
    }

    /// Requests of the built-in pages.
    #[must_use]
    pub fn info_requests(&self) -> Vec<Recorded> {
        self.state.ledger.of_kind(Kind::Info)
    }

    /// Routed requests now open: from the head read to the last byte of the answer
    /// written, or to the end of the connection.
    #[must_use]
    pub fn active(&self) -> usize {
        self.state.ledger.active()
    }

    /// Waits for `n` routed requests with complete bodies and gives all of them.
    ///
    /// # Panics
    ///
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for(
        &self,
        n: usize,
        deadline: Duration,
    ) -> impl Future<Output = Vec<Recorded>> + use<'_> {
        self.wait_until(deadline, "enough complete requests", move |seen| {
            seen.iter().filter(|r| r.body_complete).count() >= n
        })
    }

    /// Waits until every routed request has a fate, and gives all of them.
    ///
    /// # Panics
    ///
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_idle(&self, deadline: Duration) -> impl Future<Output = Vec<Recorded>> + use<'_> {
        self.wait_until(deadline, "all requests ended", |seen| {
            seen.iter().all(|r| r.fate != Fate::Open)
        })
    }

    #[track_caller]
    fn wait_until<'a, F>(
        &'a self,
        deadline: Duration,
        what: &'static str,
        cond: F,
    ) -> impl Future<Output = Vec<Recorded>> + use<'a, F>
    where
        F: Fn(&[Recorded]) -> bool,
    {
        let caller = Location::caller();
        async move {
            let start = Instant::now();
            loop {
                let seen = self.requests();
                if cond(&seen) {
                    return seen;
                }
                let fates: Vec<Fate> = seen.iter().map(|r| r.fate).collect();
                let late = start.elapsed() >= deadline;
                assert!(!late, "{caller}: not within {deadline:?}: {what}; fates: {fates:?}");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Breaks all connections and refuses new ones, as a dead process does, while
    /// the port stays reserved. When it returns, nothing is open any more. Does
    /// nothing when already stopped.
    ///
    /// # Errors
    ///
    /// When the port could not be kept.
    pub async fn stop(&self) -> io::Result<()> {
        let port = self.port.lock().take();
        let held = match port {
            Some(Port::Listening { stop, task, spare }) => {
                drop(stop);
                // An error would be a panic of the accept loop; nobody listens anyway.
                let _ = task.await;
                Some(Port::Held(spare))
            }
            other => other,
        };
        *self.port.lock() = held;
        Ok(())
    }

    /// Listens again on the same port as the same process: cache, counters and
    /// start time are kept, as after a network failure. Does nothing when running.
    ///
    /// # Errors
    ///
    /// When the port cannot be opened.
    pub fn resume(&self) -> io::Result<()> {
        let mut port = self.port.lock();
        *port = match port.take() {
            Some(Port::Held(socket)) => Some(listen(socket, self.state.clone())?),
            other => other,
        };
        Ok(())
    }

    /// Stops if need be, then listens again on the same port as a new process:
    /// empty cache, counters from zero, a later start time. Records and script stay.
    ///
    /// # Errors
    ///
    /// When the port cannot be kept or opened.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await?;
        self.state.new_life();
        self.resume()
    }
}

fn bind(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

fn listen(socket: TcpSocket, state: Arc<State>) -> io::Result<Port> {
    // Two sockets may share a port until one of them listens.
    let spare = bind(socket.local_addr()?)?;
    let listener = socket.listen(BACKLOG)?;
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(serve::accept(listener, state, stopped));
    Ok(Port::Listening { stop, task, spare })
}
