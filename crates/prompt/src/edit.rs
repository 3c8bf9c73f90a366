//! Changing single fields of a JSON object, in its bytes: what is not named stays as it was written, white space,
//! order and the spelling of numbers included.
//!
//! A gateway that asks one engine to compute a prompt and another one for the answer has to say so in the
//! body, and must change nothing else of it. Keys are compared as they read, not as they are escaped. Of
//! duplicate keys the last counts, as in Python's `json`; a change concerns all of them.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::envelope::{BodyError, text};
use crate::json::{self, JsonError};

/// The most fields of an object that are marked: one with more is left alone, since marks take more room
/// than small fields do.
const MAX_FIELDS: usize = 16_384;

/// Where the fields of a JSON object are in its bytes: they are read once, and can be changed from then on
/// without being read again.
#[derive(Debug, Clone)]
pub struct Marks {
    /// Behind a byte-order mark.
    start: usize,
    fields: Vec<Field>,
    /// Behind the opening brace.
    inside: usize,
    end: usize,
}

/// Why an object's fields were not marked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarksError {
    /// It is malformed, or no object.
    #[error(transparent)]
    NotJson(#[from] BodyError),
    /// It has more fields than are marked.
    #[error("the object has more than {MAX_FIELDS} fields")]
    ManyFields,
}

/// The text of a JSON object, with its fields marked.
#[derive(Debug, Clone)]
pub struct ObjectText<'a> {
    body: &'a [u8],
    marks: Marks,
}

#[derive(Debug, Clone)]
struct Field {
    key: String,
    /// From the key's opening quote to behind the value.
    whole: Range<usize>,
    value: Range<usize>,
}

/// What is to become of the fields of an object. Later changes of one key replace earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    changes: Vec<(String, Change)>,
}

#[derive(Debug, Clone)]
enum Change {
    /// The raw JSON it has afterwards; added at the end where the key is new.
    Set(String),
    /// The same, but only where the key is there.
    Replace(String),
    Remove,
}

impl<'a> ObjectText<'a> {
    /// Marks the fields of an object, as [`Marks::of`] does.
    ///
    /// # Errors
    /// Those of [`Marks::of`].
    pub fn parse(body: &'a [u8]) -> Result<Self, MarksError> {
        Ok(Self { body, marks: Marks::of(body)? })
    }

    /// [`Marks::get`].
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.marks.get(self.body, key)
    }

    /// [`Marks::has`].
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.marks.has(self.body, key)
    }

    /// The text with the changes made.
    #[must_use]
    pub fn edited(&self, edit: &Edit) -> String {
        // Cut where values begin and end: it stays text.
        String::from_utf8(self.marks.edited(self.body, edit)).unwrap_or_default()
    }
}

impl Marks {
    /// Marks the fields of an object. A leading byte-order mark is no part of it.
    ///
    /// # Errors
    /// What is no object of JSON, or has too many fields.
    pub fn of(body: &[u8]) -> Result<Self, MarksError> {
        let text = text(body)?;
        let start = body.len() - text.len();
        let mut fields = Vec::new();
        let walked = json::walk(text, |scanner, key, at| {
            if fields.len() >= MAX_FIELDS {
                return Err(JsonError::refused("", at));
            }
            let from = start + scanner.pos;
            scanner.skip()?;
            let value = from..start + scanner.pos;
            fields.push(Field { key: key.to_owned(), whole: start + at..value.end, value });
            Ok(())
        });
        walked.map_err(|error| match error.malformed {
            true => MarksError::NotJson(BodyError::malformed(text.as_bytes(), &error)),
            false => MarksError::ManyFields,
        })?;
        let inside = start + text.find('{').map_or(0, |at| at + 1);
        Ok(Self { start, fields, inside, end: body.len() })
    }

    /// The raw JSON under a key, in the `body` that was marked; the last one's where there are several.
    #[must_use]
    pub fn get<'b>(&self, body: &'b [u8], key: &str) -> Option<&'b str> {
        let field = self.fields.iter().rev().find(|field| field.key == key)?;
        std::str::from_utf8(body.get(field.value.clone())?).ok()
    }

    /// Whether there is such a key, with anything but `null`.
    #[must_use]
    pub fn has(&self, body: &[u8], key: &str) -> bool {
        let field = self.fields.iter().rev().find(|field| field.key == key);
        field.is_some_and(|field| body.get(field.value.clone()) != Some(b"null"))
    }

    /// The `body` that was marked, with the changes made.
    #[must_use]
    pub fn edited(&self, body: &[u8], edit: &Edit) -> Vec<u8> {
        let added: usize = edit.changes.iter().map(|(key, change)| key.len() + change.len()).sum();
        let room = body.len() + added + 8 * edit.changes.len();
        let mut out = Copying { body, out: Vec::with_capacity(room) };
        let change_of = |field: &Field| edit.of(&field.key);
        let is_removed = |field: &Field| matches!(change_of(field), Some(Change::Remove));
        // What was copied so far, and where the last field that stays ends.
        let mut copied = self.start;
        let mut end = None;
        for (place, field) in self.fields.iter().enumerate() {
            if is_removed(field) {
                continue;
            }
            // Fields that went took the commas behind them along; those before the first one, too.
            let before = if place == 0 || !self.fields.get(place - 1).is_some_and(is_removed) {
                copied
            } else {
                let kept = if end.is_some() { comma_after(body, copied) } else { self.inside };
                out.copy(copied..kept);
                field.whole.start
            };
            match change_of(field) {
                Some(Change::Set(raw) | Change::Replace(raw)) => {
                    out.copy(before..field.value.start);
                    out.add(raw);
                }
                _ => out.copy(before..field.value.end),
            }
            copied = field.value.end;
            end = Some(copied);
        }
        if end.is_none() {
            out.copy(self.start..self.inside);
        }
        self.add(edit, end.is_some(), &mut out);
        let last = self.fields.last().map_or(self.inside, |field| field.whole.end);
        out.copy(last..self.end);
        out.out
    }

    /// What is new comes last.
    fn add(&self, edit: &Edit, mut follows: bool, out: &mut Copying<'_>) {
        for (key, change) in &edit.changes {
            let Change::Set(raw) = change else { continue };
            if self.fields.iter().any(|field| field.key == *key) {
                continue;
            }
            if std::mem::replace(&mut follows, true) {
                out.add(",");
            }
            let mut written = String::with_capacity(key.len() + 3);
            json::write_string(key, false, &mut written);
            out.add(&written);
            out.add(":");
            out.add(raw);
        }
    }
}

/// What is being made of a body.
struct Copying<'b> {
    body: &'b [u8],
    out: Vec<u8>,
}

impl Copying<'_> {
    fn copy(&mut self, range: Range<usize>) {
        self.out.extend_from_slice(self.body.get(range).unwrap_or_default());
    }

    fn add(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }
}

/// Behind the comma that follows the value which ends here, and the white space after it.
fn comma_after(body: &[u8], end: usize) -> usize {
    let rest = body.get(end..).unwrap_or_default();
    let comma = rest.iter().position(|b| *b == b',').map_or(end, |at| end + at + 1);
    let after = body.get(comma..).unwrap_or_default();
    comma + after.iter().take_while(|b| b.is_ascii_whitespace()).count()
}

impl Edit {
    /// Gives the field this value, raw JSON, and adds it where it is not there.
    #[must_use]
    pub fn set(self, key: &str, raw: impl Into<String>) -> Self {
        self.with(key, Change::Set(raw.into()))
    }

    /// Gives the field this value where it is there.
    #[must_use]
    pub fn replace(self, key: &str, raw: impl Into<String>) -> Self {
        self.with(key, Change::Replace(raw.into()))
    }

    /// Takes the field away.
    #[must_use]
    pub fn remove(self, key: &str) -> Self {
        self.with(key, Change::Remove)
    }

    fn with(mut self, key: &str, change: Change) -> Self {
        self.changes.retain(|(known, _)| known != key);
        self.changes.push((key.to_owned(), change));
        self
    }

    fn of(&self, key: &str) -> Option<&Change> {
        self.changes.iter().find(|(known, _)| known == key).map(|(_, change)| change)
    }
}

impl Change {
    fn len(&self) -> usize {
        match self {
            Self::Set(raw) | Self::Replace(raw) => raw.len(),
            Self::Remove => 0,
        }
    }
}

/// The raw JSON of a list's first entry; `None` where there is none, or it is no list.
#[must_use]
pub fn first_entry(list: &str) -> Option<&str> {
    let mut scanner = json::Scanner::new(list);
    scanner.space();
    scanner.expect(b'[', "").ok()?;
    scanner.space();
    let start = scanner.pos;
    scanner.skip().ok()?;
    list.get(start..scanner.pos)
}
