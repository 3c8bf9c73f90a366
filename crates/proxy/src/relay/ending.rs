//! How a stream that cannot be completed ends: with an error event in the form its API has for them.

use bytes::Bytes;
use kvasir_prompt::Api;
use serde_json::{Value, json};

use crate::fault::Fault;

/// Why an answer that had begun was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The connection to the engine broke, or what came is not HTTP.
    Broke,
    /// The engine sent nothing for too long.
    Idle,
    /// The request took longer than a request may.
    Deadline,
    /// The engine ended its stream in order, without the event that ends an answer.
    NoDone,
    /// The gateway stops, and the answer was not over in the time it gives.
    Stopping,
}

impl Break {
    /// The word used for causes in metrics, as those of attempts that failed before an answer began.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Broke => "broke",
            Self::NoDone => "no_done",
            Self::Idle | Self::Deadline | Self::Stopping => self.code(),
        }
    }

    /// The `code` of the error, which is also the request's outcome.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Broke => "engine_broke_off",
            Self::Idle => "idle_timeout",
            Self::Deadline => "request_timeout",
            Self::NoDone => "incomplete_stream",
            Self::Stopping => "stopping",
        }
    }

    /// Whose fault it is.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Broke | Self::Idle | Self::Deadline | Self::NoDone => Fault::Engine,
            Self::Stopping => Fault::Gateway,
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Broke => "the engine broke off in the middle of its answer",
            Self::Idle => "the engine sent nothing more of its answer for too long",
            Self::Deadline => "the answer took longer than a request may take",
            Self::NoDone => "the engine ended its answer before it was complete",
            Self::Stopping => "the gateway stops before the answer is complete",
        }
    }
}

/// The error event of a stream. `sequence` is the number of the next event of `/v1/responses`, where
/// it is known.
pub(super) fn error_event(api: Option<Api>, why: Break, sequence: Option<u64>) -> Bytes {
    let (code, message) = (why.code(), why.message());
    let text = match api {
        Some(Api::Responses) => named(&json!({
            "type": "error", "code": code, "message": message, "param": null,
            "sequence_number": sequence,
        })),
        Some(Api::Messages) => named(&json!({
            "type": "error", "error": { "type": "api_error", "message": message },
        })),
        _ => {
            let error = json!({
                "message": message, "type": "server_error", "param": null, "code": code,
            });
            format!("data: {}\n\n", json!({ "error": error }))
        }
    };
    Bytes::from(text)
}

fn named(data: &Value) -> String {
    format!("event: error\ndata: {data}\n\n")
}
