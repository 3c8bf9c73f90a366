//! What a listener is told.

use std::net::SocketAddr;
use std::time::Duration;

use kvasir_server_tls::TlsFiles;

/// Where and how clients are served.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Where clients connect; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether other processes may listen on the same port (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// Whether HTTP/2 is spoken: by prior knowledge, and by ALPN under TLS.
    pub http2: bool,
    /// Connections open at one time; further ones wait in the system's backlog.
    pub max_connections: usize,
    /// Requests open at one time on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// How long a connection may be idle, and how long a request's head may take.
    pub idle_timeout: Duration,
    /// How long a client may read nothing of what is written to it.
    pub write_stall: Duration,
    /// TLS, where clients speak it; its files are read again when they change.
    pub tls: Option<TlsFiles>,
}

impl ListenSettings {
    /// The defaults, at `address`, in plain text.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            reuse_port: false,
            http2: true,
            max_connections: 16_384,
            max_concurrent_streams: 256,
            idle_timeout: Duration::from_secs(75),
            write_stall: Duration::from_secs(60),
            tls: None,
        }
    }
}
