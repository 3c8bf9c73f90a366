//! Connections and requests: from the accepted socket to the scripted reply.

use super::answer::{self, Answer, Api, Refusal};
use super::body::{Paced, Payload, Tracked};
use super::record::{Kind, Recorded};
use super::reply::{RawEnd, RawStep, Reply, SseChunk, broken_stream, sse_event};
use super::routes;
use super::state::State;
use super::wire::{Exchanges, Stage, Wire};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue, SERVER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Request bodies are kept whole; a longer one closes the connection.
const MAX_BODY: usize = 64 << 20;

/// Accepts until told to stop; then listener and connections are gone.
pub(super) async fn accept(
    listener: TcpListener,
    state: Arc<State>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, state.clone()));
                }
                // Out of file descriptors: the next attempt may work.
                Err(_) => sleep(Duration::from_millis(5)).await,
            },
            Some(_) = connections.join_next() => {}
            _ = &mut stop => break,
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, state: Arc<State>) {
    // Tokens must leave one by one; on a socket that just died it does not matter.
    let _ = stream.set_nodelay(true);
    let exchanges = Arc::new(Exchanges::new(state.ledger.clone()));
    let wire = Wire { stream, exchanges: exchanges.clone() };
    let service = {
        let exchanges = exchanges.clone();
        service_fn(move |request| serve(state.clone(), exchanges.clone(), request))
    };
    let mut http = http1::Builder::new().serve_connection(TokioIo::new(wire), service);
    let by_hand = tokio::select! {
        biased;
        _ = &mut http => None,
        script = exchanges.taken_over() => Some(script),
    };
    match by_hand {
        None => exchanges.peer_gone(),
        Some((steps, end)) => {
            let mut stream = http.into_parts().io.into_inner().stream;
            if write_raw(&mut stream, &exchanges, steps, end).await.is_err() {
                exchanges.peer_gone();
            } else {
                exchanges.engine_ended();
            }
        }
    }
}

/// Writes a raw reply; an error means that the peer was gone first.
async fn write_raw(
    stream: &mut TcpStream,
    exchanges: &Exchanges,
    steps: Vec<RawStep>,
    end: RawEnd,
) -> io::Result<()> {
    let (mut from, mut to) = stream.split();
    let write = async {
        for step in steps {
            match step {
                RawStep::Pause(time) => sleep(time).await,
                RawStep::Write(bytes) => {
                    to.write_all(&bytes).await?;
                    exchanges.head_written();
                }
            }
        }
        if end == RawEnd::Hold { pending().await } else { io::Result::Ok(()) }
    };
    tokio::select! {
        biased;
        written = write => written?,
        lost = peer_left(&mut from) => return Err(lost),
    }
    if end == RawEnd::Reset { stream.set_zero_linger() } else { Ok(()) }
}

/// Reads on until the peer closes or resets.
async fn peer_left(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Error {
    let mut junk = [0; 1024];
    loop {
        match from.read(&mut junk).await {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => {}
            Err(e) => return e,
        }
    }
}

type ServeError = Box<dyn std::error::Error + Send + Sync>;

async fn serve(
    state: Arc<State>,
    exchanges: Arc<Exchanges>,
    request: Request<Incoming>,
) -> Result<Response<Tracked>, ServeError> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_info = routes::is_info(path) || routes::is_parity_question(path, &head.headers);
    let kind = if is_info { Kind::Info } else { Kind::Inference };
    let id = state.ledger.open(kind, &head);
    exchanges.begin(id, kind);
    let body = read_body(&state, &exchanges, id, body).await?;
    let seen = Recorded::new(id, kind, &head, body);
    let reply = match kind {
        Kind::Info if path == routes::TOKENIZE => {
            state.page(path).unwrap_or_else(|| routes::tokens(&state, &seen.body))
        }
        Kind::Info => state.page(path).unwrap_or_else(|| routes::info(&state, &head.method, path)),
        Kind::Inference => state.next_reply(&seen),
    };
    let response = perform(&state, &exchanges, &seen, reply).await;
    let (mut parts, payload) = response.into_parts();
    parts.headers.entry(SERVER).or_insert(HeaderValue::from_static("uvicorn"));
    let response = Response::from_parts(parts, Tracked { payload, exchanges, id });
    note_head(&response, head.method == Method::HEAD);
    Ok(response)
}

/// Notes that the head, and where there is no body to follow, the whole answer is
/// with the HTTP library.
fn note_head(response: &Response<Tracked>, to_head: bool) {
    let body = response.body();
    let bare = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&response.status());
    let whole = to_head || bare || http_body::Body::is_end_stream(body);
    body.exchanges.handed(body.id, if whole { Stage::Whole } else { Stage::Head });
}

/// What has been read of a request's body; the record gets it also when the reading
/// breaks off.
struct Reading<'a> {
    state: &'a State,
    id: u64,
    read: BytesMut,
    complete: bool,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.state.ledger.body(self.id, self.read.split().freeze(), self.complete);
    }
}

async fn read_body(
    state: &State,
    exchanges: &Exchanges,
    id: u64,
    mut body: Incoming,
) -> Result<Bytes, ServeError> {
    let mut reading = Reading { state, id, read: BytesMut::new(), complete: false };
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            reading.read.extend_from_slice(data);
        }
        if reading.read.len() > MAX_BODY {
            exchanges.engine_ended();
            return Err("the request body is longer than a fake engine keeps".into());
        }
    }
    reading.complete = true;
    Ok(Bytes::copy_from_slice(&reading.read))
}

type Performed<'a> = Pin<Box<dyn Future<Output = Response<Payload>> + Send + 'a>>;

/// Does what the reply says. Boxed, because a delayed reply contains another.
fn perform<'a>(
    state: &'a State,
    exchanges: &'a Exchanges,
    seen: &'a Recorded,
    reply: Reply,
) -> Performed<'a> {
    Box::pin(async move {
        match reply {
            Reply::Default => generate(state, seen, None).await,
            Reply::SlowTokens { first, gap, count } => {
                generate(state, seen, Some((first, gap, count))).await
            }
            Reply::Delayed(time, inner) => {
                sleep(time).await;
                perform(state, exchanges, seen, *inner).await
            }
            Reply::Json(status, value) => json_response(status, &value),
            Reply::Status(status, headers, body) => {
                let mut response = Response::new(Payload::full(body));
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                response
            }
            Reply::Sse { head_delay, chunks, done } => {
                sleep(head_delay).await;
                event_stream(chunks, done)
            }
            Reply::Echo => {
                let kind = seen.headers.get(CONTENT_TYPE).cloned();
                let headers = HeaderMap::from_iter(kind.map(|kind| (CONTENT_TYPE, kind)));
                let echo = Reply::Status(StatusCode::OK, headers, seen.body.clone());
                perform(state, exchanges, seen, echo).await
            }
            Reply::HangBeforeHead => pending().await,
            Reply::HeadThenHang => sse_response(Paced::new([], true)),
            Reply::ResetBeforeHead => by_hand(exchanges, Vec::new(), RawEnd::Reset).await,
            Reply::ResetMidBody(events) => {
                by_hand(exchanges, broken_stream(&events), RawEnd::Reset).await
            }
            Reply::CloseMidBody(events) => {
                by_hand(exchanges, broken_stream(&events), RawEnd::Close).await
            }
            Reply::RawBytes(bytes) => {
                by_hand(exchanges, vec![RawStep::Write(bytes)], RawEnd::Close).await
            }
            Reply::Raw(steps, end) => by_hand(exchanges, steps, end).await,
        }
    })
}

/// Leaves the connection to [`write_raw`]; never returns.
async fn by_hand<T>(exchanges: &Exchanges, steps: Vec<RawStep>, end: RawEnd) -> T {
    exchanges.take_over(steps, end);
    pending().await
}

/// The default answer; `pace` is time to the first token, between tokens, and count.
async fn generate(
    state: &State,
    seen: &Recorded,
    pace: Option<(Duration, Duration, usize)>,
) -> Response<Payload> {
    let path = seen.path.split('?').next().unwrap_or_default();
    let Some(api) = Api::of(path).filter(|_| seen.method == "POST") else {
        return json_response(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"}));
    };
    let asked = match answer::understand(&state.config, &seen.body) {
        Ok(asked) => asked,
        Err(Refusal { status, body }) => return json_response(status, &body),
    };
    let cached = state.prefill(&asked);
    let (first, gap, tokens) =
        pace.unwrap_or((Duration::ZERO, Duration::ZERO, asked.completion_tokens));
    let id = match seen.header("x-request-id") {
        "" => format!("{:016x}", seen.id),
        id => id.to_owned(),
    };
    let answer = Answer {
        api,
        id: &id,
        created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        asked: &asked,
        cached_tokens: state.config.report_cached_tokens.then_some(cached),
        completion_tokens: tokens,
    };
    sleep(first).await;
    state.generated(tokens);
    if !asked.stream {
        sleep(gap.saturating_mul(u32::try_from(tokens.saturating_sub(1)).unwrap_or(u32::MAX)))
            .await;
        return json_response(StatusCode::OK, &answer.whole());
    }
    let mut chunks: Vec<SseChunk> =
        answer.events().into_iter().map(|data| SseChunk { gap, data }).collect();
    // What comes with the first token, and the usage after the last, do not wait.
    let untimed = usize::from(api == Api::Chat) + 1;
    chunks.iter_mut().take(untimed).for_each(|c| c.gap = Duration::ZERO);
    chunks.iter_mut().skip(untimed + tokens.saturating_sub(1)).for_each(|c| c.gap = Duration::ZERO);
    event_stream(chunks, true)
}

fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<Payload> {
    let mut response = Response::new(Payload::full(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn event_stream(chunks: Vec<SseChunk>, done: bool) -> Response<Payload> {
    let events = chunks.into_iter().map(|c| (c.gap, sse_event(&c.data)));
    let done = done.then(|| (Duration::ZERO, sse_event("[DONE]")));
    sse_response(Paced::new(events.chain(done), false))
}

fn sse_response(body: Paced) -> Response<Payload> {
    let mut response = Response::new(Payload::Paced(body));
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
