//! Names in a body of who asks, or of what belongs together.

use crate::json::{self, Json};

/// The longest name that counts, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// No name that counts takes more as JSON text: quotes, and every byte escaped.
const MAX_RAW_BYTES: usize = 2 + MAX_NAME_BYTES * r"\u0000".len();

/// A name, or why it does not count. The engine gets it in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Name {
    /// The field is missing, null or empty.
    #[default]
    Absent,
    /// The name.
    Text(String),
    /// The field is no text.
    NotText,
    /// It is longer than [`MAX_NAME_BYTES`].
    TooLong,
}

/// The fields of `OpenAI`'s API that name something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// `user`.
    pub user: Name,
    /// `safety_identifier`.
    pub safety_identifier: Name,
    /// `prompt_cache_key`.
    pub prompt_cache_key: Name,
}

impl Name {
    /// Reads a field's raw text.
    pub(crate) fn read(raw: Option<&str>) -> Self {
        let Some(raw) = raw else { return Self::Absent };
        if !raw.starts_with('"') {
            return if raw == "null" { Self::Absent } else { Self::NotText };
        }
        if raw.len() > MAX_RAW_BYTES {
            return Self::TooLong;
        }
        match json::parse(raw) {
            Ok(Json::Str(text)) if text.is_empty() => Self::Absent,
            Ok(Json::Str(text)) if text.len() > MAX_NAME_BYTES => Self::TooLong,
            Ok(Json::Str(text)) => Self::Text(text),
            _ => Self::NotText,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_a_name() {
        let text = |text: &str| Name::Text(text.to_owned());
        let quoted = |text: String| Name::read(Some(&format!("\"{text}\"")));
        assert_eq!(Name::read(None), Name::Absent);
        assert_eq!(Name::read(Some("null")), Name::Absent);
        assert_eq!(Name::read(Some(r#""""#)), Name::Absent);
        assert_eq!(Name::read(Some(r#""\u0061\n""#)), text("a\n"));
        for raw in ["7", "true", "[\"a\"]", "{}", "NaN", r#""\ud800""#] {
            assert_eq!(Name::read(Some(raw)), Name::NotText, "{raw}");
        }
        assert_eq!(quoted("a".repeat(256)), text(&"a".repeat(256)));
        assert_eq!(quoted("a".repeat(257)), Name::TooLong);
        assert_eq!(quoted(r"\u0061".repeat(256)), text(&"a".repeat(256)));
        assert_eq!(quoted(r"\u0061".repeat(257)), Name::TooLong);
        assert_eq!(quoted("ä".repeat(129)), Name::TooLong);
        assert_eq!(quoted("a".repeat(10_000_000)), Name::TooLong);
    }
}
