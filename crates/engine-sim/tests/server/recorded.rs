//! Answers against those of real vLLM servers, field for field.

use std::collections::BTreeMap;

use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_testkit::client::get;
use serde_json::{Value, json};

use crate::common::{addr, ask, chunks, fetch, quick, send, start, stream, testdata};

/// The recorded server: blocks of 32 tokens, the tiny model, one adapter.
fn recorded_server() -> SimServerConfig {
    let mut config = quick();
    config.engine.block_size = 32;
    config.engine.num_blocks = 96;
    config.root = Some(testdata("models/tiny"));
    config.adapters = vec![("tiny-lora".to_owned(), "/srv/models/tiny-lora".to_owned())];
    config.max_model_len = 2_048;
    config.tokens.vocabulary = 4_096;
    config
}

fn sample(name: &str) -> String {
    std::fs::read_to_string(testdata("http-vllm-0.32.0").join(name)).unwrap()
}

fn sample_json(name: &str) -> Value {
    serde_json::from_str(&sample(name)).unwrap()
}

/// The same fields in the same order, with values of the same kinds.
fn same_shape(at: &str, theirs: &Value, ours: &Value) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys =
                |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(a), keys(b), "fields at {at}");
            for (key, value) in a {
                same_shape(&format!("{at}.{key}"), value, &b[key]);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.is_empty(), b.is_empty(), "{at}");
            for (i, value) in b.iter().enumerate() {
                same_shape(&format!("{at}[{i}]"), a.get(i).unwrap_or(&a[0]), value);
            }
        }
        (a, b) => assert_eq!(
            std::mem::discriminant(a),
            std::mem::discriminant(b),
            "{at}: recorded {a}, here {b}"
        ),
    }
}

fn hello() -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello there"}],
        "max_tokens": 4, "return_token_ids": true})
}

#[tokio::test]
async fn pages_have_the_recorded_shapes() {
    let server = start(recorded_server()).await;
    for (path, name) in [
        ("/version", "version.body"),
        ("/load", "load.body"),
        ("/v1/models", "models_lora.body"),
        ("/kv_event_sources", "kv_event_sources.body"),
    ] {
        same_shape(path, &sample_json(name), &fetch(&server, path).await);
    }
    assert_eq!(fetch(&server, "/version").await, sample_json("version.body"));
    let models = fetch(&server, "/v1/models").await;
    assert_eq!(models["data"][0]["max_model_len"], 2048);
    assert_eq!(models["data"][1]["parent"], "tiny");
    for path in ["/health", "/ping"] {
        let response = get(addr(&server), path).await.unwrap();
        assert_eq!((response.status, response.body.len()), (200, 0));
        assert_eq!(response.head.header("server"), Some("uvicorn"));
    }
}

#[tokio::test]
async fn tokenize_gives_the_recorded_tokens() {
    let server = start(recorded_server()).await;
    let body = json!({"model": "tiny", "prompt": "Hello there"});
    assert_eq!(ask(&server, "/tokenize", &body).await, sample_json("tokenize_prompt.body"));
    let messages = json!([{"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Hello there"}]);
    let body = json!({"model": "tiny", "messages": messages, "add_generation_prompt": true});
    let mut recorded = sample_json("tokenize_chat.body");
    recorded["token_strs"] = Value::Null;
    assert_eq!(ask(&server, "/tokenize", &body).await, recorded);
    let back = ask(&server, "/detokenize", &json!({"model": "tiny", "tokens": [0, 1]})).await;
    assert_eq!(back, json!({"prompt": " ba da"}));
}

#[tokio::test]
async fn chats_have_the_recorded_shapes() {
    let silent = SimServerConfig { report_cached_tokens: false, ..recorded_server() };
    let server = start(silent).await;
    let recorded = sample_json("chat.body");
    let answer = ask(&server, "/v1/chat/completions", &hello()).await;
    same_shape("chat", &recorded, &answer);
    assert_eq!(answer["prompt_token_ids"], recorded["prompt_token_ids"]);
    assert_eq!(answer["usage"], recorded["usage"]);

    let mut body = hello();
    body["max_tokens"] = json!(3);
    body["stream_options"] = json!({"include_usage": true});
    let recorded: Vec<Value> = sample("chat_stream.body")
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let ours = chunks(&mut stream(&server, "/v1/chat/completions", &body).await).await;
    assert_eq!(ours.len(), recorded.len());
    for (i, (theirs, ours)) in recorded.iter().zip(&ours).enumerate() {
        same_shape(&format!("chunk {i}"), theirs, ours);
    }
    assert_eq!(ours.last().unwrap()["usage"], recorded.last().unwrap()["usage"]);
}

#[tokio::test]
async fn refusals_are_the_recorded_ones() {
    let server = start(recorded_server()).await;
    let body = json!({"model": "nope", "prompt": "Hello"});
    let response = send(&server, "/v1/completions", &body).await;
    assert_eq!((response.status, response.json()), (404, sample_json("bad_model.body")));
    let body = json!({"model": "tiny", "prompt": "Hello", "max_tokens": 99_999});
    let response = send(&server, "/v1/completions", &body).await;
    assert_eq!((response.status, response.json()), (400, sample_json("too_long.body")));
}

/// Sends the requests of a recording, one after the other, and compares every answer's shape and
/// usage: the cache must hit exactly what the real one hit.
async fn replay(capture: &str, config: SimServerConfig) -> usize {
    let server = start(config).await;
    let text = std::fs::read_to_string(testdata("captures").join(capture)).unwrap();
    let mut compared = 0;
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["kind"] != "request" {
            continue;
        }
        let (path, step) = (record["path"].as_str().unwrap(), &record["step"]);
        let theirs = &record["response"];
        if path == "/reset_prefix_cache" {
            let ours = send(&server, path, &Value::Null).await;
            let body = if ours.body.is_empty() { json!("") } else { ours.json() };
            assert_eq!((ours.status, &body), (200, theirs));
            continue;
        }
        let ours = ask(&server, path, &record["body"]).await;
        same_shape(&format!("{capture} {step}"), theirs, &ours);
        assert_eq!(ours["usage"], theirs["usage"], "{capture} {step}");
        compared += 1;
    }
    compared
}

#[tokio::test]
async fn usage_is_that_of_the_recorded_servers() {
    assert_eq!(replay("0.32.0-sha256_cbor-int-lora.jsonl", recorded_server()).await, 24);
    let mut old = recorded_server();
    old.version = "0.20.2".to_owned();
    (old.engine.block_size, old.engine.num_blocks) = (16, 192);
    assert_eq!(replay("0.20.2-sha256_cbor-int.jsonl", old).await, 22);
}

/// Families of a metrics page: their types, and the label names of each sample.
type Families = BTreeMap<String, (String, BTreeMap<String, Vec<Vec<String>>>)>;

fn families(page: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            current = name.to_owned();
            families.insert(current.clone(), (kind.to_owned(), BTreeMap::new()));
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            let labels = labels.strip_suffix('}').unwrap();
            let names = labels.split("\",").filter_map(|pair| pair.split_once('=')).map(|p| p.0);
            let (_, samples) = families.get_mut(&current).unwrap();
            samples.entry(name.to_owned()).or_default().push(names.map(str::to_owned).collect());
        }
    }
    families
}

#[tokio::test]
async fn metrics_are_families_of_the_recorded_page() {
    let server = start(recorded_server()).await;
    let before = get(addr(&server), "/metrics").await.unwrap().text();
    assert!(before.contains("vllm:request_success_total{engine=\"0\",finished_reason=\"stop\""));
    assert!(!before.contains("http_requests_total"), "no request of a counted kind yet");
    some_work(&server).await;
    let ours = families(&get(addr(&server), "/metrics").await.unwrap().text());
    let theirs = families(&sample("metrics_lora.txt"));
    for (name, (kind, samples)) in &ours {
        let (their_kind, their_samples) =
            theirs.get(name).unwrap_or_else(|| panic!("{name} is not in the recorded page"));
        assert_eq!(kind, their_kind, "{name}");
        for (sample, labels) in samples {
            let of_theirs = &their_samples[sample];
            for names in labels {
                if name == "vllm:cache_config_info" {
                    assert!(names.iter().all(|label| of_theirs[0].contains(label)), "{names:?}");
                } else {
                    assert!(of_theirs.contains(names), "{sample}: {names:?}");
                }
            }
        }
    }
    for name in [
        "process_start_time_seconds",
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_hits_total",
        "vllm:time_to_first_token_seconds",
        "vllm:request_success_total",
        "vllm:lora_requests_info",
        "http_requests_total",
    ] {
        assert!(ours.contains_key(name), "{name}");
    }
}

async fn some_work(server: &SimServer) {
    let body = json!({"model": "tiny-lora", "prompt": "Hello there", "max_tokens": 2});
    ask(server, "/v1/completions", &body).await;
    ask(server, "/v1/chat/completions", &hello()).await;
}
