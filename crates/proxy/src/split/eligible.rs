//! Which requests can be split at all. The others are served whole, by one engine.
//!
//! A hand-over carries the blocks of one prompt for one answer (`NixlConnector` of vLLM 0.32 frees them
//! when they were fetched once), and the prefill engine must be able to compute the prompt as if
//! nothing but one token was asked for.

use std::sync::Arc;

use bytes::Bytes;
use kvasir_fleet::Protocol;
use kvasir_prompt::{Api, MarksError, first_entry};

use super::Request;

/// The request says itself where its blocks lie.
pub(crate) const OWN_PARAMS: &str = "own_params";
/// It asks for more answers than blocks can be handed over for.
pub(crate) const SEVERAL_ANSWERS: &str = "several_answers";

/// A body that could be read, or why it could not.
pub(crate) type Read = Result<Arc<Request>, &'static str>;

/// Reads a request that may be split.
pub(crate) fn read(body: Bytes) -> Read {
    let read = Request::read(body).map(Arc::new);
    read.map_err(|error| match error {
        // Its engine will say what is wrong with it.
        MarksError::NotJson(_) => "not_json",
        MarksError::ManyFields => "many_fields",
    })
}

/// Why a request is not split; `None` where it may be. `protocol` is that of the pool, `None` where it
/// is not known yet: then what any of them cannot do is not done.
pub(crate) fn why_not(
    api: Option<Api>,
    body: impl FnOnce() -> Read,
    protocol: Option<Protocol>,
) -> Option<&'static str> {
    // Both engines get the same request: nothing is asked of the prefill engine that it would not be
    // asked alone.
    let at_once = protocol == Some(Protocol::Sglang);
    if !matches!(api, Some(Api::Completions | Api::Chat)) {
        let owns = || body().is_ok_and(|body| has_own(&body));
        return Some(if at_once && owns() { OWN_PARAMS } else { "api" });
    }
    let body = match body() {
        Ok(body) => body,
        Err(why) => return Some(why),
    };
    let body = &*body;
    if has_own(body) {
        return Some(OWN_PARAMS);
    }
    if body.get("prompt").is_some_and(has_several) {
        return Some("several_prompts");
    }
    // The prompt's own probabilities come from computing it; the decode engine computes none of it.
    if !at_once && (body.has("prompt_logprobs") || is_true(body, "echo")) {
        return Some("prompt_logprobs");
    }
    // SGLang (to 0.5.18) gives every answer the one room of the request, and waits for ever.
    if is_above_one(body, "n") || is_above_one(body, "best_of") || is_true(body, "use_beam_search")
    {
        return Some(SEVERAL_ANSWERS);
    }
    // Releases of vLLM answer 500 where the one token of the prefill leg is no call of a tool.
    if !at_once && protocol != Some(Protocol::Trtllm) && forces_tools(body) {
        return Some("tool_choice");
    }
    None
}

fn has_own(body: &Request) -> bool {
    let own = ["kv_transfer_params", "disaggregated_params", "bootstrap_room", "bootstrap_host"];
    own.iter().any(|key| body.has(key))
}

/// Whether a tool has to be called: all but `auto`, `none` and nothing says so.
fn forces_tools(body: &Request) -> bool {
    let choice = body.get("tool_choice");
    choice.is_some_and(|raw| !matches!(raw, "null" | "\"auto\"" | "\"none\""))
}

fn is_true(body: &Request, key: &str) -> bool {
    body.get(key).is_some_and(|raw| !matches!(raw, "false" | "null" | "0" | "\"false\""))
}

/// Anything but 1 or nothing: what is no number its engine will refuse.
fn is_above_one(body: &Request, key: &str) -> bool {
    body.get(key).is_some_and(|raw| !matches!(raw, "null" | "1" | "0" | "1.0"))
}

/// Whether a prompt is a list of several: one is a text, a list of numbers, or alone in its list.
fn has_several(prompt: &str) -> bool {
    let Some(first) = first_entry(prompt).filter(|first| first.starts_with(['"', '[', '{'])) else {
        return false;
    };
    let rest = prompt.trim_start().strip_prefix('[').map(str::trim_start);
    let rest = rest.and_then(|rest| rest.strip_prefix(first)).map(str::trim_start);
    rest.is_some_and(|rest| rest.starts_with(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(api: Option<Api>, body: &str, protocol: Option<Protocol>) -> Option<&'static str> {
        why_not(api, || read(Bytes::copy_from_slice(body.as_bytes())), protocol)
    }

    fn chat(body: &str) -> Option<&'static str> {
        why(Some(Api::Chat), body, Some(Protocol::Nixl))
    }

    #[test]
    fn usual_requests_may_be_split() {
        for body in [
            r#"{"messages":[{"role":"user","content":"\"kv_transfer_params\":{}"}],"n":1}"#,
            r#"{"messages":[],"n":null,"echo":false,"kv_transfer_params":null,"stream":true}"#,
            r#"{"prompt":"a","best_of":1}"#,
            r#"{"prompt":[1,2,3]}"#,
            r#"{"prompt":["a"]}"#,
            r#"{"tools":[],"tool_choice":"auto"}"#,
            r#"{"tools":[],"tool_choice":"none"}"#,
            r#"{"tool_choice":null}"#,
            r#"{"prompt":[ [1,2] ]}"#,
            r#"{"messages":[{"n":2,"echo":true}],"metadata":{"prompt_logprobs":1}}"#,
        ] {
            assert_eq!(chat(body), None, "{body}");
        }
    }

    #[test]
    fn what_needs_one_engine_is_not() {
        for (body, why) in [
            (r#"{"kv_transfer_params":{"do_remote_decode":true}}"#, "own_params"),
            (r#"{"kv\u005ftransfer_params":{}}"#, "own_params"),
            (r#"{"bootstrap_room":7}"#, "own_params"),
            (r#"{"disaggregated_params":{}}"#, "own_params"),
            (r#"{"prompt_logprobs":0}"#, "prompt_logprobs"),
            (r#"{"echo":true}"#, "prompt_logprobs"),
            (r#"{"echo":1}"#, "prompt_logprobs"),
            (r#"{"n":2}"#, "several_answers"),
            (r#"{"n":1,"n":3}"#, "several_answers"),
            (r#"{"best_of":4}"#, "several_answers"),
            (r#"{"use_beam_search":true}"#, "several_answers"),
            (r#"{"tool_choice":"required"}"#, "tool_choice"),
            (r#"{"tool_choice":{"type":"function","function":{"name":"f"}}}"#, "tool_choice"),
            (r#"{"prompt":["a","b"]}"#, "several_prompts"),
            (r#"{"prompt":[[1],[2]]}"#, "several_prompts"),
            (r#"{"prompt":[ "a" , "b"]}"#, "several_prompts"),
            ("[1]", "not_json"),
            ("{\"a\" 1}", "not_json"),
            ("", "not_json"),
        ] {
            assert_eq!(chat(body), Some(why), "{body}");
        }
        let many = format!("{{{}\"n\":1}}", "\"a\":1,".repeat(20_000));
        assert_eq!(chat(&many), Some("many_fields"));
        for api in [Api::Responses, Api::Embeddings, Api::Messages, Api::Rerank, Api::Tokenize] {
            assert_eq!(why(Some(api), "{}", Some(Protocol::Nixl)), Some("api"), "{api:?}");
        }
        assert_eq!(why(None, "{}", None), Some("api"));
    }

    #[test]
    fn protocols_differ() {
        let forced = r#"{"tool_choice":"required"}"#;
        let table = [
            (r#"{"echo":true,"prompt_logprobs":1}"#, Some(Protocol::Sglang), None),
            (r#"{"n":2}"#, Some(Protocol::Sglang), Some("several_answers")),
            (r#"{"best_of":3}"#, Some(Protocol::Sglang), Some("several_answers")),
            (r#"{"n":1}"#, Some(Protocol::Sglang), None),
            (r#"{"n":2}"#, Some(Protocol::Trtllm), Some("several_answers")),
            (r#"{"echo":true}"#, Some(Protocol::Trtllm), Some("prompt_logprobs")),
            (forced, Some(Protocol::Sglang), None),
            (forced, Some(Protocol::Trtllm), None),
            (forced, None, Some("tool_choice")),
        ];
        for (body, protocol, want) in table {
            assert_eq!(why(Some(Api::Chat), body, protocol), want, "{body}");
        }
        let own = r#"{"bootstrap_room":7}"#;
        for api in [Some(Api::Responses), None] {
            assert_eq!(why(api, own, Some(Protocol::Sglang)), Some("own_params"), "{api:?}");
        }
    }
}
