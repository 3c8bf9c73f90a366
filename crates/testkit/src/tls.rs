//! TLS in front of a fake engine: certificates made on the spot, and a front that ends TLS.

#![expect(clippy::expect_used, reason = "helpers of tests may stop at once")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// The key.
    pub key: String,
}

/// Ends TLS and passes the bytes on to a port of this machine. Dropping it closes everything.
#[derive(Debug)]
pub struct TlsFront {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

// === impl Authority ===

impl Authority {
    /// A new one, which nobody believes yet.
    ///
    /// # Panics
    /// When no key can be made.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        // No two have one name, or a stranger would be taken for one that signs badly.
        let name: String = key.public_key_raw().iter().map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// Its certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these host names or addresses.
    ///
    /// # Panics
    /// When a name cannot be in a certificate.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names of hosts");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity { cert: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// A server's side of TLS. With `clients` it takes only those with a certificate of that authority.
///
/// # Panics
/// When the parts do not fit.
#[must_use]
pub fn server_config(
    identity: &Identity,
    clients: Option<&Authority>,
    alpn: &[&str],
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let pem = CertificateDer::from_pem_slice(authority.pem.as_bytes());
            roots.add(pem.expect("a certificate")).expect("an authority");
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let cert = CertificateDer::from_pem_slice(identity.cert.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    let mut config = builder.with_single_cert(vec![cert], key).expect("a key that fits");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

// === impl TlsFront ===

impl TlsFront {
    /// Listens on a free port of 127.0.0.1, in front of `to`.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(to: SocketAddr, config: ServerConfig) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    // Clients that do not believe us are none of the engine's business.
                    let _ = pass_on(acceptor, stream, to).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { addr, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `https://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(acceptor: TlsAcceptor, stream: TcpStream, to: SocketAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut outside = acceptor.accept(stream).await?;
    let mut inside = TcpStream::connect(to).await?;
    inside.set_nodelay(true)?;
    copy_bidirectional(&mut outside, &mut inside).await?;
    Ok(())
}
