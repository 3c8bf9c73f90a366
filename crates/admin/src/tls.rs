//! TLS of the admin port: files that can be read again while it is served.

use std::sync::Arc;
use std::time::Duration;

use kvasir_server_tls::{TlsFiles, server_config};
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The server's side of TLS.
pub(crate) struct Tls {
    files: TlsFiles,
    acceptor: RwLock<TlsAcceptor>,
}

impl Tls {
    /// Reads the files; the error says which is wrong.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, String> {
        Ok(Self { files: files.clone(), acceptor: RwLock::new(acceptor(files)?) })
    }

    pub(crate) fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Reads them again, for new connections; where that fails what was read before stays.
    pub(crate) fn reload(&self) -> Result<(), String> {
        *self.acceptor.write() = acceptor(&self.files)?;
        Ok(())
    }

    /// Shakes hands; `None` where that failed.
    pub(crate) async fn accept<S>(&self, stream: S) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shaking = self.acceptor.read().clone().accept(stream);
        match timeout(HANDSHAKE, shaking).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake at the admin port failed");
                None
            }
            Err(_) => None,
        }
    }
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    Ok(TlsAcceptor::from(Arc::new(server_config(files, &[b"http/1.1"])?)))
}
