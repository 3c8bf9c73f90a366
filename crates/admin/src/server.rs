//! The admin port: it is bound, its connections are taken, and requests are read from them.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kvasir_server_tls::TlsFiles;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::audit::{Audit, Writer};
use crate::auth::Guard;
use crate::connections::{Connections, Conversation};
use crate::control::Control;
use crate::counts;
use crate::requests::Shared;
use crate::settings::AdminSettings;
use crate::tls::Tls;

/// Connections at one time.
const MAX_CONNECTIONS: usize = 64;
/// How long a request's head may take, from the end of the request before it on.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may be open without being asked anything, however slowly the last answer is
/// read.
const IDLE: Duration = Duration::from_secs(30);

/// The admin API, bound and not yet served.
pub struct Admin {
    socket: TcpListener,
    tls: Option<Arc<Tls>>,
    shared: Arc<Shared>,
    audit: Writer,
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
        let tls = settings.tls.as_ref().map(Tls::load).transpose().map_err(AdminError::Tls)?;
        let (audit, writer) = Audit::open(settings.audit_log.as_deref()).map_err(|source| {
            AdminError::Audit { path: settings.audit_log.clone().unwrap_or_default(), source }
        })?;
        let address = settings.listen;
        let bind = || {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = bind().map_err(|source| AdminError::Bind { address, source })?;
        let guard = Guard::new(settings.read_token.as_deref(), settings.write_token.as_deref());
        let shared = Arc::new(Shared::new(Arc::new(RwLock::new(guard)), audit, control));
        Ok(Self { socket, tls: tls.map(Arc::new), shared, audit: writer })
    }

    /// Its TLS files, where it has some, and what reads them again: for new connections, and without
    /// effect where they cannot be used. Whoever holds the configuration decides when.
    #[must_use]
    pub fn tls_files(
        &self,
    ) -> Option<(TlsFiles, impl Fn() -> Result<(), String> + Send + Sync + use<>)> {
        let tls = Arc::clone(self.tls.as_ref()?);
        Some((tls.files().clone(), move || tls.reload()))
    }

    /// A handle that changes the tokens.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        Tokens(self.shared.guard())
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
        let Self { socket, tls, shared, audit } = self;
        let socket = tokio::net::TcpListener::from_std(socket)?;
        tokio::spawn(audit.run());
        let connections = Connections::new(MAX_CONNECTIONS);
        loop {
            let (stream, remote) = match socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "the admin port cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let place = connections.enter().await;
            let (tls, shared) = (tls.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                let _counted = counts::Connection::begin();
                let conversation = place.conversation();
                let to = Talk { remote, shared, conversation: place.conversation() };
                let talk = async move {
                    match tls {
                        None => to.converse(stream).await,
                        Some(tls) => {
                            if let Some(stream) = tls.accept(stream).await {
                                to.converse(stream).await;
                            }
                        }
                    }
                };
                tokio::select! {
                    () = talk => {}
                    () = conversation.is_over(IDLE) => {}
                }
            });
        }
    }
}

/// One connection.
struct Talk {
    remote: SocketAddr,
    shared: Arc<Shared>,
    conversation: Arc<Conversation>,
}

impl Talk {
    async fn converse<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { remote, shared, conversation } = self;
        let service = service_fn(move |request| {
            let (shared, conversation) = (Arc::clone(&shared), Arc::clone(&conversation));
            async move {
                conversation.begin();
                let response = shared.respond(remote, &conversation, request).await;
                conversation.end();
                Ok::<_, Infallible>(response)
            }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a connection of the admin port broke");
        }
    }
}

/// Whether a method asks for a route's.
pub(crate) fn is_method(asked: &Method, of_route: &str) -> bool {
    asked.as_str() == of_route || (asked == Method::HEAD && of_route == "GET")
}
