//! The port: connections, their bounds, and who may ask.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kvasir_server_tls::{TlsFiles, server_config};
use kvasir_tokens::TokenDigest;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::answer::{Answer, Refusal};
use crate::api::Api;

/// Connections at one time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// The largest body, in bytes.
const MAX_BODY: usize = 1 << 20;
/// How long a request may take, and the wait for a next one.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the API is served.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The bearer token that is asked for, if one is.
    pub token: Option<String>,
    /// TLS, if it is spoken.
    pub tls: Option<TlsFiles>,
}

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("loxilb.listen: cannot listen on {0}")]
    Bind(SocketAddr, #[source] io::Error),
    /// Certificate or key cannot be used.
    #[error("loxilb.tls: {0}")]
    Tls(String),
}

/// The port, bound and not yet served.
pub struct Server {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
}

struct Shared {
    token: Option<TokenDigest>,
    api: Arc<Api>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the port.
    ///
    /// # Errors
    /// When the address cannot be listened on or files of TLS cannot be used.
    pub fn bind(settings: &ServerSettings, api: Arc<Api>) -> Result<Self, ServerError> {
        let tls = settings.tls.as_ref().map(|files| server_config(files, &[b"http/1.1"]));
        let tls = tls.transpose().map_err(ServerError::Tls)?;
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let bind = || {
            let socket = TcpListener::bind(settings.listen)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = bind().map_err(|source| ServerError::Bind(settings.listen, source))?;
        let token = settings.token.as_ref().map(|token| TokenDigest::of(token.as_bytes()));
        Ok(Self { socket, tls, shared: Arc::new(Shared { token, api }) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves for ever.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub async fn serve(self) -> io::Result<()> {
        let Self { socket, tls, shared } = self;
        let socket = tokio::net::TcpListener::from_std(socket)?;
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            // Never closed.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
            let stream = match socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the port of LoxiLB's API cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (tls, shared) = (tls.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                let _place = place;
                match tls {
                    None => converse(stream, shared).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await {
                            converse(stream, shared).await;
                        }
                    }
                }
            });
        }
    }
}

async fn converse<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the port of LoxiLB's API broke");
    }
}

impl Shared {
    async fn respond(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        if let Err(refusal) = self.admit(&parts.headers) {
            return refusal.answer();
        }
        let work = async {
            let read = match Limited::new(body, MAX_BODY).collect().await {
                Ok(read) => read.to_bytes(),
                Err(_) => {
                    let why = format!("the body broke off or is larger than {MAX_BODY} bytes");
                    return Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why).answer();
                }
            };
            let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
            // A change that began is finished, whoever waits for it.
            self.work(parts.method.clone(), path.to_owned(), query.to_owned(), read).await
        };
        timeout(PATIENCE, work).await.unwrap_or_else(|_| {
            let why = format!("timeout: it took longer than {} s", PATIENCE.as_secs());
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why).answer()
        })
    }

    async fn work(&self, method: http::Method, path: String, query: String, body: Bytes) -> Answer {
        let api = Arc::clone(&self.api);
        let work = tokio::spawn(async move { api.answer(&method, &path, &query, body).await });
        work.await.unwrap_or_else(|_| {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").answer()
        })
    }

    fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        // Pages of other sites can make a browser ask; they say where they are from.
        if headers.contains_key(header::ORIGIN) {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "browsers are not answered"));
        }
        let Some(token) = self.token else { return Ok(()) };
        let shown = headers.get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        // The reference's clients send the bare token.
        let shown = shown.map(|shown| shown.strip_prefix(b"Bearer ").unwrap_or(shown));
        match shown.map(TokenDigest::of) {
            Some(shown) if shown == token => Ok(()),
            _ => Err(Refusal::new(StatusCode::UNAUTHORIZED, "a bearer token is needed")),
        }
    }
}
