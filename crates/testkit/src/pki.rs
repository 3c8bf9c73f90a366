//! Certificates made for one test, and both sides of TLS with them.

#![expect(clippy::unwrap_used, reason = "a test without certificates may stop at once")]

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// An authority that signs for tests.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate, in PEM.
    pub cert: String,
    /// Its private key, in PEM.
    pub key: String,
}

impl Identity {
    /// The certificate, in DER: what the peer sees of it.
    ///
    /// # Panics
    ///
    /// When it is no PEM.
    #[must_use]
    pub fn der(&self) -> Vec<u8> {
        certificate(&self.cert).to_vec()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new one, with a key of its own.
    ///
    /// # Panics
    ///
    /// When no certificate can be made.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // No two have one name, or a stranger would be taken for one that signs badly.
        let name: String = key.public_key_raw().iter().map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Its own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Itself as an identity, which no server may show.
    #[must_use]
    pub fn itself(&self) -> Identity {
        Identity { cert: self.pem.clone(), key: self.issuer.key().serialize_pem() }
    }

    /// An identity for these names, of servers and of clients.
    ///
    /// # Panics
    ///
    /// When a name is none.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Identity {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { cert, key: key.serialize_pem() }
    }

    /// A client that believes this authority, shows `identity`, and offers these protocols.
    ///
    /// # Panics
    ///
    /// When the certificates do not fit.
    #[must_use]
    pub fn client(&self, identity: Option<&Identity>, protocols: &[&str]) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.believed());
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { cert, key }) => {
                builder.with_client_auth_cert(vec![certificate(cert)], private_key(key)).unwrap()
            }
        };
        config.alpn_protocols = names(protocols);
        Arc::new(config)
    }

    fn believed(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.pem)).unwrap();
        roots
    }
}

/// A server that shows `identity` and offers these protocols. With `clients` it takes only those
/// with a certificate of that authority.
///
/// # Panics
///
/// When the certificates do not fit.
#[must_use]
pub fn server_config(
    identity: &Identity,
    clients: Option<&Authority>,
    protocols: &[&str],
) -> ServerConfig {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(authority.believed());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let (cert, key) = (certificate(&identity.cert), private_key(&identity.key));
    let mut config = builder.with_single_cert(vec![cert], key).unwrap();
    config.alpn_protocols = names(protocols);
    config
}

fn names(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|name| name.as_bytes().to_vec()).collect()
}

fn private_key(pem: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}
