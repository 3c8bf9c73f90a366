//! Heads of requests: what clients may list in `Connection`, how many lines there may be, and how long
//! they may be.

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::{Value, json};

use crate::harness::{
    COMPLETIONS, ConfigFile, Decision, Gateway, Lockstep, SOON, completion, ids, pool, pool_at,
};

async fn sent(gateway: &Gateway, headers: &[(&str, &str)], body: &Value) -> RawClient {
    let mut client = gateway.connect().await;
    let headers = [&[("content-type", "application/json")][..], headers].concat();
    client.send("POST", COMPLETIONS, &headers, body.to_string().as_bytes()).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_connection_names_is_read_by_the_gateway_and_goes_no_further() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut pool = pool("tiny", &[&engine]);
    pool["trust_token_headers"] = true.into();
    pool["admission"] = json!({"max_requests": 1, "timeout_header": "x-timeout",
        "queue": {"places": 4, "max_wait_ms": 600_000}});
    let gateway = Gateway::over(pool).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    let chat = json!({"model": "tiny", "prompt": "some words"});
    let named = [
        ("connection", "x-rolter-vllm-token-ids, X-Timeout, x-mine, authorization, anthropic-beta"),
        ("x-rolter-vllm-token-ids", "1,2,3"),
        ("x-timeout", "600"),
        ("x-mine", "1"),
        ("authorization", "Bearer client"),
        ("anthropic-beta", "b"),
    ];
    let response = sent(&gateway, &named, &chat).await.response().await.unwrap();
    assert_eq!(Decision::of(&response).tokens, "header", "the client's ids were read");
    let got = engine.wait_for(1, SOON).await.pop().unwrap();
    for name in ["connection", "x-timeout", "x-mine"] {
        assert_eq!(got.header(name), "", "{name} is for the next hop");
    }
    let kept = (got.header("authorization"), got.header("anthropic-beta"));
    assert_eq!(kept, ("Bearer client", "b"), "for everybody");
    assert!(got.header("content-type") == "application/json" && !got.header("host").is_empty());
    // It waits for as long as it said, and not for as long as it may.
    engine.push([Reply::HangBeforeHead]);
    let at_work = sent(&gateway, &[], &completion(&[1])).await;
    engine.wait_for(2, SOON).await;
    let named = [("connection", "close, x-timeout"), ("x-timeout", "0.2")];
    let refused = sent(&gateway, &named, &completion(&[1])).await.response().await.unwrap();
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_timeout")));
    drop(at_work);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_get_a_hundred_lines_at_most() {
    let collector = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut engine = Lockstep::start().await;
    let mut pool = pool_at("tiny", &[engine.url()]);
    pool["api_key"] = "pool-key".into();
    let tracing = json!({"otlp_endpoint": collector.url(), "sample_ratio": 1.0});
    let gateway = Gateway::start(json!({"pools": [pool], "tracing": tracing})).await;
    // With `host`, in chunks: as much as possible is to be added.
    let head = |lines: usize| {
        let more: String = (2..lines).map(|n| format!("x-{n}: 1\r\n")).collect();
        format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n{more}\r\n2\r\n{{}}\r\n0\r\n\r\n"
        )
    };
    let mut client = gateway.connect().await;
    client.write(head(90).as_bytes()).await.unwrap();
    let mut exchange = engine.next().await;
    let lines = exchange.head.trim_end().lines().count() - 1;
    assert!(lines <= 100 && exchange.head.contains("traceparent: "), "{lines} {}", exchange.head);
    exchange.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    assert_eq!(client.response().await.unwrap().status, 200);
    for lines in [91, 100] {
        let mut client = gateway.connect().await;
        client.write(head(lines).as_bytes()).await.unwrap();
        let refused = client.response().await.unwrap();
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["code"]), (431, &json!("too_many_headers")), "{lines}");
        assert!(error["message"].as_str().unwrap().contains("90 header lines"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_heads_may_be_follows_the_configuration_in_new_connections() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = |trusted: bool| {
        let mut pool = pool("tiny", &[&engine]);
        pool["trust_token_headers"] = trusted.into();
        json!({"pools": [pool]})
    };
    let file = ConfigFile::of(&config(false));
    let gateway = Gateway::of_file(&file).await;
    let ids: Vec<String> = ids(1, 80_000).iter().map(ToString::to_string).collect();
    let header = [("x-kvasir-token-ids", &*ids.join(","))];
    // One that is long refused may be refused before it is read.
    let status = async || {
        let mut client = gateway.connect().await;
        let body = completion(&[1]).to_string();
        let _ = client.send("POST", COMPLETIONS, &header, body.as_bytes()).await;
        client.head().await.map(|head| head.status).unwrap()
    };
    assert_eq!(status().await, 431);
    gateway.reload(&file, &config(true)).await;
    assert_eq!(status().await, 200);
    gateway.reload(&file, &config(false)).await;
    assert_eq!(status().await, 431);
}
