//! Certificates made for one test, and the client's side of TLS with them.

#![expect(clippy::unwrap_used, reason = "a test without certificates may stop at once")]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

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
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Its own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
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
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.pem)).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { cert, key }) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate(cert)], key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}
