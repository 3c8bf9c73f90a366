//! The server's side of TLS, from PEM files: who it says it is, and whose clients it lets in.
//!
//! For every port that is listened on. It opens no sockets and follows no files: whoever holds the
//! configuration decides when it is read anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvasir_files::read_small_file;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// The largest file: far more than all public authorities.
const MOST_FILE_BYTES: usize = 8 << 20;

/// PEM files of the server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the server's own first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificate authorities; where given, clients must show a certificate of one of them.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// All of them.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}

/// What shakes hands by these files, for `protocols` as ALPN names them, the preferred one first.
///
/// # Errors
/// Which file is wrong, and why; where key and certificate are not of one pair, both.
pub fn server_config(files: &TlsFiles, protocols: &[&[u8]]) -> Result<ServerConfig, String> {
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
    let key = read(&files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| unusable(&files.key, &error, "private key"))?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        format!("{} with {}: {error}", files.cert.display(), files.key.display())
    })?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_small_file(path, MOST_FILE_BYTES)
        .map_err(|why| format!("cannot read {}: {why}", path.display()))
}

/// Why a file is of no use, where a `what` is looked for in it.
fn unusable(path: &Path, error: &pem::Error, what: &str) -> String {
    let name = path.display();
    match error {
        pem::Error::Io(why) => format!("cannot read {name}: {why}"),
        pem::Error::NoItemsFound => format!("{name}: no {what} in it"),
        other => format!("{name}: {other}"),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let name = path.display();
    let bytes = read(path)?;
    let wrong = |error| unusable(path, &error, "certificate");
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(wrong)?;
    if chain.is_empty() {
        return Err(format!("{name}: no certificate in it"));
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_not_read() {
        let zero = PathBuf::from("/dev/zero");
        let files = TlsFiles { cert: zero.clone(), key: zero, client_ca: None };
        let why = server_config(&files, &[]).unwrap_err();
        assert_eq!(why, "cannot read /dev/zero: is no regular file");
    }
}
