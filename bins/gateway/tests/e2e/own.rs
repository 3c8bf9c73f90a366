//! What the gateway answers itself.

use std::time::{Duration, Instant};

use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply};
use serde_json::{Value, json};

use crate::harness::{CHAT, COMPLETIONS, Gateway, Replica, SOON, completion, ids, pool, until};

async fn engine(models: &[&str]) -> FakeEngine {
    let models = models.iter().map(|model| Model::base(*model)).collect();
    FakeEngine::start(EngineConfig { models, ..EngineConfig::default() }).await.unwrap()
}

/// Two engines with a model each, everything echoed.
async fn two_models() -> (FakeEngine, FakeEngine, Gateway) {
    let (one, two) = (engine(&["one"]).await, engine(&["two"]).await);
    for engine in [&one, &two] {
        engine.set_default(Reply::Echo);
    }
    let pools = json!({"pools": [pool("one", &[&one]), pool("two", &[&two])],
        "forward_paths": ["/v1/audio/*", "/pooling"]});
    let gateway = Gateway::start(pools).await;
    (one, two, gateway)
}

/// An error object in OpenAI's shape with this status and code; its message.
#[track_caller]
fn refusal(response: &Response, status: u16, code: &str) -> String {
    let text = response.text();
    assert_eq!(response.status, status, "{text}");
    assert_eq!(response.head.header("content-type"), Some("application/json"), "{text}");
    let json = response.json();
    let error = json["error"].as_object().unwrap_or_else(|| panic!("{text}"));
    let keys: Vec<&str> = error.keys().map(String::as_str).collect();
    assert_eq!(keys, ["message", "type", "param", "code"]);
    assert_eq!(error["code"], code);
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    assert_eq!(error["type"], kind);
    error["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_models_are_those_of_the_pools_with_what_the_engines_say_of_them() {
    let models = vec![Model::base("tiny"), Model::adapter("ad", "tiny")];
    let config = EngineConfig { models, ..EngineConfig::default() };
    let engine = FakeEngine::start(config).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
    let page = until(SOON, || async {
        let page = gateway.get("/v1/models").await.json();
        if page["data"].as_array().unwrap().len() == 2 { Ok(page) } else { Err(page.to_string()) }
    })
    .await;
    assert_eq!(page["object"], "list");
    let (base, adapter) = (&page["data"][0], &page["data"][1]);
    assert_eq!((&base["id"], &base["object"]), (&json!("tiny"), &json!("model")));
    assert_eq!((&base["max_model_len"], &base["parent"]), (&json!(2048), &Value::Null));
    assert_eq!((&adapter["id"], &adapter["parent"]), (&json!("ad"), &json!("tiny")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_before_an_engine_has_answered_and_ready_after() {
    let engine = engine(&["tiny"]).await;
    engine.stop().await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    for _ in 0..3 {
        assert_eq!(gateway.get("/readyz").await.status, 503, "from the first moment on");
    }
    assert_eq!(gateway.get("/health").await.status, 200);
    engine.resume().unwrap();
    let ready = until(SOON, || async {
        let ready = gateway.get("/readyz").await;
        if ready.status == 200 { Ok(ready.json()) } else { Err(ready.text()) }
    })
    .await;
    assert_eq!(ready["pools"]["tiny"]["endpoints"][engine.url()], "ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_without_an_engine_is_named_and_leaves_the_others_ready() {
    let (one, other) = (engine(&["one"]).await, engine(&["other"]).await);
    let pools = json!([pool("one", &[&one]), pool("other", &[&other])]);
    let gateway = Gateway::start(json!({ "pools": pools })).await;
    gateway.until_metric("kvasir_pool_ready", &[], 2.0).await;
    assert_eq!(gateway.get("/readyz").await.json()["without_endpoint"], json!([]));
    one.stop().await.unwrap();
    gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
    let ready = gateway.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["without_endpoint"]), (200, &json!(["one"])));
    other.stop().await.unwrap();
    gateway.until_metric("kvasir_pool_ready", &[], 0.0).await;
    assert_eq!(gateway.get("/readyz").await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_page_is_one_a_scraper_takes_and_counts_what_happened() {
    let replica = Replica::start().await;
    let gateway = Gateway::over(pool("tiny", &[&replica.engine])).await;
    gateway.until_learned(&[&replica]).await;
    for _ in 0..2 {
        assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await.status, 200);
        gateway.until_blocks(&replica, 4).await;
    }
    assert_eq!(gateway.get("/nowhere").await.status, 404);
    let page = gateway.get("/metrics").await;
    let kind = page.head.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    // Strict: see the reader.
    let page = gateway.metrics().await;
    for (name, labels, value) in [
        ("kvasir_requests_total", &[("model", "tiny"), ("status", "200")][..], 2.0),
        ("kvasir_requests_total", &[("model", ""), ("status", "404")], 1.0),
        ("kvasir_decisions_total", &[("model", "tiny")], 2.0),
        ("kvasir_prompts_total", &[("tokens", "exact")], 2.0),
        ("kvasir_prompt_tokens_total", &[("model", "tiny")], 128.0),
        ("kvasir_predicted_cached_tokens_total", &[("model", "tiny")], 48.0),
        ("kvasir_request_seconds_count", &[("model", "tiny")], 2.0),
        ("kvasir_endpoint_block_size", &[("endpoint", &replica.url())], 16.0),
    ] {
        assert_eq!(page.sum(name, labels), Some(value), "{name} {labels:?}");
    }
    assert_eq!(page.kind("kvasir_requests_total"), Some("counter"));
    assert_eq!(page.kind("kvasir_endpoint_in_flight"), Some("gauge"));
    assert_eq!(page.kind("kvasir_request_seconds"), Some("histogram"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_and_administrative_paths_are_not_forwarded() {
    let (one, two, gateway) = two_models().await;
    for path in [
        "/",
        "/v1",
        "/v1/models/one",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/reset_prefix_cache",
        "/sleep",
        "/wake_up",
        "/update_weights",
        "/abort_requests",
        "/metrics/",
        "/v1/completions/",
        "//v1/completions",
        "/v1/../v1/completions",
        "/v1/audio/../load_lora_adapter",
        "/v1/audio/%2e%2e/load_lora_adapter",
        "/pooling/x",
    ] {
        let response = gateway.post(path, &json!({"model": "one"})).await;
        let message = refusal(&response, 404, "unknown_path");
        assert!(message.contains(path), "{message}");
    }
    for engine in [&one, &two] {
        assert_eq!(engine.requests().len(), 0);
        let asked = engine.info_requests();
        assert!(asked.iter().all(|request| request.method == "GET"), "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_reaches_a_client_that_sends_everything_first() {
    let (_one, _two, gateway) = two_models().await;
    let big = vec![b' '; 4 << 20];
    for (path, status, code) in
        [("/nowhere", 404, "unknown_path"), ("/v1/models", 405, "method_not_allowed")]
    {
        for _ in 0..3 {
            refusal(&gateway.post_bytes(path, &big).await, status, code);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_paths_are_forwarded_by_load() {
    let engine = engine(&["tiny"]).await;
    engine.set_default(Reply::Echo);
    let config = json!({"pools": [pool("tiny", &[&engine])],
        "forward_paths": ["/v1/audio/*", "/pooling"]});
    let gateway = Gateway::start(config).await;
    let form = b"--x\r\ncontent-disposition: form-data; name=\"f\"\r\n\r\n\xff\x00\r\n--x--\r\n";
    let mut client = gateway.connect().await;
    let kind = ("content-type", "multipart/form-data; boundary=x");
    client.send("POST", "/v1/audio/transcriptions?a=b", &[kind], form).await.unwrap();
    let response = client.response().await.unwrap();
    assert_eq!((response.status, &response.body[..]), (200, &form[..]));
    assert_eq!(response.head.header("content-type"), Some(kind.1));
    let reason = response.head.header("x-kvasir-reason").unwrap();
    assert!(reason.contains("tokens=not_json"), "{reason}");
    client.send("GET", "/pooling", &[], b"").await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);
    let seen: Vec<_> = engine.requests().into_iter().map(|r| (r.method, r.path)).collect();
    let seen: Vec<_> = seen.iter().map(|(m, p)| (m.as_str(), p.as_str())).collect();
    assert_eq!(seen, [("POST", "/v1/audio/transcriptions?a=b"), ("GET", "/pooling")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_method_is_told_the_right_ones() {
    let (_one, _two, gateway) = two_models().await;
    for (method, path, allow) in [
        ("GET", COMPLETIONS, "POST, OPTIONS"),
        ("DELETE", CHAT, "POST, OPTIONS"),
        ("PUT", "/v1/embeddings", "POST, OPTIONS"),
        ("POST", "/v1/models", "GET, HEAD, OPTIONS"),
        ("DELETE", "/metrics", "GET, HEAD, OPTIONS"),
    ] {
        let mut client = gateway.connect().await;
        client.send(method, path, &[], b"").await.unwrap();
        let response = client.response().await.unwrap();
        refusal(&response, 405, "method_not_allowed");
        assert_eq!(response.head.header("allow"), Some(allow), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_json_is_refused_with_the_position() {
    let (one, two, gateway) = two_models().await;
    for (body, position) in [
        (&b"{\"model\": \"one\",\n \"prompt\": [1, 2}"[..], "line 2, column 17"),
        (b"", "line 1, column 1"),
        (b"{", "line 1, column 2"),
        (b"{\"model\":\"one\"} x", "line 1, column 17"),
        (b"{\"model\":\"\xff\"}", "line 1, column 11"),
    ] {
        for path in [COMPLETIONS, CHAT, "/v1/embeddings"] {
            let response = gateway.post_bytes(path, body).await;
            let message = refusal(&response, 400, "invalid_body");
            let text = String::from_utf8_lossy(body);
            assert!(message.contains(position), "{text}: {message}");
        }
    }
    for body in [&b"[1]"[..], b"\"text\"", b"7", b"{\"model\": 7}", b"{\"model\": [\"one\"]}"] {
        refusal(&gateway.post_bytes(COMPLETIONS, body).await, 400, "invalid_body");
    }
    assert_eq!(one.requests().len() + two.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_limit_is_refused_cleanly() {
    let engine = engine(&["tiny"]).await;
    engine.set_default(Reply::Echo);
    let config = json!({"pools": [pool("tiny", &[&engine])], "max_body_bytes": 100_000});
    let gateway = Gateway::start(config).await;
    // Sends everything, then reads: the refusal must not be lost in a reset.
    for size in [100_001, 8 << 20] {
        let body = vec![b' '; size];
        let message = refusal(&gateway.post_bytes(COMPLETIONS, &body).await, 413, "body_too_large");
        assert!(message.contains("100000"), "{message}");
        let mut client = gateway.connect().await;
        client.start_chunked("POST", COMPLETIONS, &[]).await.unwrap();
        for piece in body.chunks(64 << 10) {
            client.chunk(piece).await.unwrap();
        }
        client.finish_chunks().await.unwrap();
        refusal(&client.response().await.unwrap(), 413, "body_too_large");
    }
    // One that asks first is told before it sends.
    let mut client = gateway.connect().await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\n\
        content-length: 100001\r\n\r\n";
    client.write(head.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 413, "not 100: nothing needs to be sent");
    assert_eq!(engine.requests().len(), 0);
    let mut body = br#"{"model":"tiny"}"#.to_vec();
    body.resize(100_000, b' ');
    assert_eq!(gateway.post_bytes(COMPLETIONS, &body).await.status, 200, "exactly at the limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_a_body_that_nobody_reads_is_told_at_once() {
    let engine = engine(&["tiny"]).await;
    let config = json!({"pools": [pool("tiny", &[&engine])], "max_body_bytes": 100_000});
    let gateway = Gateway::start(config).await;
    for (target, status, code, closes) in
        [(COMPLETIONS, 413, "body_too_large", true), ("/nowhere", 404, "unknown_path", false)]
    {
        // Nothing of the body is sent.
        let mut client = gateway.connect().await;
        let head = format!("POST {target} HTTP/1.1\r\nhost: g\r\ncontent-length: 100001\r\n\r\n");
        let asked = Instant::now();
        client.write(head.as_bytes()).await.unwrap();
        let answer = client.response().await.unwrap();
        let took = asked.elapsed();
        refusal(&answer, status, code);
        // Reading on would take five seconds.
        assert!(took < Duration::from_secs(4), "{target}: {took:?}");
        let is_closed = answer.head.header("connection") == Some("close");
        assert_eq!(is_closed, closes, "{target}");
        if closes {
            let rest = client.read_raw().await.unwrap();
            assert!(rest.is_empty(), "{rest:?}");
        }
    }
    assert!(engine.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_response_that_nobody_knows_is_looked_for_where_there_is_one_model_to_ask() {
    let (one, two, gateway) = two_models().await;
    for (method, path) in
        [("GET", "/v1/responses/resp_none"), ("POST", "/v1/responses/resp_none/cancel")]
    {
        let mut client = gateway.connect().await;
        client.send(method, path, &[], b"").await.unwrap();
        let message = refusal(&client.response().await.unwrap(), 404, "response_not_found");
        assert!(message.contains("`resp_none`") && message.contains("`X-Model`"), "{message}");
        client.send(method, path, &[("x-model", "two")], b"").await.unwrap();
        assert_eq!(client.response().await.unwrap().status, 200, "its engine is asked");
    }
    assert_eq!((one.requests().len(), two.requests().len()), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_find_their_pool_by_body_then_header_then_the_only_one() {
    let (one, two, gateway) = two_models().await;
    let ask = async |path: &str, kind: &str, header: Option<&str>, body: &str| {
        let mut headers = vec![("content-type", kind)];
        headers.extend(header.map(|model| ("x-model", model)));
        let mut client = gateway.connect().await;
        client.send("POST", path, &headers, body.as_bytes()).await.unwrap();
        client.response().await.unwrap()
    };
    let json = "application/json";
    for (path, kind, header, body, expected) in [
        (COMPLETIONS, json, None, r#"{"model":"one"}"#, &one),
        (COMPLETIONS, json, None, r#"{"model":"two"}"#, &two),
        (COMPLETIONS, json, Some("one"), r#"{"model":"two"}"#, &two),
        (COMPLETIONS, json, Some("two"), r#"{"prompt":[1]}"#, &two),
        (COMPLETIONS, json, Some("two"), r#"{"model":null}"#, &two),
        (COMPLETIONS, json, Some("two"), r#"{"model":""}"#, &two),
        (COMPLETIONS, json, None, r#"{"model":"one","model":"two"}"#, &two),
        ("/v1/audio/speech", json, None, r#"{"model":"two","input":"Hi"}"#, &two),
        ("/v1/audio/speech", "audio/wav", Some("one"), "RIFF", &one),
        ("/v1/audio/speech", "multipart/form-data; boundary=x", Some("two"), "--x--", &two),
    ] {
        let response = ask(path, kind, header, body).await;
        assert_eq!(response.status, 200, "{header:?} {body}: {}", response.text());
        let endpoint = response.head.header("x-kvasir-endpoint");
        assert_eq!(endpoint, Some(&*expected.url()), "{header:?} {body}");
    }
    gateway.until_known().await;
    for (path, kind, header, body, status, code) in [
        (COMPLETIONS, json, None, r#"{"prompt":[1]}"#, 400, "model_required"),
        (COMPLETIONS, json, None, r#"{"model":""}"#, 400, "model_required"),
        ("/v1/audio/speech", "audio/wav", None, "RIFF", 400, "model_required"),
        (COMPLETIONS, json, None, r#"{"model":"three"}"#, 404, "model_not_found"),
        (COMPLETIONS, json, Some("three"), "{}", 404, "model_not_found"),
    ] {
        let response = ask(path, kind, header, body).await;
        let message = refusal(&response, status, code);
        assert_eq!(response.json()["error"]["param"], "model");
        assert!(status == 400 || message.contains("three"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_pool_no_model_need_be_named() {
    let engine = engine(&["tiny"]).await;
    engine.set_default(Reply::Echo);
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    for body in ["{}", r#"{"model":null}"#, r#"{"model":""}"#] {
        assert_eq!(gateway.post_bytes(COMPLETIONS, body.as_bytes()).await.status, 200, "{body}");
    }
    // Whatever is no JSON is the engine's to judge.
    for (name, value) in
        [("content-type", "multipart/form-data; boundary=x"), ("content-encoding", "gzip")]
    {
        let mut client = gateway.connect().await;
        client.send("POST", COMPLETIONS, &[(name, value)], b"\x1f\x8b odd").await.unwrap();
        let response = client.response().await.unwrap();
        assert_eq!((response.status, &response.body[..]), (200, &b"\x1f\x8b odd"[..]));
    }
    gateway.until_known().await;
    refusal(&gateway.post(COMPLETIONS, &json!({"model": "other"})).await, 404, "model_not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_are_not_told_unless_asked_for() {
    let engine = engine(&["tiny"]).await;
    let config = json!({"pools": [pool("tiny", &[&engine])], "decision_headers": false});
    let gateway = Gateway::start(config).await;
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2])).await;
    assert_eq!(response.status, 200);
    let told = response.head.headers.iter().any(|(name, _)| name.starts_with("x-kvasir"));
    assert!(!told, "{:?}", response.head.headers);
}
