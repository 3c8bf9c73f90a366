//! Connections that carry gRPC: h2, with TLS or without, dialled and accepted.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kvasir_upstream::{Tls, bearer, root_cause};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::body::Body;
use tower_service::Service;

/// Connections accepted at one time.
const MOST_CONNECTIONS: usize = 256;
/// Streams of one of them.
const MOST_STREAMS: u32 = 64;
/// How long shaking hands may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How often the other side is asked whether it is still there, and how long it may take to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// After an accept that failed, such as for want of file descriptors.
const REST: Duration = Duration::from_millis(100);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The address cannot be looked up or reached.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// TLS or h2 were not agreed upon.
    #[error("{address}: {why}")]
    Handshake {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// It took too long.
    #[error("{address}: no connection within {} s", HANDSHAKE.as_secs())]
    Timeout {
        /// The address.
        address: String,
    },
}

/// A connection to a gRPC server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dialed {
    sender: SendRequest<Body>,
    origin: Uri,
    authorization: Option<HeaderValue>,
}

impl Dialed {
    /// Connects to `host:port`, and shows a token with every call where there is one.
    ///
    /// # Errors
    /// When there is no connection within 5 s.
    pub async fn connect(
        address: &str,
        tls: Option<&Tls>,
        token: Option<&str>,
    ) -> Result<Self, TransportError> {
        let timeout = || TransportError::Timeout { address: address.to_owned() };
        let connecting = Self::open(address, tls, token);
        tokio::time::timeout(HANDSHAKE, connecting).await.map_err(|_| timeout())?
    }

    async fn open(
        address: &str,
        tls: Option<&Tls>,
        token: Option<&str>,
    ) -> Result<Self, TransportError> {
        let failed = |why: String| TransportError::Handshake { address: address.to_owned(), why };
        let stream = TcpStream::connect(address).await.map_err(|error| {
            TransportError::Connect { address: address.to_owned(), why: error.to_string() }
        })?;
        let _ = stream.set_nodelay(true);
        let (scheme, sender) = match tls {
            None => ("http", handshake(stream).await.map_err(failed)?),
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let name = tls.name(host.trim_matches(['[', ']']));
                let name = name.ok_or_else(|| failed("no name to verify".to_owned()))?;
                let connector = TlsConnector::from(tls.config(true));
                let stream = connector.connect(name, stream).await;
                let stream = stream.map_err(|error| failed(error.to_string()))?;
                ("https", handshake(stream).await.map_err(failed)?)
            }
        };
        let origin = format!("{scheme}://{address}").parse();
        let origin = origin.map_err(|error| failed(format!("no address: {error}")))?;
        let authorization = token.map(|token| {
            bearer(token).map_err(|_| failed("the token cannot be sent in a header".to_owned()))
        });
        Ok(Self { sender, origin, authorization: authorization.transpose()? })
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Body>, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (every, within) = KEEP_ALIVE;
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(every)
        .keep_alive_timeout(within)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| root_cause(&error))?;
    // It ends with the last sender.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = root_cause(&error), "a gRPC connection ended");
        }
    });
    Ok(sender)
}

impl Service<Request<Body>> for Dialed {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut parts = self.origin.clone().into_parts();
        parts.path_and_query = request.uri().path_and_query().cloned();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, value.clone());
        }
        Box::pin(self.sender.send_request(request))
    }
}

/// Serves every request on connections to `listener` by `answer`, for ever.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (tls, answer) = (tls.clone(), answer.clone());
        tokio::spawn(async move {
            if let Err(why) = one(stream, tls, answer).await {
                note_end(peer, &why);
            }
            drop(place);
        });
    }
}

fn note_end(peer: SocketAddr, why: &str) {
    tracing::debug!(%peer, why, "a gRPC connection ended");
}

async fn one<F>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> Result<(), String>
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let Some(tls) = tls else { return spoken(stream, answer).await };
    let shaken = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await;
    let stream = shaken.map_err(|_| "TLS took too long")?.map_err(|error| error.to_string())?;
    spoken(stream, answer).await
}

async fn spoken<S, F>(
    stream: S,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let (every, within) = KEEP_ALIVE;
    let service = hyper::service::service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(every)
        .keep_alive_timeout(within)
        .max_concurrent_streams(MOST_STREAMS)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(|error| root_cause(&error))
}
