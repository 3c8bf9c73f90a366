//! Answers of our own that say no, in the shape of OpenAI's errors.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::fault::Fault;
use crate::relay::{AnswerBody, Break, whole};
use crate::split::{DECODE_DIED, Leg, PAIR_FAILED, PAIR_TIMEOUT, PREFILL_DIED, SEVERAL_ANSWERS};

/// The code of the error where an engine broke off.
pub(crate) const ENGINE_BROKE: &str = Break::Broke.code();

/// Why a request is not forwarded, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request's head is not what it should be.
    BadHead(String),
    /// It has more header lines than allowed.
    TooManyHeaders { limit: usize },
    /// It is longer than allowed.
    HeadTooLarge { limit: usize },
    /// It expects something that is not known.
    Expectation,
    /// Its body is coded in a way that is not known.
    TransferCoding,
    /// It shows no API key, or one that is not known.
    Unauthorized { shown: bool },
    /// The body is not what it should be.
    Malformed(String),
    /// The body is larger than allowed.
    TooLarge { limit: usize },
    /// The body did not arrive in time.
    SlowBody,
    /// The body broke off.
    BodyBroke,
    /// No model is named and there are several.
    NoModel,
    /// The model is not served here.
    UnknownModel(String),
    /// More answers than one are asked for of a model whose engines can hand over a prompt for one
    /// alone.
    SeveralAnswers(String),
    /// No such path.
    NoSuchPath(String),
    /// The path exists, the method does not.
    WrongMethod { method: String, allow: &'static str },
    /// No engine was found yet.
    NotReady,
    /// No engine of the pool can be reached.
    NoEndpoint { model: String, code: &'static str, why: String, fault: Fault },
    /// There is no room for it now. `code` says whether it waited.
    Overloaded { model: String, code: &'static str, retry_after: Duration },
    /// An engine took the request and broke off before its answer was complete. `code` is the error's.
    EngineBroke { model: String, code: &'static str, why: String },
    /// An engine took the request, and a phase of it took too long. `phase` is the error's code.
    EngineLate { model: String, phase: &'static str, why: String },
}

/// The parts of an error object.
struct Parts {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    param: Option<&'static str>,
    message: String,
}

impl Refusal {
    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.parts().status
    }

    /// The word used in metrics and logs.
    pub(crate) fn code(&self) -> &'static str {
        self.parts().code
    }

    /// What is wrong, for people.
    pub(crate) fn message(&self) -> String {
        self.parts().message
    }

    /// The whole answer.
    pub(crate) fn response(&self) -> Response<AnswerBody> {
        let Parts { status, kind, code, param, message } = self.parts();
        let body = json!({
            "error": { "message": message, "type": kind, "param": param, "code": code }
        });
        let mut response = Response::new(whole(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Self::WrongMethod { allow, .. } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        // Where it ends was not clear either.
        if matches!(self, Self::BadHead(_) | Self::TransferCoding) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Self::Unauthorized { shown } = self {
            let challenge = match shown {
                true => "Bearer realm=\"kvasir\", error=\"invalid_token\"",
                false => "Bearer realm=\"kvasir\"",
            };
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(retry_after) = self.retry_after() {
            let seconds = retry_after.as_secs_f64().ceil().max(1.0);
            if let Ok(value) = HeaderValue::from_str(&format!("{seconds:.0}")) {
                headers.insert(header::RETRY_AFTER, value);
            }
        }
        response
    }

    /// Whose fault it is.
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Self::BadHead(_)
            | Self::TooManyHeaders { .. }
            | Self::HeadTooLarge { .. }
            | Self::Expectation
            | Self::TransferCoding
            | Self::Unauthorized { .. }
            | Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::SlowBody
            | Self::BodyBroke
            | Self::NoModel
            | Self::UnknownModel(_)
            | Self::SeveralAnswers(_)
            | Self::NoSuchPath(_)
            | Self::WrongMethod { .. } => Fault::Client,
            Self::Overloaded { .. } => Fault::Gateway,
            Self::NoEndpoint { fault, .. } => *fault,
            Self::NotReady | Self::EngineBroke { .. } | Self::EngineLate { .. } => Fault::Engine,
        }
    }

    /// When the same request may do better, where no engine got it: what one did with it, it may do
    /// again.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after, .. } => Some(*retry_after),
            Self::NotReady | Self::NoEndpoint { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    fn parts(&self) -> Parts {
        let kind = match self.fault() {
            Fault::Client => "invalid_request_error",
            Fault::Engine => "server_error",
            Fault::Gateway => "rate_limit_error",
        };
        let client = |status, code, param, message| Parts { status, kind, code, param, message };
        let server = |status, code, message| Parts { status, kind, code, param: None, message };
        match self {
            Self::BadHead(why) => {
                client(StatusCode::BAD_REQUEST, "invalid_request", None, why.clone())
            }
            Self::TooManyHeaders { limit } => client(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "too_many_headers",
                None,
                format!("the request has more than the {limit} header lines allowed"),
            ),
            Self::HeadTooLarge { limit } => client(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head_too_large",
                None,
                format!("the request's head is longer than the {limit} bytes allowed"),
            ),
            Self::Expectation => client(
                StatusCode::EXPECTATION_FAILED,
                "unknown_expectation",
                None,
                "`100-continue` is the only expectation that is known".to_owned(),
            ),
            Self::TransferCoding => client(
                StatusCode::NOT_IMPLEMENTED,
                "unknown_transfer_coding",
                None,
                "`chunked` is the only transfer coding that is known".to_owned(),
            ),
            Self::Unauthorized { shown } => client(
                StatusCode::UNAUTHORIZED,
                "invalid_api_key",
                None,
                match shown {
                    true => "the API key is not known here".to_owned(),
                    false => "an API key is needed: `Authorization: Bearer KEY`, or `x-api-key: KEY`"
                        .to_owned(),
                },
            ),
            Self::Malformed(why) => {
                client(StatusCode::BAD_REQUEST, "invalid_body", None, why.clone())
            }
            Self::TooLarge { limit } => client(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                None,
                format!("the request body is larger than the {limit} bytes allowed"),
            ),
            Self::SlowBody => client(
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                None,
                "the request body did not arrive in time".to_owned(),
            ),
            Self::BodyBroke => client(
                StatusCode::BAD_REQUEST,
                "incomplete_body",
                None,
                "the request body broke off".to_owned(),
            ),
            Self::NoModel => client(
                StatusCode::BAD_REQUEST,
                "model_required",
                Some("model"),
                "`model` is missing (it may also be named in the header `X-Model`), and several models \
                 are served here"
                    .to_owned(),
            ),
            Self::UnknownModel(model) => client(
                StatusCode::NOT_FOUND,
                "model_not_found",
                Some("model"),
                format!("the model `{model}` is not served here"),
            ),
            Self::SeveralAnswers(model) => client(
                StatusCode::BAD_REQUEST,
                SEVERAL_ANSWERS,
                Some("n"),
                format!(
                    "`{model}` gives one answer to a request: its engines hand a prompt over for one \
                     alone (SGLang), and there is none that could serve `n`, `best_of` or a beam search by \
                     itself"
                ),
            ),
            Self::NoSuchPath(path) => client(
                StatusCode::NOT_FOUND,
                "unknown_path",
                None,
                format!("there is no `{path}` here"),
            ),
            Self::WrongMethod { method, allow } => client(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                None,
                format!("{method} is not allowed here, only {allow}"),
            ),
            Self::NotReady => server(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_ready",
                "no engine has answered yet".to_owned(),
            ),
            Self::NoEndpoint { model, code, why, fault: _ } => server(
                StatusCode::SERVICE_UNAVAILABLE,
                code,
                format!("no engine takes requests for `{model}` now: {why}"),
            ),
            Self::Overloaded { model, code, .. } => server(
                StatusCode::TOO_MANY_REQUESTS,
                code,
                match *code {
                    "queue_full" => format!("too many requests wait for `{model}` already"),
                    "queue_timeout" => format!("there was no room at `{model}` in time"),
                    _ => format!("the engines serving `{model}` have as much to do as they may"),
                },
            ),
            Self::EngineLate { model, phase, why } => server(
                StatusCode::GATEWAY_TIMEOUT,
                phase,
                format!("{} serving `{model}` was too slow: {why}", who(phase)),
            ),
            Self::EngineBroke { model, code, why } => server(
                StatusCode::BAD_GATEWAY,
                code,
                match *code {
                    PAIR_FAILED => format!("{} serving `{model}` failed: {why}", who(code)),
                    _ => format!(
                        "{} serving `{model}` broke off before its answer was complete: {why}",
                        who(code)
                    ),
                },
            ),
        }
    }
}

/// Whose part it was, by the error's code.
fn who(code: &str) -> &'static str {
    match code {
        PREFILL_DIED => "the prefill engine",
        DECODE_DIED => "the decode engine",
        PAIR_FAILED | PAIR_TIMEOUT => "the pair of engines",
        _ if code == Leg::Prefill.timeout() => "the prefill engine",
        _ if code == Leg::Decode.timeout() => "the decode engine",
        _ => "the engine",
    }
}
