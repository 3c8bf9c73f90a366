//! Which configuration somebody saw, so that a change is not made to another one: `etag` and `if-match`.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use kvasir_config::{Config, Overlay};
use sha2::{Digest as _, Sha256};

use crate::error::ApiError;

/// What tells one configuration, with its changes, from others; secrets are no part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version(Arc<str>);

/// The configurations a change may be made to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected(Option<Vec<String>>);

impl Version {
    pub(crate) fn of(config: &Config, overlay: &Overlay) -> Self {
        let mut digest = Sha256::new();
        // Neither is known to fail.
        digest.update(serde_json::to_vec(config).unwrap_or_default());
        digest.update(serde_json::to_vec(overlay).unwrap_or_default());
        let hex = |byte: &u8| format!("{byte:02x}");
        let text: String = digest.finalize().iter().take(8).map(hex).collect();
        Self(format!("\"{text}\"").into())
    }

    /// For the header `etag`.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.0).ok()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Expected {
    /// What a request says: nothing, or `if-match`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut said = headers.get_all(header::IF_MATCH).iter().peekable();
        if said.peek().is_none() {
            return Self(None);
        }
        let texts = said.filter_map(|value| value.to_str().ok());
        let each: Vec<String> =
            texts.flat_map(|text| text.split(',')).map(|one| one.trim().to_owned()).collect();
        if each.iter().any(|one| one == "*") { Self(None) } else { Self(Some(each)) }
    }

    /// Whether it is this one.
    ///
    /// # Errors
    /// 412 where it is another.
    pub fn check(&self, version: &Version) -> Result<(), ApiError> {
        match &self.0 {
            Some(each) if !each.iter().any(|one| **one == *version.0) => {
                let why = format!("the configuration is another by now: {version}");
                Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "changed", why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_held_against_what_is() {
        let version = Version::of(&Config::default(), &Overlay::default());
        let other = Config { max_body_bytes: 7, ..Config::default() };
        assert_ne!(version, Version::of(&other, &Overlay::default()));
        let expects = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, text.parse().unwrap());
            Expected::of(&headers).check(&version).is_ok()
        };
        assert!(expects(&version.to_string()) && expects("*"));
        assert!(expects(&format!("\"x\", {version}")));
        assert!(!expects("\"x\"") && !expects("") && !expects(&format!("W/{version}")));
        assert_eq!(Expected::of(&HeaderMap::new()).check(&version), Ok(()));
    }
}
