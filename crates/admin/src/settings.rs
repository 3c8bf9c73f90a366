//! How the API is served.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use kvasir_server_tls::TlsFiles;

/// How the API is served.
#[derive(Clone)]
pub struct AdminSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The bearer token for reading; `None` lets everybody read.
    pub read_token: Option<String>,
    /// The bearer token for changes, which reads as well; `None` refuses all changes.
    pub write_token: Option<String>,
    /// TLS; plain text without.
    pub tls: Option<TlsFiles>,
    /// The file that lines of the audit are appended to; the log without one.
    pub audit_log: Option<PathBuf>,
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listen, read_token, write_token, tls, audit_log } = self;
        f.debug_struct("AdminSettings")
            .field("listen", listen)
            .field("read_token", &read_token.is_some())
            .field("write_token", &write_token.is_some())
            .field("tls", tls)
            .field("audit_log", audit_log)
            .finish()
    }
}
