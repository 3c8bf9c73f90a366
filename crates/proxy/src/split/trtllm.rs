//! TensorRT-LLM (1.0): the context engine computes the prompt and the first token, and answers with the
//! state that the generation engine goes on from. Where that one token is the whole answer there is
//! nothing to go on with.

use bytes::Bytes;
use kvasir_prompt::{Edit, ObjectText, first_entry};

use super::Request;

const PARAMS: &str = "disaggregated_params";

/// What a context engine answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// The state to go on from, as raw JSON.
    Params(String),
    /// It is the whole answer.
    Finished,
    /// Neither.
    Missing,
}

/// The context leg.
pub(super) fn prefill(body: &Request, id: u64) -> Bytes {
    let params = format!("{{\"request_type\":\"context_only\",\"disagg_request_id\":{id}}}");
    let edit =
        Edit::default().replace("stream", "false").remove("stream_options").set(PARAMS, params);
    body.edited(&edit)
}

/// The generation leg, from the context engine's state.
pub(super) fn decode(body: &Request, params: &str) -> Bytes {
    body.edited(&Edit::default().set(PARAMS, params))
}

/// Reads the context engine's answer.
pub(super) fn context(answer: &ObjectText<'_>) -> Context {
    let choice = answer.get("choices").and_then(first_entry);
    let Some(choice) = choice.and_then(|raw| ObjectText::parse(raw.as_bytes()).ok()) else {
        return Context::Missing;
    };
    let goes_on = matches!(
        choice.get("finish_reason"),
        None | Some("null" | "\"length\"" | "\"not_finished\"")
    );
    if !goes_on {
        return Context::Finished;
    }
    let params = choice.get(PARAMS).and_then(|raw| ObjectText::parse(raw.as_bytes()).ok());
    params.map_or(Context::Missing, |params| {
        let edit = Edit::default().set("request_type", "\"generation_only\"");
        Context::Params(params.edited(&edit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context_of(answer: &str) -> Context {
        context(&ObjectText::parse(answer.as_bytes()).unwrap())
    }

    #[test]
    fn the_context_leg_is_not_streamed_and_keeps_its_limits() {
        let body =
            r#"{"max_tokens":9,"stream":true,"stream_options":{"include_usage":true},"n":1}"#;
        let want = r#"{"max_tokens":9,"stream":false,"n":1,"disaggregated_params":{"request_type":"context_only","disagg_request_id":7}}"#;
        let body = Request::read(body.into()).unwrap();
        assert_eq!(prefill(&body, 7), want);
    }

    #[test]
    fn the_state_goes_on_as_it_was_written_but_for_its_kind() {
        let answer = r#"{"choices":[{"index":0,"finish_reason":"length","disaggregated_params":
            {"request_type" : "context_only", "first_gen_tokens":[5], "ctx_request_id":7, "opaque_state":"AA=="}}]}"#;
        let Context::Params(params) = context_of(answer) else { panic!() };
        let want = r#"{"request_type" : "generation_only", "first_gen_tokens":[5], "ctx_request_id":7, "opaque_state":"AA=="}"#;
        assert_eq!(params, want);
        let body = Request::read(r#"{"stream":true}"#.into()).unwrap();
        let want = format!("{{\"stream\":true,\"disaggregated_params\":{want}}}");
        assert_eq!(decode(&body, &params), want);
    }

    #[test]
    fn an_answer_that_is_whole_and_one_that_is_none_are_told_apart() {
        let finished = r#"{"choices":[{"finish_reason":"stop","disaggregated_params":{}}]}"#;
        assert_eq!(context_of(finished), Context::Finished);
        let early = r#"{"choices":[{"finish_reason":"not_finished","disaggregated_params":{}}]}"#;
        assert!(matches!(context_of(early), Context::Params(_)));
        for missing in [
            "{}",
            r#"{"choices":[]}"#,
            r#"{"choices":[{"finish_reason":"length"}]}"#,
            r#"{"choices":[{"finish_reason":null,"disaggregated_params":null}]}"#,
            r#"{"choices":[7]}"#,
        ] {
            assert_eq!(context_of(missing), Context::Missing, "{missing}");
        }
    }
}
