//! API keys of clients.

use std::fmt;
use std::hint::black_box;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use kvasir_tokens::TokenDigest;

/// The other header that keys come in.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The keys that open the data port, as digests: the keys themselves are not kept.
pub struct ClientKeys(ArcSwap<Vec<TokenDigest>>);

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.load().len())
    }
}

impl ClientKeys {
    /// These keys; without any nobody is let in.
    #[must_use]
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(ArcSwap::from_pointee(digests(keys)))
    }

    /// Other keys from now on.
    pub fn replace<'a>(&self, keys: impl IntoIterator<Item = &'a str>) {
        self.0.store(digests(keys).into());
    }

    /// Whether a request shows one of them; if not, whether it shows any.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Shown> {
        let shown = bearer(headers).or_else(|| headers.get(X_API_KEY).map(HeaderValue::as_bytes));
        let key = shown.filter(|key| !key.is_empty()).ok_or(Shown::None)?;
        if self.holds(key) { Ok(()) } else { Err(Shown::Unknown) }
    }

    /// Whether this is one of them. In constant time for a number of keys: all are looked at, whole.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        let digest = TokenDigest::of(key);
        let keys = self.0.load();
        keys.iter().fold(false, |found, known| found | black_box(*known == digest))
    }
}

/// What a request without a valid key shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// No key.
    None,
    /// A key that is not known.
    Unknown,
}

/// Takes the client's keys out of a request: they are for the gateway, not for engines.
pub(crate) fn take_out(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    headers.remove(X_API_KEY);
}

fn digests<'a>(keys: impl IntoIterator<Item = &'a str>) -> Vec<TokenDigest> {
    keys.into_iter().map(|key| TokenDigest::of(key.as_bytes())).collect()
}

/// The key of `authorization: Bearer …`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    kvasir_tokens::bearer(headers.get(header::AUTHORIZATION)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(keys: &ClientKeys, name: HeaderName, value: &str) -> Result<(), Shown> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        keys.check(&headers)
    }

    #[test]
    fn one_of_the_keys_in_either_header_is_enough() {
        let keys = ClientKeys::new(["first-key", "second-key"]);
        for value in ["Bearer first-key", "bearer second-key", "BEARER  first-key "] {
            assert_eq!(shows(&keys, header::AUTHORIZATION, value), Ok(()), "{value}");
        }
        assert_eq!(shows(&keys, X_API_KEY, "second-key"), Ok(()));
        for value in ["Bearer first-ke", "Bearer first-keyy", "Bearer FIRST-KEY"] {
            assert_eq!(shows(&keys, header::AUTHORIZATION, value), Err(Shown::Unknown), "{value}");
        }
        for value in ["Bearer ", "Bearer", "Basic Zmlyc3Q6a2V5", "first-key"] {
            assert_eq!(shows(&keys, header::AUTHORIZATION, value), Err(Shown::None), "{value}");
        }
        assert_eq!(keys.check(&HeaderMap::new()), Err(Shown::None));
    }

    #[test]
    fn a_wrong_bearer_is_not_mended_by_the_other_header() {
        let keys = ClientKeys::new(["first-key"]);
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer other"));
        headers.insert(X_API_KEY, HeaderValue::from_static("first-key"));
        assert_eq!(keys.check(&headers), Err(Shown::Unknown));
    }

    #[test]
    fn replaced_keys_are_gone_and_none_lets_nobody_in() {
        let keys = ClientKeys::new(["old-key"]);
        keys.replace(["new-key"]);
        assert_eq!(shows(&keys, X_API_KEY, "old-key"), Err(Shown::Unknown));
        assert_eq!(shows(&keys, X_API_KEY, "new-key"), Ok(()));
        keys.replace([]);
        assert_eq!(shows(&keys, X_API_KEY, "new-key"), Err(Shown::Unknown));
    }

    #[test]
    fn keys_do_not_show_themselves() {
        assert_eq!(format!("{:?}", ClientKeys::new(["secret-key"])), "1 keys");
    }
}
