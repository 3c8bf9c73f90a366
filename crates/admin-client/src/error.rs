//! Why a question has no answer.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No connection: the gateway is not there.
    #[error("cannot connect to {url}: {why}")]
    Connect {
        /// Where it was looked for.
        url: String,
        /// Why, for people.
        why: String,
    },
    /// No complete answer in time.
    #[error("no answer of {url} within {} s", .after.as_secs())]
    Timeout {
        /// Who was asked.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// The connection broke, or the answer is larger than any of the API.
    #[error("broken answer of {url}: {why}")]
    Broken {
        /// Who was asked.
        url: String,
        /// Why, for people.
        why: String,
    },
    /// Something else than an admin API answers.
    #[error("{url} is no admin API: {why}")]
    NotAdmin {
        /// Who was asked.
        url: String,
        /// What it answered.
        why: String,
    },
    /// The API has no such route.
    #[error("the gateway at {url} (version {version}) has no {route}")]
    NoRoute {
        /// Who was asked.
        url: String,
        /// Method and path.
        route: String,
        /// The gateway's version.
        version: String,
    },
    /// The API says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", .field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct Refusal {
    /// The answer's status.
    pub status: StatusCode,
    /// A word for programs.
    pub code: String,
    /// What is wrong, for people.
    pub message: String,
    /// The field of what was sent that is to blame.
    pub field: Option<String>,
}

impl Refusal {
    /// The error that an answer tells, if it is one of the API.
    pub(crate) fn of(status: StatusCode, body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let error = body.get("error")?.as_object()?;
        let text = |key: &str| error.get(key)?.as_str().map(str::to_owned);
        // Errors in OpenAI's shape have a type: who asks a gateway's other port gets those.
        if error.contains_key("type") {
            return None;
        }
        let (code, message) = (text("code")?, text("message")?);
        Some(Self { status, code, message, field: text("field") })
    }
}

impl AskError {
    /// What the API said, if it said no.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}
