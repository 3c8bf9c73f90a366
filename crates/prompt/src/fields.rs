//! Top-level fields of a request body, parsed on demand.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::Unrouted;
use crate::json::{self, Json, JsonError};

/// The fields a request shape reads; of duplicates, the last.
pub(crate) struct Fields<'a>(HashMap<&'static str, Field<'a>>);

/// A field as text, and as a value until someone takes it: long prompts are not copied.
struct Field<'a> {
    raw: &'a str,
    value: RefCell<Option<Result<Json, JsonError>>>,
}

impl<'a> Fields<'a> {
    /// Keeps the fields with these names. The whole body is checked.
    pub(crate) fn read(body: &'a [u8], names: &[&'static str]) -> Result<Self, Unrouted> {
        let text = crate::envelope::text(body).map_err(|e| Unrouted::Body(e.message))?;
        let mut fields = HashMap::new();
        let find = |key: &str| names.iter().find(|n| **n == key);
        json::wanted_fields(
            text,
            |key| find(key).is_some(),
            |key, raw, value| {
                if let Some(name) = find(key) {
                    fields.insert(*name, Field { raw, value: RefCell::new(Some(value)) });
                }
            },
        )
        .map_err(|e| {
            let (line, column) = json::position(body, e.offset);
            Unrouted::Body(format!("{} (line {line}, column {column})", e.message))
        })?;
        Ok(Self(fields))
    }

    /// A field's value; null counts as absent.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Json>, Unrouted> {
        Ok(self.any(name)?.filter(|v| *v != Json::Null))
    }

    /// A field's value, null included.
    fn any(&self, name: &str) -> Result<Option<Json>, Unrouted> {
        let Some(field) = self.0.get(name) else { return Ok(None) };
        let built = field.value.take().unwrap_or_else(|| json::parse(field.raw));
        built.map(Some).map_err(|e| Unrouted::Body(format!("`{name}`: {}", e.message)))
    }

    /// A boolean that may be absent but not null.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Unrouted> {
        match self.any(name)? {
            None => Ok(default),
            Some(value) => value.as_lax_bool().ok_or_else(|| wrong_type(name, "a boolean")),
        }
    }

    /// How the prompt's tokens are cut.
    pub(crate) fn truncation(&self) -> Result<Truncation, Unrouted> {
        let Some(value) = self.get("truncate_prompt_tokens")? else { return Ok(Truncation::None) };
        let side = self.get("truncation_side")?;
        let keep = value
            .as_lax_int()
            .filter(|k| *k >= -1)
            .ok_or_else(|| wrong_type("truncate_prompt_tokens", "an integer of at least -1"))?;
        let Ok(keep) = usize::try_from(keep) else {
            return Err(Unrouted::UnsupportedField(
                "`truncate_prompt_tokens` of -1 cuts at the engine's context length, which is not \
                 known here"
                    .to_owned(),
            ));
        };
        match side.as_ref().map(Json::as_str) {
            None => Ok(Truncation::Last { keep }),
            Some(Some("left")) => Ok(Truncation::SliceLeft { keep }),
            Some(Some("right")) => Ok(Truncation::SliceRight { keep }),
            Some(_) => Err(wrong_type("truncation_side", "\"left\" or \"right\"")),
        }
    }
}

/// `truncate_prompt_tokens` and `truncation_side` as vLLM 0.32 applies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truncation {
    None,
    /// No side given: the tokenizer drops the start of the text and then adds special tokens.
    Last {
        keep: usize,
    },
    /// No side given, in pooling: the end of the text is dropped.
    First {
        keep: usize,
    },
    /// Side given: the finished ids are cut, special tokens included.
    SliceLeft {
        keep: usize,
    },
    SliceRight {
        keep: usize,
    },
}

impl Truncation {
    /// Cuts finished token ids.
    pub(crate) fn cut(self, mut ids: Vec<u32>) -> Vec<u32> {
        match self {
            Self::None => {}
            Self::Last { keep } | Self::SliceLeft { keep } => {
                ids.drain(..ids.len().saturating_sub(keep));
            }
            Self::First { keep } | Self::SliceRight { keep } => ids.truncate(keep),
        }
        ids
    }
}

pub(crate) fn wrong_type(name: &str, want: &str) -> Unrouted {
    Unrouted::Body(format!("`{name}` must be {want}"))
}
