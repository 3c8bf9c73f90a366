//! TLS of clients: certificates that are read again when they change, and why handshakes fail.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use kvasir_server_tls::{TlsFiles, server_config};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::watch::{FileFamilies, watch_files};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What ALPN calls the protocols.
const H2: &[u8] = b"h2";
const HTTP11: &[u8] = b"http/1.1";

/// The server's side of TLS.
#[derive(Debug)]
pub(super) struct Tls {
    files: TlsFiles,
    http2: bool,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files; the error says which is wrong.
    pub(super) fn load(files: &TlsFiles, http2: bool) -> Result<Self, String> {
        let config = ArcSwap::from_pointee(config(files, http2)?);
        Ok(Self { files: files.clone(), http2, config })
    }

    /// Follows the files, for ever. New connections get what is new; sessions of before are not
    /// resumed.
    pub(super) async fn watch(self: Arc<Self>) {
        let paths = self.files.paths();
        let families =
            FileFamilies { reloads: "kvasir_tls_reloads_total", stale: "kvasir_tls_stale" };
        watch_files(families, paths, move || {
            let fresh = config(&self.files, self.http2)?;
            self.config.store(Arc::new(fresh));
            Ok::<_, String>(())
        })
        .await;
    }

    /// Shakes hands; `None` where that failed, which is counted. The flag says that HTTP/2 was
    /// agreed on.
    pub(super) async fn accept<S>(&self, stream: S) -> Option<(TlsStream<S>, bool)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shaking = TlsAcceptor::from(self.config.load_full()).accept(stream);
        let cause = match tokio::time::timeout(HANDSHAKE, shaking).await {
            Ok(Ok(stream)) => {
                let h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                return Some((stream, h2));
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                cause(&error)
            }
            Err(_) => "timeout",
        };
        metrics::counter!("kvasir_tls_handshake_failures_total", "cause" => cause).increment(1);
        None
    }
}

/// Why a handshake failed, in one of few words.
fn cause(error: &io::Error) -> &'static str {
    use rustls::Error;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        None => "closed",
        Some(Error::InvalidMessage(_)) => "not_tls",
        Some(Error::PeerIncompatible(_)) => "incompatible",
        Some(Error::NoApplicationProtocol) => "no_protocol",
        Some(Error::NoCertificatesPresented) => "no_client_certificate",
        Some(Error::InvalidCertificate(_)) => "client_certificate",
        Some(Error::AlertReceived(_)) => "alert",
        Some(_) => "other",
    }
}

fn config(files: &TlsFiles, http2: bool) -> Result<ServerConfig, String> {
    server_config(files, if http2 { &[H2, HTTP11] } else { &[HTTP11] })
}
