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
use crate::json;

/// The text of a JSON object, with its fields marked.
#[derive(Debug, Clone)]
pub struct ObjectText<'a> {
    text: &'a str,
    fields: Vec<Field>,
    /// Behind the opening brace.
    inside: usize,
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
    /// Marks the fields of an object. A leading byte-order mark is no part of it.
    ///
    /// # Errors
    /// Malformed JSON, with its place, or JSON that is not an object.
    pub fn parse(body: &'a [u8]) -> Result<Self, BodyError> {
        let text = text(body)?;
        let mut fields = Vec::new();
        let walked = json::walk(text, |scanner, key, at| {
            let start = scanner.pos;
            scanner.skip()?;
            let value = start..scanner.pos;
            fields.push(Field { key: key.to_owned(), whole: at..value.end, value });
            Ok(())
        });
        walked.map_err(|e| BodyError::malformed(text.as_bytes(), &e))?;
        let inside = text.find('{').map_or(0, |at| at + 1);
        Ok(Self { text, fields, inside })
    }

    /// The raw JSON under a key; the last one's where there are several.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let field = self.fields.iter().rev().find(|field| field.key == key)?;
        self.text.get(field.value.clone())
    }

    /// Whether there is such a key, with anything but `null`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|raw| raw != "null")
    }

    /// The text with the changes made.
    #[must_use]
    pub fn edited(&self, edit: &Edit) -> String {
        let added: usize = edit.changes.iter().map(|(key, change)| key.len() + change.len()).sum();
        let mut out = String::with_capacity(self.text.len() + added + 8 * edit.changes.len());
        let change_of = |field: &Field| edit.of(&field.key);
        let is_removed = |field: &Field| matches!(change_of(field), Some(Change::Remove));
        // What was copied so far, and where the last field that stays ends.
        let mut copied = 0;
        let mut end = None;
        for (place, field) in self.fields.iter().enumerate() {
            if is_removed(field) {
                continue;
            }
            // Fields that went took the commas behind them along; those before the first one, too.
            let before = if place == 0 || !self.fields.get(place - 1).is_some_and(is_removed) {
                copied
            } else {
                let kept = if end.is_some() { self.comma_after(copied) } else { self.inside };
                self.copy(copied..kept, &mut out);
                field.whole.start
            };
            match change_of(field) {
                Some(Change::Set(raw) | Change::Replace(raw)) => {
                    self.copy(before..field.value.start, &mut out);
                    out.push_str(raw);
                }
                _ => self.copy(before..field.value.end, &mut out),
            }
            copied = field.value.end;
            end = Some(copied);
        }
        if end.is_none() {
            self.copy(0..self.inside, &mut out);
        }
        self.add(edit, end.is_some(), &mut out);
        let last = self.fields.last().map_or(self.inside, |field| field.whole.end);
        self.copy(last..self.text.len(), &mut out);
        out
    }

    /// What is new comes last.
    fn add(&self, edit: &Edit, mut follows: bool, out: &mut String) {
        for (key, change) in &edit.changes {
            let Change::Set(raw) = change else { continue };
            if self.fields.iter().any(|field| field.key == *key) {
                continue;
            }
            if std::mem::replace(&mut follows, true) {
                out.push(',');
            }
            json::write_string(key, false, out);
            out.push(':');
            out.push_str(raw);
        }
    }

    fn copy(&self, range: Range<usize>, out: &mut String) {
        out.push_str(self.text.get(range).unwrap_or_default());
    }

    /// Behind the comma that follows the value which ends here, and the white space after it.
    fn comma_after(&self, end: usize) -> usize {
        let bytes = self.text.as_bytes();
        let rest = bytes.get(end..).unwrap_or_default();
        let comma = rest.iter().position(|b| *b == b',').map_or(end, |at| end + at + 1);
        let after = bytes.get(comma..).unwrap_or_default();
        comma + after.iter().take_while(|b| b.is_ascii_whitespace()).count()
    }
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
