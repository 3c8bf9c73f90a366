//! JSON the way Python's `json` module reads it, since that is what the engines use.
//!
//! It differs from `serde_json` where it matters for token ids: `NaN`, `Infinity` and
//! `-Infinity` are values, integers have any size, `-0` is the integer 0, the last duplicate key
//! wins but keeps the first one's place. Skipping a value needs no recursion, so depth never
//! refuses a body; building one is bounded by [`MAX_DEPTH`].

mod build;
mod dumps;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use build::{parse, wanted_fields};
pub(crate) use dumps::{dumps, write_string};
pub(crate) use scan::{JsonError, Scanner, is_object, is_valid, position, top_level, walk};

/// Deepest nesting of a value that is built. pydantic refuses to serialise deeper tools.
pub(crate) const MAX_DEPTH: usize = 200;

/// Python refuses to convert longer integers.
pub(crate) const MAX_INT_DIGITS: usize = 4300;

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// An integer that fits.
    Int(i128),
    /// The digits of a longer integer.
    BigInt(String),
    Float(f64),
    Str(String),
    List(Vec<Json>),
    Dict(Dict),
}

/// An object in the order of its first keys. Lookups are linear: request objects are small, and
/// the parser uses an index of its own.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Dict(pub(crate) Vec<(String, Json)>);

impl Dict {
    pub(crate) fn get(&self, key: &str) -> Option<&Json> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The value under `key`, with null counting as absent.
    pub(crate) fn non_null(&self, key: &str) -> Option<&Json> {
        self.get(key).filter(|v| !matches!(v, Json::Null))
    }

    pub(crate) fn str(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Json::as_str)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Json> {
        let at = self.0.iter().position(|(k, _)| k == key)?;
        Some(self.0.remove(at).1)
    }

    /// Sets a key, in its old place if it exists.
    pub(crate) fn set(&mut self, key: &str, value: Json) {
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Moves `first` to the front in that order, the rest keeps its order: what pydantic makes
    /// of a `TypedDict` that allows extra keys.
    pub(crate) fn declared_first(mut self, first: &[&str]) -> Self {
        let mut out = Vec::with_capacity(self.0.len());
        for name in first {
            if let Some(at) = self.0.iter().position(|(k, _)| k == name) {
                out.push(self.0.remove(at));
            }
        }
        out.append(&mut self.0);
        Self(out)
    }
}

impl Json {
    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Self::Str(s) = self { Some(s) } else { None }
    }

    pub(crate) fn as_dict(&self) -> Option<&Dict> {
        if let Self::Dict(d) = self { Some(d) } else { None }
    }

    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(l) = self { Some(l) } else { None }
    }

    /// A boolean as pydantic's lax mode reads it.
    pub(crate) fn as_lax_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            Self::Int(0) => Some(false),
            Self::Int(1) => Some(true),
            Self::Float(f) if *f == 0.0 => Some(false),
            Self::Float(f) if *f == 1.0 => Some(true),
            Self::Str(s) => match s.to_ascii_lowercase().as_str() {
                "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
                "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
                _ => None,
            },
            _ => None,
        }
    }

    /// An integer, also when written as a float without fraction.
    pub(crate) fn as_lax_int(&self) -> Option<i128> {
        match self {
            Self::Int(i) => Some(*i),
            // Above 2^53 a float is no exact count of anything.
            Self::Float(f) if f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0 => {
                Some(*f as i128)
            }
            _ => None,
        }
    }

    /// Python's truth value.
    pub(crate) fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(b) => *b,
            Self::Int(i) => *i != 0,
            Self::BigInt(_) => true,
            Self::Float(f) => *f != 0.0,
            Self::Str(s) => !s.is_empty(),
            Self::List(l) => !l.is_empty(),
            Self::Dict(d) => !d.0.is_empty(),
        }
    }
}
