//! Paths of the API, with names and values of a query escaped.

use std::fmt::{self, Write as _};

/// The path and query of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiPath {
    text: String,
    has_query: bool,
}

impl ApiPath {
    /// `/api/v1/` and these segments; what a segment must not contain is escaped.
    #[must_use]
    pub fn of(segments: &[&str]) -> Self {
        let mut text = "/api/v1".to_owned();
        for segment in segments {
            text.push('/');
            escape(&mut text, segment);
        }
        Self { text, has_query: false }
    }

    /// A path that is not below `/api/v1/`, taken as it is.
    #[must_use]
    pub fn plain(path: &str) -> Self {
        Self { text: path.to_owned(), has_query: path.contains('?') }
    }

    /// With a value in its query.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        escape(&mut self.text, name);
        self.text.push('=');
        escape(&mut self.text, value);
        self
    }

    /// As [`with`](Self::with) where there is a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Path and query as they are sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Without the query.
    pub(crate) fn path(&self) -> &str {
        self.text.split('?').next().unwrap_or_default()
    }
}

impl fmt::Display for ApiPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn escape(text: &mut String, part: &str) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_addresses_are_readable() {
        let path = ApiPath::of(&["pools", "org/m é", "endpoints", "[::1]:80#1"]);
        let expected = "/api/v1/pools/org%2Fm%20%C3%A9/endpoints/%5B::1%5D:80%231";
        assert_eq!(path.as_str(), expected);
        let asked = path.with("a", "1&2").with_some("b", None).with_some("c", Some("/v1"));
        assert_eq!(asked.as_str(), format!("{expected}?a=1%262&c=%2Fv1"));
        assert_eq!(asked.path(), expected);
    }
}
