//! TLS to engines: whom to believe, and how to show who we are.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvasir_files::read_small_file;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The largest file: far more than all public authorities.
const MOST_FILE_BYTES: usize = 8 << 20;

/// Where TLS's parts are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities that are believed, PEM. Without it those of the system.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its chain, PEM, for engines that ask who we are.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// The name that the engine's certificate must have, in place of the host in its URL.
    pub server_name: Option<String>,
    /// Believe any certificate: encrypted, but to whomever answers.
    pub insecure_skip_verify: bool,
}

/// What is wrong with TLS's parts.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("{key}: cannot read {}: {why}", .path.display())]
    File {
        /// The configuration key it was given under.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file without what it should hold.
    #[error("{key}: {} has no {what}", .path.display())]
    Empty {
        /// The configuration key it was given under.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// Of certificate and key only one is given.
    #[error("`cert_file` and `key_file` go together")]
    Half,
    /// A name that no certificate can have.
    #[error("server_name: `{0}` is no host name")]
    Name(String),
    /// The system has no certificates.
    #[error("the system has no certificates of authorities ({0}): give `ca_file`")]
    NoRoots(String),
    /// Certificate and key do not fit, or cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// TLS's parts, read and ready. Cheap to clone.
#[derive(Clone)]
pub struct Tls(Arc<Parts>);

struct Parts {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
    /// Of the settings and of what the files held.
    digest: u64,
}

// === impl Tls ===

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read or used, by its configuration key.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let mut digest = DefaultHasher::new();
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Unusable(error.to_string()))?;
        let builder = if files.insecure_skip_verify {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        } else {
            let roots = Arc::new(roots(files.ca_file.as_deref(), &mut digest)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| TlsError::Unusable(error.to_string()))?;
            builder.with_webpki_verifier(verifier)
        };
        let mut http1 = match (&files.cert_file, &files.key_file) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates("cert_file", cert, &mut digest)?;
                builder
                    .with_client_auth_cert(chain, private_key(key, &mut digest)?)
                    .map_err(|error| TlsError::Unusable(format!("cert_file, key_file: {error}")))?
            }
            _ => return Err(TlsError::Half),
        };
        let name = files.server_name.as_ref().map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name.clone()))
        });
        let mut http2 = http1.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        http2.alpn_protocols = vec![b"h2".to_vec()];
        (&files.server_name, files.insecure_skip_verify).hash(&mut digest);
        Ok(Self(Arc::new(Parts {
            http1: Arc::new(http1),
            http2: Arc::new(http2),
            name: name.transpose()?,
            digest: digest.finish(),
        })))
    }

    /// What shakes hands with the server, for h2 or for HTTP/1.1.
    #[must_use]
    pub fn config(&self, http2: bool) -> Arc<ClientConfig> {
        Arc::clone(if http2 { &self.0.http2 } else { &self.0.http1 })
    }

    /// The name the server at `host` must prove to have; `None` where that can be no name.
    #[must_use]
    pub fn name(&self, host: &str) -> Option<ServerName<'static>> {
        match &self.0.name {
            Some(name) => Some(name.clone()),
            None => ServerName::try_from(host.to_owned()).ok(),
        }
    }
}

/// Whether both were made of the same: files by what they hold.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.digest == other.0.digest
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.0.name).finish_non_exhaustive()
    }
}

fn read(key: &'static str, path: &Path, digest: &mut DefaultHasher) -> Result<Vec<u8>, TlsError> {
    let read = read_small_file(path, MOST_FILE_BYTES);
    let bytes = read.map_err(|error| unreadable(key, path, &error))?;
    (key, &bytes).hash(digest);
    Ok(bytes)
}

fn unreadable(key: &'static str, path: &Path, why: &dyn fmt::Display) -> TlsError {
    TlsError::File { key, path: path.to_owned(), why: why.to_string() }
}

fn certificates(
    key: &'static str,
    path: &Path,
    digest: &mut DefaultHasher,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(key, path, digest)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| unreadable(key, path, &error))?;
    if found.is_empty() {
        return Err(TlsError::Empty { key, path: path.to_owned(), what: "certificate" });
    }
    Ok(found)
}

fn private_key(
    path: &Path,
    digest: &mut DefaultHasher,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read("key_file", path, digest)?;
    let empty = |_| TlsError::Empty { key: "key_file", path: path.to_owned(), what: "private key" };
    PrivateKeyDer::from_pem_slice(&bytes).map_err(empty)
}

fn roots(ca_file: Option<&Path>, digest: &mut DefaultHasher) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        for certificate in certificates("ca_file", path, digest)? {
            roots.add(certificate).map_err(|error| unreadable("ca_file", path, &error))?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    // One bad certificate among a system's many is left out.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::NoRoots(why));
    }
    Ok(roots)
}

/// Believes every certificate, as `insecure_skip_verify` says.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
