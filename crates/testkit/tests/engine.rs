//! The fake engine answers as scripted, and by default as vLLM does.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use http::StatusCode;
use kvasir_testkit::client::{self, RawClient};
use kvasir_testkit::engine::{
    EngineConfig, FakeEngine, Fate, Load, Model, Reply, SseChunk, Stored,
};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);
const NEVER: Duration = Duration::from_secs(3600);
const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

async fn engine() -> FakeEngine {
    FakeEngine::start(EngineConfig::default()).await.unwrap()
}

async fn ask(engine: &FakeEngine, path: &str, body: Value) -> client::Response {
    client::post(engine.addr(), path, body.to_string().as_bytes()).await.unwrap()
}

fn ids(n: u32) -> Vec<u32> {
    (1..=n).collect()
}

fn sample(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/http-vllm-0.32.0");
    std::fs::read_to_string(dir.join(name)).unwrap()
}

/// Every field of ours exists in the real answer, with the same kind of value.
fn assert_subset(ours: &Value, real: &Value, path: &str) {
    match (ours, real) {
        (Value::Object(ours), Value::Object(real)) => {
            for (key, value) in ours {
                let real = real.get(key).unwrap_or_else(|| panic!("{path}/{key} is not real"));
                assert_subset(value, real, &format!("{path}/{key}"));
            }
        }
        (Value::Array(ours), Value::Array(real)) => {
            for (ours, real) in ours.iter().zip(real) {
                assert_subset(ours, real, &format!("{path}[]"));
            }
        }
        // A field that may be null.
        (Value::Null, _) | (_, Value::Null) => {}
        _ => {
            let same = std::mem::discriminant(ours) == std::mem::discriminant(real);
            assert!(same, "{path}: {ours} against {real}");
        }
    }
}

#[tokio::test]
async fn answers_have_the_shape_of_recorded_ones() {
    let models = vec![Model::base("tiny"), Model::adapter("tiny-lora", "tiny")];
    let real_sources: Value = serde_json::from_str(&sample("kv_event_sources.body")).unwrap();
    let config = EngineConfig {
        models,
        kv_event_sources: Some(real_sources.clone()),
        ..EngineConfig::default()
    };
    let engine = FakeEngine::start(config).await.unwrap();
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "a b"}]});
    for (ours, real) in [
        (ask(&engine, CHAT, chat).await, "chat.body"),
        (ask(&engine, CHAT, json!({"model": "nope"})).await, "bad_model.body"),
        (client::get(engine.addr(), "/v1/models").await.unwrap(), "models_lora.body"),
        (client::get(engine.addr(), "/version").await.unwrap(), "version.body"),
    ] {
        let real: Value = serde_json::from_str(&sample(real)).unwrap();
        assert_ne!(ours.json(), Value::Null);
        assert_subset(&ours.json(), &real, "");
    }
    let sources = client::get(engine.addr(), "/kv_event_sources").await.unwrap();
    assert_eq!(sources.json(), real_sources);
}

#[tokio::test]
async fn a_stream_has_the_events_of_a_recorded_one() {
    let engine = engine().await;
    let body = json!({"model": "tiny", "messages": [{"role": "user", "content": "a b c"}],
        "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true}});
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    let headers = [("x-request-id", "my-req-1")];
    client.send("POST", CHAT, &headers, body.to_string().as_bytes()).await.unwrap();
    let head = client.head().await.unwrap();
    assert_eq!(head.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    let mut ours = Vec::new();
    while let Some(event) = client.event().await.unwrap() {
        ours.push(event);
    }
    let real = sample("chat_stream.body");
    let real: Vec<&str> = real.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
    assert_eq!(ours.len(), real.len());
    assert_eq!((ours.pop().as_deref(), real.last()), (Some("[DONE]"), Some(&"[DONE]")));
    for (ours, real) in ours.iter().zip(real) {
        let (ours, real) = (serde_json::from_str(ours), serde_json::from_str(real));
        let (mut ours, real): (Value, Value) = (ours.unwrap(), real.unwrap());
        if let Some(usage) = ours.get_mut("usage") {
            assert_eq!(usage["total_tokens"], 6);
            // The recording was made without the flag that adds this field.
            usage.as_object_mut().unwrap().remove("prompt_tokens_details");
        }
        assert_eq!(ours["id"], real["id"]);
        assert_subset(&ours, &real, "");
    }
}

#[tokio::test]
async fn cached_tokens_and_stored_blocks_agree() {
    let stored: Arc<Mutex<Vec<Stored>>> = Arc::default();
    let sink = stored.clone();
    let config = EngineConfig {
        block_size: 4,
        models: vec![Model::base("tiny"), Model::adapter("ad", "tiny")],
        sink: Some(Box::new(move |s| sink.lock().unwrap().push(s))),
        ..EngineConfig::default()
    };
    let engine = FakeEngine::start(config).await.unwrap();
    let mut blocks = Vec::new();
    for (prompt, extra, cached, new_blocks) in [
        (ids(10), json!({}), 0, 2),
        (ids(10), json!({}), 8, 0),
        (ids(17), json!({}), 8, 2),
        (ids(16), json!({}), 12, 0),
        (ids(16), json!({"cache_salt": "s"}), 0, 4),
        (ids(16), json!({"model": "ad"}), 0, 4),
    ] {
        let mut body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 1});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let usage = ask(&engine, COMPLETIONS, body).await.json()["usage"].clone();
        assert_eq!(usage["prompt_tokens"], prompt.len());
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], cached);
        // Reported before the answer, so no waiting here.
        let new: Vec<Stored> = stored.lock().unwrap().drain(..).collect();
        assert_eq!(new.iter().map(|s| s.hashes.len()).sum::<usize>(), new_blocks);
        blocks.extend(new);
    }
    assert_eq!((&blocks[0].tokens, blocks[0].parent), (&ids(8), None));
    assert_eq!(blocks[1].parent, blocks[0].hashes.last().copied());
    assert_eq!(blocks[1].tokens, (9..=16).collect::<Vec<_>>());
    assert_eq!(blocks[2].cache_salt.as_deref(), Some("s"));
    assert_eq!(blocks[3].lora_name.as_deref(), Some("ad"));
    let metrics = client::get(engine.addr(), "/metrics").await.unwrap().text();
    let hits = "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 28.0\n";
    assert!(metrics.contains(hits), "{metrics}");
}

#[tokio::test]
async fn cached_tokens_can_be_withheld_and_prompts_tokenized() {
    let config = EngineConfig {
        report_cached_tokens: false,
        tokenize: Some(Arc::new(|body| Some(vec![7; body["messages"].as_array()?.len()]))),
        ..EngineConfig::default()
    };
    let engine = FakeEngine::start(config).await.unwrap();
    let usage = ask(&engine, CHAT, json!({"messages": [{}, {}, {}]})).await.json();
    assert_eq!(usage["usage"]["prompt_tokens"], 3);
    assert_eq!(usage["usage"]["prompt_tokens_details"], Value::Null);
    assert_eq!(ask(&engine, CHAT, json!({"messages": []})).await.status, 400);
}

#[tokio::test]
async fn queue_then_handler_then_default() {
    let engine = engine().await;
    let status = |code| Reply::status(StatusCode::from_u16(code).unwrap());
    engine.set_default(status(503));
    engine.set_handler(move |r| (r.header("x-h") == "1").then(|| status(429)));
    engine.push([status(500), Reply::Default]);
    let mut got = Vec::new();
    for header in ["1", "1", "1", "0"] {
        let mut client = RawClient::connect(engine.addr()).await.unwrap();
        let body = br#"{"prompt":[1]}"#;
        client.send("POST", COMPLETIONS, &[("x-h", header)], body).await.unwrap();
        got.push(client.response().await.unwrap().status);
    }
    assert_eq!(got, [500, 200, 429, 503]);
}

#[tokio::test]
async fn pages_do_not_use_up_the_script_and_can_be_replaced() {
    let engine = engine().await;
    engine.push([Reply::status(StatusCode::IM_A_TEAPOT)]);
    let health = client::get(engine.addr(), "/health").await.unwrap();
    assert_eq!(health.status, 200);
    assert_eq!(client::get(engine.addr(), "/kv_event_sources").await.unwrap().status, 404);
    engine.set_page("/health", Reply::status(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(client::get(engine.addr(), "/health").await.unwrap().status, 503);
    engine.set_page("/health", None);
    assert_eq!(client::get(engine.addr(), "/health").await.unwrap().status, 200);
    assert!(engine.requests().is_empty());
    assert_eq!(engine.info_requests().len(), 4);
    assert_eq!(ask(&engine, COMPLETIONS, json!({})).await.status, 418);
}

#[tokio::test]
async fn metrics_show_open_requests_or_the_pretended_load() {
    let engine = engine().await;
    engine.push([Reply::HangBeforeHead]);
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.send("POST", COMPLETIONS, &[], b"{}").await.unwrap();
    engine.wait_for(1, SOON).await;
    let page = || async { client::get(engine.addr(), "/metrics").await.unwrap().text() };
    assert!(page().await.contains("num_requests_running{engine=\"0\",model_name=\"tiny\"} 1.0"));
    let load = Load { running: Some(9), waiting: 4, kv_usage: Some(0.5), asleep: true };
    engine.set_load(load);
    let text = page().await;
    for value in [
        "running{engine=\"0\",model_name=\"tiny\"} 9.0",
        "waiting{engine=\"0\",model_name=\"tiny\"} 4.0",
        "kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.5",
        "sleep_state=\"awake\"} 0.0",
    ] {
        assert!(text.contains(value), "{value} not in {text}");
    }
}

#[tokio::test]
async fn bodies_are_recorded_byte_for_byte_however_they_come() {
    let engine = engine().await;
    engine.set_default(Reply::Echo);
    // Not JSON, not UTF-8, and with what looks like framing.
    let bytes: Vec<u8> = (0..=255).chain(*b"\r\n0\r\n\r\n").collect();
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.send("POST", "/any?x=1", &[("X-Mixed", "Case")], &bytes).await.unwrap();
    assert_eq!(client.response().await.unwrap().body, bytes);
    // Again on the same connection, slowly and in pieces.
    client.start_chunked("POST", "/any?x=2", &[]).await.unwrap();
    for piece in bytes.chunks(50) {
        client.chunk(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    client.finish_chunks().await.unwrap();
    assert_eq!(client.response().await.unwrap().body, bytes);
    let seen = engine.requests();
    for (record, path) in seen.iter().zip(["/any?x=1", "/any?x=2"]) {
        assert_eq!((record.method.as_str(), record.path.as_str()), ("POST", path));
        assert_eq!((&record.body[..], record.body_complete), (&bytes[..], true));
    }
    assert_eq!(seen[0].header("x-mixed"), "Case");
}

#[tokio::test]
async fn events_leave_when_they_are_due() {
    let engine = engine().await;
    let event = |gap, data: &str| SseChunk { gap, data: data.to_owned() };
    let chunks = vec![event(Duration::ZERO, "first"), event(NEVER, "second")];
    let head_delay = Duration::from_millis(30);
    engine.push([Reply::Sse { head_delay, chunks, done: true }]);
    let start = Instant::now();
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.send("POST", COMPLETIONS, &[], b"{}").await.unwrap();
    client.head().await.unwrap();
    assert!(start.elapsed() >= head_delay);
    assert_eq!(client.event().await.unwrap().as_deref(), Some("first"));
    drop(client);

    let gap = Duration::from_millis(20);
    engine.push([Reply::SlowTokens { first: gap, gap, count: 3 }]);
    let start = Instant::now();
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.send("POST", COMPLETIONS, &[], br#"{"prompt":[1],"stream":true}"#).await.unwrap();
    client.head().await.unwrap();
    for tokens in 1..=3 {
        assert_ne!(client.event().await.unwrap().as_deref(), Some("[DONE]"));
        assert!(start.elapsed() >= gap * tokens);
    }
    assert_eq!(client.event().await.unwrap().as_deref(), Some("[DONE]"));
    assert_eq!(client.event().await.unwrap(), None);
}

#[tokio::test]
async fn restart_is_a_new_life_and_resume_is_not() {
    let engine = engine().await;
    let body = json!({"prompt": ids(40)});
    let cached = async || {
        let answer = ask(&engine, COMPLETIONS, body.clone()).await.json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let started = async || {
        let text = client::get(engine.addr(), "/metrics").await.unwrap().text();
        let line = text.lines().find(|l| l.starts_with("process_start_time_seconds ")).unwrap();
        line.split(' ').nth(1).unwrap().parse::<f64>().unwrap()
    };
    let first = started().await;
    assert_eq!((cached().await, cached().await), (0, 32));
    engine.stop().await.unwrap();
    engine.resume().unwrap();
    assert_eq!((started().await, cached().await), (first, 32));
    engine.restart().await.unwrap();
    assert!(started().await > first);
    assert_eq!(cached().await, 0);
    assert_eq!(client::post(engine.addr(), "/reset_prefix_cache", b"").await.unwrap().status, 200);
    assert_eq!(cached().await, 0);
}

#[tokio::test]
async fn malformed_requests_reach_nobody() {
    let engine = engine().await;
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.write(b"NOT HTTP AT ALL\r\n\r\n").await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 400);
    assert!(engine.requests().is_empty());
}

#[tokio::test]
#[should_panic(expected = "enough complete requests")]
async fn waiting_for_what_does_not_come_fails() {
    let engine = engine().await;
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.start_chunked("POST", COMPLETIONS, &[]).await.unwrap();
    engine.wait_for(1, Duration::from_millis(50)).await;
}

#[tokio::test]
async fn only_the_newest_records_are_kept() {
    let config = EngineConfig { max_recorded: 2, ..EngineConfig::default() };
    let engine = FakeEngine::start(config).await.unwrap();
    engine.push([Reply::HangBeforeHead]);
    let mut hanging = RawClient::connect(engine.addr()).await.unwrap();
    hanging.send("POST", "/0", &[], &Bytes::new()).await.unwrap();
    engine.wait_for(1, SOON).await;
    for path in ["/1", "/2"] {
        ask(&engine, path, json!({})).await;
    }
    let paths: Vec<String> = engine.wait_idle(SOON).await.into_iter().map(|r| r.path).collect();
    assert_eq!(paths, ["/1", "/2"]);
    // A forgotten request is still counted until it ends.
    assert_eq!(engine.active(), 1);
    drop(hanging);
    kvasir_testkit::eventually_async(SOON, || engine.active() == 0).await;
    assert!(engine.requests().iter().all(|r| r.fate == Fate::Completed));
}
