//! Connections: from the listening socket to the routes, with the faults that happen on the way.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, SERVER, VARY};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::body::Payload;
use super::disagg::params::side;
use super::faults::HttpFault;
use super::generate::ask::object;
use super::idle::Idle;
use super::refusal::Refusal;
use super::routes::{Received, Route, answer, not_found};
use super::state::{Order, State};

/// Longest request body.
const MAX_BODY: usize = 64 << 20;

/// Connections that are served at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 8_192;

/// No HTTP.
const GARBAGE: &[u8] = b"\x16\x03\x01 this is no answer\r\n\r\n";

/// How long the answer to a restart's request may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves until there is an order; then listener and connections are gone. `None` when nobody can
/// give orders any more.
pub(super) async fn serve(
    listener: TcpListener,
    state: &Arc<State>,
    orders: &mut mpsc::Receiver<Order>,
) -> Option<Order> {
    let (end, ended) = watch::channel(());
    let mut connections = JoinSet::new();
    let order = loop {
        let has_room = connections.len() < MAX_CONNECTIONS;
        tokio::select! {
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(state), ended.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, for one: the next attempt may work.
                    tracing::warn!(%error, "connection not accepted");
                    sleep(Duration::from_millis(5)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            order = orders.recv() => break order,
        }
    };
    drop(listener);
    drop(end);
    while connections.join_next().await.is_some() {}
    order
}

/// How a connection is to end.
#[derive(Debug, Default)]
struct Ending {
    /// With a reset.
    reset: AtomicBool,
    /// Only after the answer that is being written.
    finish: AtomicBool,
    /// What is written next is not what was meant to be.
    garbage: AtomicBool,
}

async fn connection(stream: TcpStream, state: Arc<State>, mut ended: watch::Receiver<()>) {
    // Tokens must leave one by one; on a socket that just died it does not matter.
    let _ = stream.set_nodelay(true);
    let ending = Arc::new(Ending::default());
    let wire = Wire { stream, ending: Arc::clone(&ending) };
    let idle = Idle::new();
    let service = {
        let (state, ending, idle) = (Arc::clone(&state), Arc::clone(&ending), idle.clone());
        service_fn(move |request| answered(Arc::clone(&state), Arc::clone(&ending), &idle, request))
    };
    let http = http1::Builder::new().serve_connection(TokioIo::new(wire), service);
    let mut http = std::pin::pin!(http);
    tokio::select! {
        // How clients leave is their matter.
        _ = &mut http => {}
        () = idle.too_long(Arc::clone(&state)) => {}
        _ = ended.changed() => {
            if ending.finish.load(Ordering::Relaxed) {
                http.as_mut().graceful_shutdown();
                let _ = timeout(LAST_WORDS, http).await;
            }
        }
    }
}

type HandleError = Box<dyn std::error::Error + Send + Sync>;

/// The answer to one request, which keeps its connection busy until it is over.
fn answered(
    state: Arc<State>,
    ending: Arc<Ending>,
    idle: &Idle,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Payload>, HandleError>> + Send + use<> {
    let busy = idle.busy();
    async move { Ok(handle(state, ending, request).await?.map(|body| body.keeps(busy))) }
}

async fn handle(
    state: Arc<State>,
    ending: Arc<Ending>,
    request: Request<Incoming>,
) -> Result<Response<Payload>, HandleError> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let routed = Route::of(path, &state);
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("The request body is longer than {MAX_BODY} bytes.");
            let refusal = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "BadRequestError", message);
            let mut response = refusal.response().map(Payload::full);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return Ok(response);
        }
        Err(error) => return Err(error),
    };
    let fault =
        if path.starts_with("/sim/") { HttpFault::None } else { take_fault(&state, path, &body) };
    match fault {
        HttpFault::None | HttpFault::Error(_) => {}
        // Until the client has had enough, or the server ends.
        HttpFault::Hang => std::future::pending().await,
        HttpFault::Slow(time) => sleep(time).await,
        HttpFault::ResetMidBody => ending.reset.store(true, Ordering::Relaxed),
        HttpFault::Reset => {
            ending.reset.store(true, Ordering::Relaxed);
            return Err("a reset was asked for".into());
        }
        HttpFault::Garbage => ending.garbage.store(true, Ordering::Relaxed),
    }
    ending.finish.store(matches!(routed, Some((Route::SimRestart, _))), Ordering::Relaxed);
    let (handler, mut response) = match (fault, routed) {
        (HttpFault::Error(status), routed) => {
            let status = StatusCode::from_u16(status)?;
            let refusal = Refusal::new(status, "SimulatedError", "This error was asked for.");
            (
                routed.map_or(Some("none"), |(_, handler)| handler),
                refusal.response().map(Payload::full),
            )
        }
        (_, Some((route, handler))) => {
            let query = head.uri.query().unwrap_or_default();
            let received = Received { method: &head.method, query, headers: &head.headers, body };
            (handler, answer(&state, route, received).await)
        }
        (_, None) => (Some("none"), not_found()),
    };
    if let Some(handler) = handler {
        let status = response.status().as_u16();
        state.life.lock().http.count(handler, &head.method, status);
    }
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("uvicorn"));
    headers.insert(VARY, HeaderValue::from_static("Origin"));
    Ok(if fault == HttpFault::ResetMidBody { response.map(Payload::broken) } else { response })
}

/// The fault for a request.
fn take_fault(state: &State, path: &str, body: &[u8]) -> HttpFault {
    state.faults.take_http(path, || side(state, &object(body).ok()?))
}

/// A connection that can end with a reset.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    ending: Arc<Ending>,
}

impl Wire {
    fn resets(&self) -> bool {
        self.ending.reset.load(Ordering::Relaxed)
    }

    /// Writes that, and breaks off.
    fn write_garbage(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, GARBAGE))?;
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.resets() {
            // Where it fails the peer has been quicker.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.ending.garbage.load(Ordering::Relaxed) {
            return self.write_garbage(cx);
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An orderly end before the reset would hide it.
        if self.resets() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.ending.garbage.load(Ordering::Relaxed) {
            return self.write_garbage(cx);
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
