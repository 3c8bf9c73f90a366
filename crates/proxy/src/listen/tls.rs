//! TLS of clients: certificates that are read again when they change, and why handshakes fail.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::settings::TlsFiles;
use super::watch::watch_files;

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
        watch_files("tls", paths, move || {
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
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let name = path.display();
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("{name}: {error}"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| format!("{name}: {error}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{}: {error}", files.key.display()))?;
    // Says so where key and certificate are not of one pair.
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        format!("{} with {}: {error}", files.cert.display(), files.key.display())
    })?;
    let protocols: &[&[u8]] = if http2 { &[H2, HTTP11] } else { &[HTTP11] };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let name = path.display();
    let read = CertificateDer::pem_file_iter(path).map_err(|error| format!("{name}: {error}"))?;
    let chain: Result<Vec<_>, _> = read.collect();
    let chain = chain.map_err(|error| format!("{name}: {error}"))?;
    if chain.is_empty() {
        return Err(format!("{name}: no certificate in it"));
    }
    Ok(chain)
}
