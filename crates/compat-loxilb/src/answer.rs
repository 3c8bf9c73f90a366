//! Answers and refusals in the reference's form.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

/// An answer.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The body or the query says what cannot be.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// What the reference has and Kvasir does not, or does otherwise.
    pub(crate) fn declined(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, text)
    }

    pub(crate) fn conflict(text: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, text)
    }

    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// As the reference writes it.
    pub(crate) fn answer(&self) -> Answer {
        let code = self.status.as_u16();
        json_answer(
            self.status,
            &json!({ "code": code, "message": self.text, "result": self.text }),
        )
    }
}

pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Answer {
    with_body(status, "application/json", body.to_string())
}

pub(crate) fn with_body(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    answer
}
