//! Questions to an engine's `POST /tokenize`.

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use kvasir_fleet::EngineKind;
use kvasir_prompt::Api;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Own;
use crate::facts::Facts;
use crate::shown::shown;
use crate::target::Target;

/// What the engine makes of one case.
#[derive(Debug)]
pub(super) enum Answer {
    /// Its token ids.
    Ids(Vec<u32>),
    /// It refuses the request, in these words.
    Refused(String),
}

/// Why there is no comparing with this engine.
#[derive(Clone, Debug)]
pub(super) enum Unanswered {
    /// There is no `/tokenize`, or not for this.
    Missing(String),
    /// It wants a key.
    Forbidden(StatusCode),
    /// It broke off, was late, or answered something else.
    Broken(String),
    /// This side failed.
    Own(String),
}

impl Unanswered {
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Missing(_) => {
                "let POST /tokenize through to the engine, or compare usage.prompt_tokens of a \
                 request with the gateway's count"
            }
            Self::Forbidden(_) => "give the engine's key: --header 'authorization: Bearer KEY'",
            Self::Own(_) => "report it with the model's name",
            Self::Broken(_) => "see the engine's log, and try again",
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) => write!(f, "the engine has no /tokenize for it ({why})"),
            Self::Forbidden(status) => write!(f, "POST /tokenize answers {status}"),
            Self::Own(why) => write!(f, "own tokens cannot be made: {}", shown(why)),
            Self::Broken(why) => write!(f, "POST /tokenize: {why}"),
        }
    }
}

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<u32>,
}

/// Asks for the tokens of one case.
pub(super) async fn tokenize(
    target: &Target,
    facts: &Facts,
    api: Api,
    own: &Own,
) -> Result<Answer, Unanswered> {
    let body = match (facts.kind, api) {
        (EngineKind::LlamaCpp, _) => {
            json!({"content": own.case.prompt().unwrap_or_default(), "add_special": true, "parse_special": true})
                .to_string()
                .into()
        }
        _ => Bytes::copy_from_slice(&own.body),
    };
    let sent = facts.client.post_json(&facts.origin, "/tokenize", body, target.patience).await;
    let (status, body) = sent.map_err(|error| Unanswered::Broken(error.to_string()))?;
    match status {
        StatusCode::OK => match serde_json::from_slice::<Tokens>(&body) {
            Ok(answer) => Ok(Answer::Ids(answer.tokens)),
            Err(error) => Err(Unanswered::Broken(format!("no token ids in the answer: {error}"))),
        },
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Err(Unanswered::Missing(format!("{status}: {}", message(&body))))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Unanswered::Forbidden(status)),
        // Old releases of vLLM answer 500 where a template raises an exception.
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY
        | StatusCode::INTERNAL_SERVER_ERROR => {
            Ok(Answer::Refused(format!("{status}: {}", message(&body))))
        }
        _ => Err(Unanswered::Broken(format!("{status}: {}", message(&body)))),
    }
}

/// The message of an error body, in any of the forms engines use.
fn message(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let told = parsed.as_ref().and_then(|value| {
        let error = value.get("error");
        let message = error.and_then(|error| error.get("message"));
        message.or(value.get("message")).or(value.get("detail")).or(error)
    });
    match told {
        Some(Value::String(text)) => shown(text),
        Some(other) => shown(&other.to_string()),
        None => shown(&String::from_utf8_lossy(body)),
    }
}
