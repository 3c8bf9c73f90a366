//! The admin port: connections, their bounds, and what a request goes through.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kvasir_server_tls::server_config;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::answer::{self, Answer, Asked};
use crate::audit::{Audit, Entry};
use crate::auth::{Access, Guard};
use crate::control::Control;
use crate::counts;
use crate::error::ApiError;
use crate::routes::{self, Route};
use crate::settings::AdminSettings;

/// Connections at one time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// The largest body, in bytes.
const MAX_BODY: usize = 1 << 20;
/// How long a request may take, its body and its answer's making included; and a TLS handshake, and
/// the wait for a next request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The admin API, bound and not yet served.
pub struct Admin {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
}

/// Why the admin API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("admin.listen: cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("admin.tls: {0}")]
    Tls(String),
    /// The audit log cannot be written.
    #[error("admin.audit_log: {}", .path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The tokens that are asked for; they can change while the API is served.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<RwLock<Guard>>);

impl Tokens {
    /// Asks for these from now on.
    pub fn set(&self, read: Option<&str>, write: Option<&str>) {
        *self.0.write() = Guard::new(read, write);
    }
}

struct Shared {
    guard: Arc<RwLock<Guard>>,
    audit: Audit,
    control: Arc<dyn Control>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Admin {
    /// Binds the port. From then on the system takes connections, which wait to be served.
    ///
    /// # Errors
    /// When the address cannot be listened on, or files of TLS or the audit cannot be used.
    pub fn bind(settings: &AdminSettings, control: Arc<dyn Control>) -> Result<Self, AdminError> {
        let tls = settings.tls.as_ref().map(|files| server_config(files, &[b"http/1.1"]));
        let tls = tls.transpose().map_err(AdminError::Tls)?;
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let audit = Audit::open(settings.audit_log.as_deref()).map_err(|source| {
            AdminError::Audit { path: settings.audit_log.clone().unwrap_or_default(), source }
        })?;
        let address = settings.listen;
        let bind = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = bind().map_err(|source| AdminError::Bind { address, source })?;
        counts::from_zero();
        let guard = Guard::new(settings.read_token.as_deref(), settings.write_token.as_deref());
        let guard = Arc::new(RwLock::new(guard));
        Ok(Self { socket, tls, shared: Arc::new(Shared { guard, audit, control }) })
    }

    /// A handle that changes the tokens.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        Tokens(Arc::clone(&self.shared.guard))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves for ever; ends with the runtime, or where the socket cannot be used.
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
            let (stream, remote) = match socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "the admin port cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (tls, shared) = (tls.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                let _place = place;
                let _counted = counts::Connection::begin();
                match tls {
                    None => converse(stream, remote, shared).await,
                    Some(tls) => match timeout(PATIENCE, tls.accept(stream)).await {
                        Ok(Ok(stream)) => converse(stream, remote, shared).await,
                        Ok(Err(error)) => {
                            tracing::debug!(%error, "TLS handshake at the admin port failed");
                        }
                        Err(_) => {}
                    },
                }
            });
        }
    }
}

async fn converse<S>(stream: S, remote: SocketAddr, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(remote, request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the admin port broke");
    }
}

impl Shared {
    async fn respond(
        &self,
        remote: SocketAddr,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let began = Instant::now();
        let (parts, body) = request.into_parts();
        let found = routes::find(&parts.method, parts.uri.path());
        let allow = match &found {
            Err(error) => error.allow.clone(),
            Ok(_) => None,
        };
        let known = found.as_ref().ok().map(|(route, _)| *route);
        let answered = match found {
            Ok((route, values)) => self.run(remote, &parts, body, route, values).await,
            Err(error) => {
                let browser = self.guard.read().admit(Access::Open, &parts.headers);
                if let Err(refused) = &browser {
                    counts::denied(refused);
                }
                Err(browser.err().unwrap_or(error.error))
            }
        };
        let mut response = match answered {
            Ok(answer) => answer.response(),
            Err(error) => refusal(&error),
        };
        if let Some(allow) = allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let no_sniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, no_sniff);
        counts::answered(known, response.status(), began);
        response
    }

    async fn run(
        &self,
        remote: SocketAddr,
        parts: &Parts,
        body: Incoming,
        route: &'static Route,
        values: Vec<String>,
    ) -> Result<Answer, ApiError> {
        let role = self.guard.read().admit(route.access, &parts.headers);
        let mut read = Bytes::new();
        let answered = match &role {
            Err(error) => {
                counts::denied(error);
                Err(error.clone())
            }
            Ok(_) => {
                let work = async {
                    let limited = Limited::new(body, MAX_BODY).collect().await;
                    read = limited.map_err(|error| bad_body(&*error))?.to_bytes();
                    let asked = Asked { route, values, parts, body: read.clone() };
                    answer::answer(&*self.control, asked).await
                };
                timeout(PATIENCE, work).await.unwrap_or_else(|_| {
                    let why = format!("it took longer than {} s", PATIENCE.as_secs());
                    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", why))
                })
            }
        };
        if route.access == Access::Write {
            let result = answered.as_ref().map(|answer| answer.status.as_u16());
            counts::changed(route, result);
            self.audit.note(&Entry {
                role: role.ok(),
                remote,
                method: &parts.method,
                path: parts.uri.path(),
                body: &read,
                result,
            });
        }
        answered
    }
}

fn bad_body(error: &(dyn std::error::Error + 'static)) -> ApiError {
    if error.is::<http_body_util::LengthLimitError>() {
        let why = format!("the body is larger than {MAX_BODY} bytes");
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why);
    }
    ApiError::new(StatusCode::BAD_REQUEST, "bad_body", format!("the body broke off: {error}"))
}

fn refusal(error: &ApiError) -> Response<Full<Bytes>> {
    let mut response = Answer::json(error.status, error.body()).response();
    if error.status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"kvasir-admin\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    if error.status == StatusCode::PAYLOAD_TOO_LARGE {
        // The rest of the body is not read.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Whether a method asks for a route's.
pub(crate) fn is_method(asked: &Method, of_route: &str) -> bool {
    asked.as_str() == of_route || (asked == Method::HEAD && of_route == "GET")
}
