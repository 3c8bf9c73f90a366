//! What the parser of YAML says, in our words and with the key.

use serde_saphyr::Error;

use crate::error::{ConfigError, bounded};
use crate::places::Places;
use crate::suggest;

/// What is wrong with a text, where, and which key has it.
pub(crate) fn wrong(file: &str, text: &str, error: &Error) -> ConfigError {
    let place = error.location().map(|at| (at.line(), at.column()));
    let bare = error.without_snippet();
    let message = bounded(message(bare));
    let file = file.to_owned();
    // A text that cannot be parsed has no keys.
    let key = place.zip(Places::of(text)).and_then(|(place, places)| match bare {
        // It is of the whole section, not of the first key in it.
        Error::SerdeMissingField { .. } => places.section_at(place),
        _ => places.key_at(place),
    });
    match (bare, key) {
        // The message names it; it may have dots of its own.
        (Error::SerdeUnknownField { field, .. }, Some(key)) => {
            let before =
                key.strip_suffix(field.as_str()).map(|section| section.trim_end_matches('.'));
            match before.or_else(|| Some(key.rsplit_once('.')?.0)) {
                None | Some("") => ConfigError::Syntax { file, place, message },
                Some(section) => {
                    ConfigError::Meaning { file, place, key: section.to_owned(), message }
                }
            }
        }
        (_, Some(key)) => ConfigError::Meaning { file, place, key, message },
        (_, None) => ConfigError::Syntax { file, place, message },
    }
}

fn message(error: &Error) -> String {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            suggest::unknown("key", field, expected) + &nested(field, expected)
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            suggest::unknown("value", variant, expected)
        }
        Error::SerdeMissingField { field, .. } => format!("`{field}` is missing"),
        Error::InvalidScalar { ty, .. } => format!("must be {}", wanted(ty)),
        Error::Unexpected { expected, .. } => format!("must be {}", wanted(expected)),
        Error::ExpectedStringKeyForExternallyTaggedEnum { .. }
        | Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
        | Error::UnexpectedValueForUnitEnumVariant { .. } => {
            "must be one word, or a map of one word and its options".to_owned()
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` is there twice"),
        Error::DuplicateMappingKey { key: None, .. } => "a key is there twice".to_owned(),
        _ => {
            // The place is said once, in front.
            let text = error.to_string();
            suggest::with_hint(text.split(" at line ").next().unwrap_or_default())
        }
    }
}

/// What to do about a path in place of a key.
fn nested(field: &str, expected: &[&str]) -> String {
    match field.split_once('.') {
        Some((section, rest)) if expected.contains(&section) => {
            format!("; `{rest}` goes into the section `{section}`, as `{section}: {{{rest}: …}}`")
        }
        _ => String::new(),
    }
}

/// What a value should be, of the parser's words for it.
fn wanted(kind: &str) -> String {
    let known = match kind {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" | "floating point" => "a number",
        "boolean" | "bool" => "`true` or `false`",
        "sequence start" => "a list",
        "mapping start" => "a map",
        "string scalar" | "string" => "a text",
        other => return other.to_owned(),
    };
    known.to_owned()
}
