//! vLLM's `NixlConnector` (seen on the wire with vLLM 0.32): the prefill engine is asked for one token
//! and answers where its blocks lie; the decode engine gets the client's request with that answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kvasir_prompt::{Edit, ObjectText, first_entry};

use super::Request;

/// Names the hand-over in requests and answers.
pub(super) const PARAMS: &str = "kv_transfer_params";

/// Until when the blocks are kept, in a hand-over.
const EXPIRY: &str = "remote_blocks_expiry_time";

/// Asks that the blocks be kept for another engine.
const KEEP: &str = "{\"do_remote_decode\":true,\"do_remote_prefill\":false,\
    \"remote_engine_id\":null,\"remote_block_ids\":null,\"remote_host\":null,\"remote_port\":null}";

/// The prefill leg: one token of one answer, not streamed, of which nobody reads more than the
/// hand-over.
pub(super) fn prefill(body: &Request) -> Bytes {
    let has_limit = body.get("max_tokens").is_some() || body.get("max_completion_tokens").is_some();
    let mut edit = Edit::default()
        .replace("max_completion_tokens", "1")
        .replace("stream", "false")
        .remove("stream_options")
        .replace("n", "1")
        .remove("best_of")
        .remove("logprobs")
        .remove("top_logprobs")
        .set(PARAMS, KEEP);
    edit = match has_limit {
        true => edit.replace("max_tokens", "1"),
        false => edit.set("max_tokens", "1"),
    };
    // More than the limit is refused.
    let least = body.get("min_tokens").and_then(|raw| raw.parse::<f64>().ok());
    if least.is_some_and(|least| least > 1.0) {
        edit = edit.replace("min_tokens", "1");
    }
    body.edited(&edit)
}

/// The decode leg: what the client sent, and where its blocks lie, in the bytes of the prefill
/// engine's answer.
pub(super) fn decode(body: &Request, params: &str) -> Bytes {
    body.edited(&Edit::default().set(PARAMS, params))
}

/// The hand-over in the prefill engine's answer.
pub(super) fn params<'a>(answer: &ObjectText<'a>) -> Option<&'a str> {
    answer.get(PARAMS).filter(|raw| raw.starts_with('{'))
}

/// Whether an answer came to its end before its limit, with its first token: some connectors keep blocks
/// of answers only that reach their limit (Mooncake's of vLLM).
pub(super) fn ended_early(answer: &ObjectText<'_>) -> bool {
    let choice = answer.get("choices").and_then(first_entry);
    let choice = choice.and_then(|raw| ObjectText::parse(raw.as_bytes()).ok());
    let reason = choice.and_then(|choice| choice.get("finish_reason"));
    reason.is_some_and(|reason| !matches!(reason, "null" | "\"length\""))
}

/// How long from `now` the blocks of a hand-over are kept, where it says until when: seconds since
/// 1970, by the engine's clock. Nothing where that is over.
pub(super) fn kept_for(params: &str, now: SystemTime) -> Option<Duration> {
    let params = ObjectText::parse(params.as_bytes()).ok()?;
    let end: f64 = params.get(EXPIRY)?.parse().ok()?;
    let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(Duration::try_from_secs_f64(end - now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn request(body: &str) -> Request {
        Request::read(Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    fn prefill_of(body: &str) -> Bytes {
        prefill(&request(body))
    }

    #[test]
    fn the_prefill_leg_asks_for_one_token_that_is_not_streamed() {
        let keep = format!("\"kv_transfer_params\":{KEEP}");
        let table = [
            (r#"{"model":"m","max_tokens":256}"#, r#"{"model":"m","max_tokens":1,KEEP}"#),
            (r#"{"max_completion_tokens":9}"#, r#"{"max_completion_tokens":1,KEEP}"#),
            (
                r#"{"max_tokens":9,"max_completion_tokens":null}"#,
                r#"{"max_tokens":1,"max_completion_tokens":1,KEEP}"#,
            ),
            (r#"{"model":"m"}"#, r#"{"model":"m",KEEP,"max_tokens":1}"#),
            ("{}", r#"{KEEP,"max_tokens":1}"#),
            (r#"{"max_tokens":1,"min_tokens":4}"#, r#"{"max_tokens":1,"min_tokens":1,KEEP}"#),
            (r#"{"max_tokens":1,"min_tokens":0}"#, r#"{"max_tokens":1,"min_tokens":0,KEEP}"#),
            (
                r#"{"max_tokens":5, "stream" : true, "stream_options":{"include_usage":true}, "x":1}"#,
                r#"{"max_tokens":1, "stream" : false, "x":1,KEEP}"#,
            ),
            (
                r#"{"n":1,"best_of":1,"logprobs":true,"top_logprobs":5,"max_tokens":5}"#,
                r#"{"n":1,"max_tokens":1,KEEP}"#,
            ),
            // Fields of the same name elsewhere are others.
            (
                r#"{"messages":[{"max_tokens":7,"stream":true,"content":"\"max_tokens\": 7"}],"max_tokens":7}"#,
                r#"{"messages":[{"max_tokens":7,"stream":true,"content":"\"max_tokens\": 7"}],"max_tokens":1,KEEP}"#,
            ),
            // Of duplicates the last counts: none may be left.
            (
                r#"{"max_tokens":7,"stream":false,"max_tokens":8,"stream":true}"#,
                r#"{"max_tokens":1,"stream":false,"max_tokens":1,"stream":false,KEEP}"#,
            ),
            // A null of the client's is no hand-over.
            (r#"{"kv_transfer_params":null,"max_tokens":2}"#, r#"{KEEP,"max_tokens":1}"#),
            ("{\n \"max_tokens\": 3\n}\n", "{\n \"max_tokens\": 1,KEEP\n}\n"),
        ];
        for (body, want) in table {
            assert_eq!(prefill_of(body), want.replace("KEEP", &keep), "{body}");
        }
    }

    #[test]
    fn the_decode_leg_is_the_clients_request_and_the_hand_over_unchanged() {
        let body = "{ \"model\":\"m\", \"max_tokens\" : 1e1 }";
        let answer =
            br#"{"id":"1","kv_transfer_params": {"remote_block_ids": [[1, 2]], "x":1.50},"z":0}"#;
        let answer = ObjectText::parse(answer).unwrap();
        let raw = params(&answer).unwrap();
        assert_eq!(raw, r#"{"remote_block_ids": [[1, 2]], "x":1.50}"#);
        let body = request(body);
        let want = "{ \"model\":\"m\", \"max_tokens\" : 1e1,\"kv_transfer_params\":RAW }";
        assert_eq!(decode(&body, raw), want.replace("RAW", raw));
        for without in
            [r#"{"id":1}"#, r#"{"kv_transfer_params":null}"#, r#"{"kv_transfer_params":"x"}"#]
        {
            assert_eq!(params(&ObjectText::parse(without.as_bytes()).unwrap()), None, "{without}");
        }
    }

    #[test]
    fn an_answer_that_ended_by_itself_is_told_from_one_that_hands_nothing_over() {
        let ended = |text: &str| ended_early(&ObjectText::parse(text.as_bytes()).unwrap());
        assert!(ended(r#"{"choices":[{"finish_reason":"stop"}]}"#));
        assert!(ended(r#"{"choices":[{"finish_reason":"tool_calls"}]}"#));
        for not in [
            r#"{"choices":[{"finish_reason":"length"}]}"#,
            r#"{"choices":[{"finish_reason":null}]}"#,
            r#"{"choices":[{}]}"#,
            r#"{"choices":[]}"#,
            "{}",
        ] {
            assert!(!ended(not), "{not}");
        }
    }

    #[test]
    fn the_end_that_a_hand_over_names_is_read() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let kept = |end: &str| kept_for(&format!("{{\"remote_blocks_expiry_time\":{end}}}"), now);
        assert_eq!(kept("1700000012.5"), Some(Duration::from_millis(12_500)));
        for over in ["1699999999", "-1", "0", "1e300", "NaN"] {
            assert!(kept(over).is_none_or(|left| left.is_zero()), "{over}");
        }
        assert_eq!((kept("null"), kept("\"x\"")), (None, None));
        assert_eq!(kept_for("{}", now), None);
    }

    /// Both legs of vLLM 0.32.0, recorded.
    #[test]
    fn the_legs_are_those_that_were_recorded() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/captures/nixl-pd-0.32.0.json");
        let recording: Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let legs = recording["log"].as_array().unwrap();
        let mut pairs = 0;
        for (place, first) in legs.iter().enumerate() {
            if first["request"]["kv_transfer_params"]["do_remote_decode"] != true {
                continue;
            }
            let answer = first["response"].to_string();
            let answer = ObjectText::parse(answer.as_bytes()).unwrap();
            let handed = params(&answer).unwrap();
            let handed_json: Value = serde_json::from_str(handed).unwrap();
            let is_second = |leg: &&Value| leg["request"][PARAMS] == handed_json;
            let second = legs[place..].iter().find(is_second).expect("its decode leg");
            let mut client = second["request"].clone();
            client.as_object_mut().unwrap().remove(PARAMS);
            let client = request(&client.to_string());
            let read = |text: Bytes| serde_json::from_slice::<Value>(&text).unwrap();
            let mut want = first["request"].clone();
            // What is not streamed need not say so.
            want.as_object_mut().unwrap().remove("stream");
            assert_eq!(read(prefill(&client)), want);
            assert_eq!(read(decode(&client, handed)), second["request"]);
            pairs += 1;
        }
        assert!(pairs >= 2, "{pairs}");
    }
}
