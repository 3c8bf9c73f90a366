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
    /// The body's chunks are not what they should be.
    BadFraming(String),
    /// No model is named and there are several.
    NoModel,
    /// The model is not served here.
    UnknownModel(String),
    /// Nobody is known to keep this response, and it may be any of several models'.
    UnknownResponse(String),
    /// More answers than one are asked for of a model whose engines can hand over a prompt for one
    /// alone.
    SeveralAnswers(String),
    /// No such path.
    NoSuchPath(String),
    /// The path exists, the method does not.
    WrongMethod { method: String, allow: &'static str },
    /// No engine was found yet.
    NotReady,
    /// The gateway stops, and there is no time left for it.
    Stopping,
    /// No engine of the pool can be reached.
    NoEndpoint { model: String, code: &'static str, why: String, fault: Fault },
    /// There is no room for it now. `code` says whether it waited.
    Overloaded { model: String, code: &'static str, retry_after: Duration },
    /// An engine took the request and broke off before its answer was complete. `code` is the error's.
    EngineBroke { model: String, code: &'static str, why: String },
    /// An engine took the request, and a phase of it took too long. `phase` is the error's code.
    EngineLate { model: String, phase: &'static str, why: String },
}

impl Refusal {
    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status_and_code().0
    }

    /// The word used in metrics and logs.
    pub(crate) fn code(&self) -> &'static str {
        self.status_and_code().1
    }

    /// The whole answer.
    pub(crate) fn response(&self) -> Response<AnswerBody> {
        let (status, code) = self.status_and_code();
        let body = json!({
            "error": {
                "message": self.message(), "type": self.kind(), "param": self.param(), "code": code,
            }
        });
        let mut response = Response::new(whole(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Self::WrongMethod { allow, .. } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        // Where it ends was not clear either, or is farther away than anybody reads.
        if matches!(
            self,
            Self::BadHead(_) | Self::TransferCoding | Self::BadFraming(_) | Self::TooLarge { .. }
        ) {
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
            | Self::BadFraming(_)
            | Self::NoModel
            | Self::UnknownModel(_)
            | Self::UnknownResponse(_)
            | Self::SeveralAnswers(_)
            | Self::NoSuchPath(_)
            | Self::WrongMethod { .. } => Fault::Client,
            Self::Overloaded { .. } | Self::Stopping => Fault::Gateway,
            Self::NoEndpoint { fault, .. } => *fault,
            Self::NotReady | Self::EngineBroke { .. } | Self::EngineLate { .. } => Fault::Engine,
        }
    }

    /// When the same request may do better, where no engine got it: what one did with it, it may do
    /// again.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after, .. } => Some(*retry_after),
            Self::NotReady | Self::Stopping | Self::NoEndpoint { .. } => {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadHead(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
            Self::TooManyHeaders { .. } => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_many_headers")
            }
            Self::HeadTooLarge { .. } => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large")
            }
            Self::Expectation => (StatusCode::EXPECTATION_FAILED, "unknown_expectation"),
            Self::TransferCoding => (StatusCode::NOT_IMPLEMENTED, "unknown_transfer_coding"),
            Self::Unauthorized { .. } => (StatusCode::UNAUTHORIZED, "invalid_api_key"),
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, "invalid_body"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::SlowBody => (StatusCode::REQUEST_TIMEOUT, "body_timeout"),
            Self::BodyBroke => (StatusCode::BAD_REQUEST, "incomplete_body"),
            Self::BadFraming(_) => (StatusCode::BAD_REQUEST, "invalid_framing"),
            Self::NoModel => (StatusCode::BAD_REQUEST, "model_required"),
            Self::UnknownModel(_) => (StatusCode::NOT_FOUND, "model_not_found"),
            Self::UnknownResponse(_) => (StatusCode::NOT_FOUND, "response_not_found"),
            Self::SeveralAnswers(_) => (StatusCode::BAD_REQUEST, SEVERAL_ANSWERS),
            Self::NoSuchPath(_) => (StatusCode::NOT_FOUND, "unknown_path"),
            Self::WrongMethod { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, Break::Stopping.code()),
            Self::NoEndpoint { code, .. } => (StatusCode::SERVICE_UNAVAILABLE, code),
            Self::Overloaded { code, .. } => (StatusCode::TOO_MANY_REQUESTS, code),
            Self::EngineLate { phase, .. } => (StatusCode::GATEWAY_TIMEOUT, phase),
            Self::EngineBroke { code, .. } => (StatusCode::BAD_GATEWAY, code),
        }
    }

    /// The `type` of the error.
    fn kind(&self) -> &'static str {
        match self.fault() {
            Fault::Client => "invalid_request_error",
            Fault::Gateway if !matches!(self, Self::Stopping) => "rate_limit_error",
            Fault::Engine | Fault::Gateway => "server_error",
        }
    }

    /// The field of the body that is wrong, where it is one.
    fn param(&self) -> Option<&'static str> {
        match self {
            Self::NoModel | Self::UnknownModel(_) => Some("model"),
            Self::SeveralAnswers(_) => Some("n"),
            _ => None,
        }
    }

    /// What is wrong, for people.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::BadHead(why) | Self::Malformed(why) => why.clone(),
            Self::TooManyHeaders { limit } => {
                format!("the request has more than the {limit} header lines allowed")
            }
            Self::HeadTooLarge { limit } => {
                format!("the request's head is longer than the {limit} bytes allowed")
            }
            Self::Expectation => "`100-continue` is the only expectation that is known".to_owned(),
            Self::TransferCoding => {
                "`chunked` is the only transfer coding that is known".to_owned()
            }
            Self::Unauthorized { shown: true } => "the API key is not known here".to_owned(),
            Self::Unauthorized { shown: false } => KEY_NEEDED.to_owned(),
            Self::TooLarge { limit } => {
                format!("the request body is larger than the {limit} bytes allowed")
            }
            Self::SlowBody => "the request body did not arrive in time".to_owned(),
            Self::BodyBroke => "the request body broke off".to_owned(),
            Self::BadFraming(why) => format!("the request body's chunks cannot be read: {why}"),
            Self::NoModel => MODEL_NEEDED.to_owned(),
            Self::UnknownModel(model) => format!("the model `{model}` is not served here"),
            Self::UnknownResponse(id) => unknown_response(id),
            Self::SeveralAnswers(model) => several_answers(model),
            Self::NoSuchPath(path) => format!("there is no `{path}` here"),
            Self::WrongMethod { method, allow } => {
                format!("{method} is not allowed here, only {allow}")
            }
            Self::NotReady => "no engine has answered yet".to_owned(),
            Self::Stopping => "the gateway is stopping".to_owned(),
            Self::NoEndpoint { model, why, .. } => {
                format!("no engine takes requests for `{model}` now: {why}")
            }
            Self::Overloaded { model, code, .. } => no_room(model, code),
            Self::EngineLate { model, phase, why } => {
                format!("{} serving `{model}` was too slow: {why}", who(phase))
            }
            Self::EngineBroke { model, code, why } if *code == PAIR_FAILED => {
                format!("{} serving `{model}` failed: {why}", who(code))
            }
            Self::EngineBroke { model, code, why } => format!(
                "{} serving `{model}` broke off before its answer was complete: {why}",
                who(code)
            ),
        }
    }
}

const KEY_NEEDED: &str = "an API key is needed: `Authorization: Bearer KEY`, or `x-api-key: KEY`";
const MODEL_NEEDED: &str = "`model` is missing (it may also be named in the header `X-Model`), and \
                            several models are served here";

fn unknown_response(id: &str) -> String {
    format!(
        "no engine is known to keep the response `{id}`, and several models are served here: the header \
         `X-Model` can say which one's engines to ask"
    )
}

fn several_answers(model: &str) -> String {
    format!(
        "`{model}` gives one answer to a request: its engines hand a prompt over for one alone (SGLang), \
         and there is none that could serve `n`, `best_of` or a beam search by itself"
    )
}

fn no_room(model: &str, code: &str) -> String {
    match code {
        "queue_full" => format!("too many requests wait for `{model}` already"),
        "queue_timeout" => format!("there was no room at `{model}` in time"),
        _ => format!("the engines serving `{model}` have as much to do as they may"),
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
