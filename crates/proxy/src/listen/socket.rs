//! The listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use super::hub::Hub;
use super::settings::ListenSettings;
use super::tls::Tls;

/// Connections that may wait to be accepted; the system may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// Why nobody can be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Certificate, key or client authorities cannot be used.
    #[error("listener.tls: {0}")]
    Tls(String),
}

/// A bound socket, and what the connections that come through it share.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: TcpListener,
    pub(super) settings: Arc<ListenSettings>,
    pub(super) hub: Arc<Hub>,
    pub(super) tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Binds and listens. From then on the system takes connections, which wait to be accepted.
    ///
    /// # Errors
    /// When the address cannot be listened on, or TLS is asked for and its files cannot be used.
    pub fn bind(settings: &ListenSettings) -> Result<Self, ListenError> {
        let tls = settings.tls.as_ref().map(|files| Tls::load(files, settings.http2)).transpose();
        let tls = tls.map_err(ListenError::Tls)?.map(Arc::new);
        let address = settings.address;
        let socket = open(address, settings.reuse_port)
            .map_err(|source| ListenError::Bind { address, source })?;
        let hub = Arc::new(Hub::new(settings.max_connections));
        Ok(Self { socket, settings: Arc::new(settings.clone()), hub, tls })
    }

    /// Whether what TLS needs can be used, without listening.
    ///
    /// # Errors
    /// When TLS is asked for and its files cannot be used.
    pub fn check(settings: &ListenSettings) -> Result<(), ListenError> {
        let Some(files) = &settings.tls else { return Ok(()) };
        Tls::load(files, settings.http2).map(|_| ()).map_err(ListenError::Tls)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// One more for the same address, for another accept loop: a socket of its own where
    /// `reuse_port` is set, so that the system spreads connections, else the same socket. Limit, stop
    /// and end are shared.
    ///
    /// # Errors
    /// When the system gives no further socket.
    pub fn another(&self) -> io::Result<Self> {
        let socket = if self.settings.reuse_port {
            open(self.local_addr()?, true)?
        } else {
            self.socket.try_clone()?
        };
        let (settings, hub) = (Arc::clone(&self.settings), Arc::clone(&self.hub));
        Ok(Self { socket, settings, hub, tls: self.tls.clone() })
    }

    /// Follows the files of TLS, for ever: a task of its own, once for all loops. `None` without TLS.
    pub fn watch_tls(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let tls = Arc::clone(self.tls.as_ref()?);
        Some(async move { tls.watch().await })
    }
}

fn open(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a former process that wait for their end do not keep the port.
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
