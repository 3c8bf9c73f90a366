//! Writes lines, bounded, without secrets.

use std::io::{self, Write};

use http::HeaderMap;
use serde_json::Value;

/// What a recording may have.
const MAX_BYTES: u64 = 1 << 30;
/// Shorter values would blot out half of a recording; secrets are longer.
const SHORTEST_SECRET: usize = 8;
const BLOT: &str = "[redacted]";

/// Writes one object a line.
#[derive(Debug)]
pub(super) struct LineWriter<W> {
    out: W,
    /// As they would be written, longest first.
    secrets: Vec<String>,
    bytes: u64,
}

impl<W: Write> LineWriter<W> {
    /// The values of `headers` are secrets, and so are the words in them (`Bearer KEY`).
    pub(super) fn new(out: W, headers: &HeaderMap) -> Self {
        let values = headers.values().filter_map(|value| value.to_str().ok());
        let words = values.flat_map(|value| std::iter::once(value).chain(value.split(' ')));
        let long = words.filter(|word| word.len() >= SHORTEST_SECRET);
        let mut secrets: Vec<String> = long.map(escaped).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { out, secrets, bytes: 0 }
    }

    /// Writes a whole line, at once.
    pub(super) fn write(&mut self, line: &Value) -> io::Result<()> {
        let mut text = line.to_string();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), BLOT);
            }
        }
        text.push('\n');
        self.bytes += text.len() as u64;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether no more should be written than what ends the recording.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }
}

/// Text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.trim_start_matches('"').trim_end_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_that_is_repeated_is_blotted_out() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer sk-12\"34567"));
        headers.insert("x-short", HeaderValue::from_static("a"));
        let mut out = Vec::new();
        let mut writer = LineWriter::new(&mut out, &headers);
        writer
            .write(&json!({"said": "no key sk-12\"34567 here", "a": "Bearer sk-12\"34567"}))
            .unwrap();
        assert!(!writer.is_full());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\"said\":\"no key [redacted] here\",\"a\":\"[redacted]\"}\n");
    }
}
