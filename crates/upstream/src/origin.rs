//! Where an engine is and how it is connected to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use http::uri::{Authority, Scheme};

use crate::tls::{Tls, TlsError, TlsFiles};

/// How many connections one engine may have, of each [`Upstream`](crate::Upstream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Kept for later requests.
    pub idle: usize,
    /// In all. Further requests wait for one.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { idle: 256, connections: 4096 }
    }
}

/// An engine's address, and how it is connected to. Cheap to clone; clones share connections, and
/// origins made separately do not, even where they are equal.
#[derive(Clone)]
pub struct Origin(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) url: String,
    pub(crate) authority: Authority,
    /// The host without an IPv6 address's brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) host_header: HeaderValue,
    pub(crate) tls: Option<Tls>,
    pub(crate) http2: bool,
    pub(crate) limits: Limits,
}

// === impl Origin ===

impl Origin {
    /// An engine at `http://authority`, or where there is `tls` `https://authority`. With `http2`
    /// it is spoken to in h2: agreed on within TLS, else taken for granted (prior knowledge).
    #[must_use]
    pub fn new(authority: Authority, tls: Option<Tls>, http2: bool, limits: Limits) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (scheme, usual) = if tls.is_some() { ("https", 443) } else { ("http", 80) };
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            url: format!("{scheme}://{authority}"),
            host: bare.unwrap_or(host).to_owned(),
            port: authority.port_u16().unwrap_or(usual),
            // An authority has only characters that a header may have.
            host_header: HeaderValue::from_str(authority.as_str())
                .unwrap_or_else(|_| HeaderValue::from_static("")),
            authority,
            tls,
            http2,
            limits: Limits { idle: limits.idle, connections: limits.connections.max(1) },
        }))
    }

    /// An engine at `http://authority`, or at `https://authority` by the system's authorities.
    ///
    /// # Errors
    /// When the system has none.
    pub fn at(authority: Authority, https: bool) -> Result<Self, TlsError> {
        let tls = https.then(|| Tls::load(&TlsFiles::default())).transpose()?;
        Ok(Self::new(authority, tls, false, Limits::default()))
    }

    /// `http://host:port` or `https://host:port`, used in headers, metrics and logs.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.0.authority
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.0.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

impl From<Authority> for Origin {
    /// Plain HTTP/1.1.
    fn from(authority: Authority) -> Self {
        Self::new(authority, None, false, Limits::default())
    }
}

/// Whether both are connected to in the same way.
impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        one.url == other.url
            && one.tls == other.tls
            && one.http2 == other.http2
            && one.limits == other.limits
    }
}

impl Eq for Origin {}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Origin").field(&self.0.url).finish()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.url)
    }
}
