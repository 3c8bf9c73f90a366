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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_page_has_a_word_for_every_end_and_every_exclusion() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../admin/src/page/words.js");
        let script = std::fs::read_to_string(path).unwrap();
        let table = |name: &str| {
            let (_, rest) = script.split_once(&format!("const {name} = {{\n")).unwrap();
            let lines = rest.lines().take_while(|line| *line != "};");
            let words = lines.map(|line| line.trim().split_once(": ").unwrap().0.to_owned());
            words.collect::<std::collections::BTreeSet<_>>()
        };
        let breaks = [Break::Broke, Break::Idle, Break::Deadline, Break::NoDone, Break::Stopping];
        let mut ends: Vec<&str> = breaks.map(Break::code).to_vec();
        // A match without a rest: whoever adds a break comes by here.
        let place = |why| match why {
            Break::Broke => 0,
            Break::Idle => 1,
            Break::Deadline => 2,
            Break::NoDone => 3,
            Break::Stopping => 4,
        };
        assert!(breaks.into_iter().map(place).eq(0..breaks.len()));
        ends.extend(["complete", "client_left", "first_data_timeout"]);
        assert_eq!(table("OUTCOMES"), ends.into_iter().map(str::to_owned).collect());
        let words = kvasir_balance::Exclusion::ALL.map(kvasir_balance::Exclusion::as_str);
        // Of one that cannot be reached it is said why.
        let words = words.into_iter().filter(|word| *word != "unreachable");
        let words = words.chain(["no_answer_yet"]).map(str::to_owned).collect();
        assert_eq!(table("WHY_NOT"), words);
    }
}
