//! What clients see of split requests: what they would see of one engine.

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::{EngineKind, PdRole, SimServerConfig};
use kvasir_testkit::client::{self, Head};
use serde_json::{Value, json};

use super::{Engine, Split, ids, plan, streamed, tokens};
use crate::harness::{CHAT, COMPLETIONS, Decision, Gateway, SOON, until};

const KINDS: [EngineKind; 3] = [EngineKind::Vllm, EngineKind::Sglang, EngineKind::TrtLlm];

/// Ways to ask, each with a prompt of its own.
fn requests() -> Vec<(&'static str, Value)> {
    let text = |word: &str| format!("{word}: this text may be copied by everyone. ").repeat(12);
    let prompt: Vec<u32> = (300..500).collect();
    vec![
        (COMPLETIONS, json!({"prompt": prompt, "max_tokens": 9})),
        (COMPLETIONS, json!({"prompt": text("one"), "max_tokens": 12})),
        (CHAT, json!({"max_tokens": 7, "messages": [{"role": "user", "content": text("two")}]})),
        (
            CHAT,
            json!({"max_completion_tokens": 7,
                "messages": [{"role": "user", "content": text("three")}]}),
        ),
    ]
}

/// A stream read to its proper end.
pub(super) struct Streamed {
    pub(super) head: Head,
    pub(super) ids: Vec<u64>,
    pub(super) chunks: Vec<Value>,
    usage: Value,
}

pub(super) async fn stream(gateway: &Gateway, path: &str, body: &Value) -> Streamed {
    let mut client = gateway.sent(path, body.to_string().as_bytes()).await;
    let head = client.head().await.unwrap();
    assert_eq!(head.status, 200, "{head:?}");
    let (mut all, mut chunks, mut usage) = (Vec::new(), Vec::new(), Value::Null);
    loop {
        let event = client.event().await.unwrap().expect("no [DONE]");
        if event == "[DONE]" {
            break;
        }
        let chunk: Value = serde_json::from_str(&event).unwrap();
        assert!(usage.is_null(), "{event} after the usage");
        all.extend(ids(&chunk));
        usage = chunk["usage"].clone();
        chunks.push(chunk);
    }
    assert_eq!(client.event().await.unwrap(), None);
    Streamed { head, ids: all, chunks, usage }
}

#[tokio::test]
async fn answers_are_those_of_one_engine_in_every_protocol() {
    for kind in KINDS {
        let split = Split::of(kind, 1, 1).await;
        let alone = Engine::start(EngineKind::Vllm, None, CostModel::DEMO).await;
        for (path, mut body) in requests() {
            body["model"] = "tiny".into();
            body["return_token_ids"] = true.into();
            let want = client::post(alone.addr, path, body.to_string().as_bytes()).await.unwrap();
            let got = split.post(path, &body).await;
            assert_eq!(tokens(&got), tokens(&want), "{kind} {path}");
            assert_eq!(plan(&got), "split", "{kind} {path}");
            let prefill = got.head.header("x-kvasir-prefill-endpoint");
            assert_eq!(prefill, Some(&*split.prefill[0].url()));
            assert_eq!(got.head.header("x-kvasir-endpoint"), Some(&*split.decode[0].url()));
            let (want, got) = (want.json(), got.json());
            assert_eq!(got["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"]);
            assert_eq!(got["usage"]["completion_tokens"], want["usage"]["completion_tokens"]);
            let streamed = stream(&split.gateway, path, &streamed(body)).await;
            assert_eq!(streamed.ids, ids(&want), "{kind} {path}");
            assert_eq!(Decision::of_head(&streamed.head).plan.as_deref(), Some("split"));
            assert_eq!(streamed.usage["prompt_tokens"], want["usage"]["prompt_tokens"]);
        }
        // The decode engine computed none of it.
        let state = split.decode[0].state().await;
        assert!(state["pd"]["pulled_tokens"].as_u64().unwrap() > 500, "{kind}: {state}");
        assert_eq!(split.count("split").await, 8.0);
        split.until_clean().await;
    }
}

#[tokio::test]
async fn usage_says_what_was_cached_where_the_prompt_was_computed() {
    for kind in [EngineKind::Vllm, EngineKind::TrtLlm] {
        let split = Split::of(kind, 1, 2).await;
        let cached = |usage: &Value| usage["prompt_tokens_details"]["cached_tokens"].clone();
        let first = split.ask(0).await;
        assert_eq!((plan(&first), cached(&first.json()["usage"])), ("split".to_owned(), json!(0)));
        // The other decode engine has nothing, but the prefill engine has it.
        let again = split.ask(0).await;
        assert_eq!(plan(&again), "split");
        let usage = again.json()["usage"].clone();
        let held = cached(&usage).as_u64().unwrap();
        assert!((176..=192).contains(&held), "{kind}: {usage}");
        assert_eq!(usage["prompt_tokens"], 200);
        let length = again.head.header("content-length").unwrap().parse::<usize>().unwrap();
        assert_eq!(length, again.body.len());
        let streamed = stream(&split.gateway, COMPLETIONS, &streamed(super::body(0))).await;
        assert_eq!(cached(&streamed.usage), held, "{kind}: {}", streamed.usage);
        let others = streamed.chunks.iter().rev().skip(1);
        assert!(others.into_iter().all(|chunk| chunk["usage"].is_null()));
        split.until_clean().await;
    }
}

#[tokio::test]
async fn a_stream_comes_as_it_is_generated() {
    let split = Split::with(EngineKind::Vllm, 1, 1, CostModel::MID_GPU, json!({})).await;
    let mut body = streamed(super::body(0));
    body["max_tokens"] = 2_000.into();
    let mut client = split.gateway.sent(COMPLETIONS, body.to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let event = client.event().await.unwrap().unwrap();
    let chunk: Value = serde_json::from_str(&event).unwrap();
    assert_eq!(chunk["choices"].as_array().unwrap().len(), 1);
    assert_eq!(split.decode[0].state().await["ranks"][0]["running"], 1, "it is still at work");
    // And when its client leaves both are free.
    client.abort().unwrap();
    split.until_clean().await;
}

#[tokio::test]
async fn long_bodies_and_those_in_pieces_are_split_too() {
    // A megabyte, most of which says nothing to the engine.
    let mut long = super::body(7);
    long["metadata"] = json!({"filler": "\"max_tokens\": 5, {[ ".repeat(48 << 10)});
    let text = long.to_string();
    assert!(text.len() > 1 << 20);
    for kind in KINDS {
        let split = Split::of(kind, 1, 1).await;
        let whole = split.gateway.post_bytes(COMPLETIONS, text.as_bytes()).await;
        assert_eq!((plan(&whole), tokens(&whole).len()), ("split".to_owned(), 8), "{kind}");
        let state = split.decode[0].state().await;
        assert!(state["pd"]["pulled_tokens"].as_u64().unwrap() > 0, "{kind}: {state}");
        split.until_clean().await;
    }
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    let whole = split.gateway.post_bytes(COMPLETIONS, text.as_bytes()).await;
    assert_eq!((plan(&whole), tokens(&whole).len()), ("split".to_owned(), 8));
    let mut client = split.gateway.connect().await;
    client.start_chunked("POST", COMPLETIONS, &[]).await.unwrap();
    for piece in text.as_bytes().chunks(100_000) {
        client.chunk(piece).await.unwrap();
    }
    client.finish_chunks().await.unwrap();
    let pieces = client.response().await.unwrap();
    assert_eq!((plan(&pieces), tokens(&pieces)), ("split".to_owned(), tokens(&whole)));
    split.until_clean().await;
}

#[tokio::test]
async fn what_cannot_be_split_is_served_by_one_engine() {
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    for (path, extra, why) in [
        (COMPLETIONS, json!({"n": 2}), "several_answers"),
        (COMPLETIONS, json!({"prompt": ["a b c", "d e f"]}), "several_prompts"),
        (COMPLETIONS, json!({"prompt_logprobs": 0}), "prompt_logprobs"),
        (COMPLETIONS, json!({"kv_transfer_params": {"do_remote_decode": false}}), "own_params"),
    ] {
        let mut body = super::body(40);
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let response = split.post(path, &body).await;
        assert_eq!(plan(&response), "not_split", "{extra}");
        assert_eq!(response.head.header("x-kvasir-prefill-endpoint"), None);
        split.gateway.access_line(|line| line["not_split"] == why).await;
    }
    assert_eq!(split.prefill[0].finished().await, 0);
    assert_eq!(split.count("not_split").await, 4.0);
    // Prefill engines are there.
    assert_eq!(split.count("no_prefill").await, 0.0);
    split.until_clean().await;
}

#[tokio::test]
async fn an_answer_of_one_token_is_whole_after_its_context() {
    // Every token ends an answer: there is nothing to generate.
    let stops = |config: &mut SimServerConfig| config.tokens.stop_one_in = 1;
    let prefill = [Engine::with(EngineKind::TrtLlm, Some(PdRole::Prefill), CostModel::DEMO, stops)];
    let prefill = futures_util::future::join_all(prefill).await;
    let decode =
        vec![Engine::start(EngineKind::TrtLlm, Some(PdRole::Decode), CostModel::DEMO).await];
    let split = Split::over(prefill, decode, json!({"protocol": "trtllm"})).await;
    let body = super::body(90);
    let decoded = split.decode[0].finished().await;
    let whole = split.post(COMPLETIONS, &body).await;
    assert_eq!(whole.status, 200, "{}", whole.text());
    let choice = &whole.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    assert!(choice.get("disaggregated_params").is_none(), "{choice}");
    let stream = stream(&split.gateway, COMPLETIONS, &streamed(body)).await;
    assert_eq!(stream.chunks.len(), 2, "{:?}", stream.chunks);
    assert_eq!(stream.chunks[0]["choices"][0]["finish_reason"], "stop");
    assert_eq!(stream.usage["prompt_tokens"], 200);
    assert_eq!(split.decode[0].finished().await, decoded, "nobody asked it");
    let page = split.gateway.metrics().await;
    assert_eq!(super::count(&page, "kvasir_pd_params_missing_total"), 0.0);
    split.until_clean().await;
}

#[tokio::test]
async fn logs_metrics_and_headers_name_both_engines() {
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    let response = split.ask(3).await;
    // The policy takes turns, and that of those who compute.
    let reason = response.head.header("x-kvasir-reason").unwrap();
    assert!(
        reason.contains("reason=turn;") && reason.contains("; decode_by=least_load;"),
        "{reason}"
    );
    let line = split.gateway.access_line(|line| line["plan"] == "split").await;
    assert_eq!(line["decode_by"], "least_load");
    assert_eq!(line["prefill_endpoint"], *split.prefill[0].url());
    assert_eq!(line["endpoint"], *split.decode[0].url());
    assert_eq!(line["attempts"], 2);
    for leg in ["prefill", "decode"] {
        let labels = [("leg", leg), ("stream", "false")];
        until(SOON, || async {
            let page = split.gateway.metrics().await;
            match page.sum("kvasir_pd_leg_seconds_count", &labels) {
                Some(1.0) => Ok(()),
                other => Err(format!("{leg} {other:?}")),
            }
        })
        .await;
    }
    split.until_clean().await;
}
