//! A request's body with its fields marked: it is read once, and every leg's body is copied from it.

use bytes::Bytes;
use kvasir_prompt::{Edit, Marks, MarksError};

/// The client's body, a JSON object.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    body: Bytes,
    marks: Marks,
}

impl Request {
    /// Reads it.
    ///
    /// # Errors
    /// Those of [`Marks::of`].
    pub(crate) fn read(body: Bytes) -> Result<Self, MarksError> {
        let marks = Marks::of(&body)?;
        Ok(Self { body, marks })
    }

    /// The raw JSON of a field.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.marks.get(&self.body, key)
    }

    /// Whether there is such a field, with anything but `null`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.marks.has(&self.body, key)
    }

    /// The body with the changes made.
    pub(super) fn edited(&self, edit: &Edit) -> Bytes {
        self.marks.edited(&self.body, edit).into()
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }
}
