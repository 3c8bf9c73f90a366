//! Refusals, in vLLM's form.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// A request that is not served, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    kind: &'static str,
    param: Option<&'static str>,
    message: String,
}

impl Refusal {
    /// 400.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message)
    }

    /// 400 because of a parameter's value, which vLLM appends to the message.
    pub(super) fn value(
        param: &'static str,
        value: impl std::fmt::Display,
        message: impl std::fmt::Display,
    ) -> Self {
        Self::bad(format!("{message} (parameter={param}, value={value})")).of(param)
    }

    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, param: None, message: message.into() }
    }

    /// 500 in the words of vLLM for a request that failed inside the engine.
    pub(super) fn internal() -> Self {
        let message = "Internal server error";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
    }

    /// The parameter that is to blame.
    pub(super) fn of(self, param: &'static str) -> Self {
        Self { param: Some(param), ..self }
    }

    /// The engine's queue is full.
    pub(super) fn busy() -> Self {
        let message = "The engine's queue of waiting requests is full.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", message)
    }

    /// `{"error": {..}}`.
    pub(super) fn to_json(&self) -> Value {
        let Self { status, kind, param, message } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": status.as_u16()}})
    }

    /// The answer.
    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        json_response(self.status, &self.to_json())
    }
}

/// An answer of JSON.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
