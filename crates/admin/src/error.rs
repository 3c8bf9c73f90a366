//! Answers that say no.

use http::StatusCode;
use kvasir_config::{Refused, RefusedFor};
use serde_json::{Value, json};

/// An error of the API: `{"error": {"code", "message", "field"?}}`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The answer's status.
    pub status: StatusCode,
    /// A word for programs.
    pub code: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// The field of what was sent that is to blame.
    pub field: Option<String>,
}

impl ApiError {
    /// An error without a field.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None }
    }

    /// A field that is not as it should be: 422.
    #[must_use]
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        let field = Some(field.to_owned());
        Self { field, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message) }
    }

    /// Something that is not there: 404.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// A body that is no JSON: 400.
    #[must_use]
    pub(crate) fn bad_json(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_json", message)
    }

    pub(crate) fn body(&self) -> Value {
        let Self { code, message, field, .. } = self;
        match field {
            Some(field) => json!({"error": {"code": code, "message": message, "field": field}}),
            None => json!({"error": {"code": code, "message": message}}),
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        let (status, code) = match refused.why {
            RefusedFor::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            RefusedFor::Conflict => (StatusCode::CONFLICT, "conflict"),
            RefusedFor::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
        };
        let Refused { field, message, .. } = refused;
        Self { status, code, message, field }
    }
}
