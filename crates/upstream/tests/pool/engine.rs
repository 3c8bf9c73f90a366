//! What every test here needs: an engine written by hand, and requests to it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use kvasir_upstream::{Broken, Failure, Limits, Origin, OriginStats, Patience, Started, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// For what should happen at once, on a machine that may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const PATIENCE: Patience = Patience { connect: SOON, first_data: SOON };
/// A short answer of known length.
pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An engine; every connection is given to `serve`.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Engine {
    pub(crate) async fn start<F, S>(serve: S) -> Self
    where
        F: Future<Output = ()> + Send,
        S: Fn(TcpStream, usize) -> F + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let serve = Arc::new(serve);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                tokio::spawn(async move { serve(stream, number).await });
            }
        });
        Self { addr, accepted }
    }

    /// One that answers everything, and keeps its connections.
    pub(crate) async fn plain() -> Self {
        Self::start(|mut stream, _| async move {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(ANSWER).await.unwrap();
            }
        })
        .await
    }

    /// Connections it has accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn origin(&self) -> Origin {
        origin(self.addr, Limits::default())
    }
}

pub(crate) fn origin(addr: SocketAddr, limits: Limits) -> Origin {
    Origin::new(addr.to_string().parse().unwrap(), None, false, limits)
}

/// Reads a request with a body of known length; `None` at the end of the connection.
pub(crate) async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut seen = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        seen.extend_from_slice(&piece[..read]);
        let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&seen[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if seen.len() >= end + 4 + length {
            return Some(seen);
        }
    }
}

pub(crate) fn request() -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::from_static(b"{\"prompt\":1}")));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = "/v1/completions?a=b".parse().unwrap();
    request
}

/// The beginning of an answer.
pub(crate) async fn begin(upstream: &Upstream, origin: &Origin) -> Result<Started, Failure> {
    upstream.send(origin, PATIENCE, || true, request).await
}

/// A whole answer's body.
pub(crate) async fn ask(upstream: &Upstream, origin: &Origin) -> Result<Bytes, Failure> {
    Ok(rest(begin(upstream, origin).await?).await.unwrap())
}

pub(crate) async fn rest(started: Started) -> Result<Bytes, Broken> {
    let mut whole = Vec::new();
    let first = started.first.and_then(|frame| frame.into_data().ok());
    whole.extend_from_slice(&first.unwrap_or_default());
    whole.extend_from_slice(&started.rest.collect().await?.to_bytes());
    Ok(whole.into())
}

pub(crate) fn stats(upstream: &Upstream) -> OriginStats {
    upstream.stats().into_iter().next().unwrap_or_default()
}

/// Waits for a state.
pub(crate) async fn until(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < SOON, "not soon: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
