//! What the engine receives: the client's bytes and headers.

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Recorded, Reply};
use serde_json::json;

use crate::harness::{CHAT, COMPLETIONS, Gateway, SOON, pool, until};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A body no serialiser would write: odd spacing, duplicate keys, escapes, big integers, fields
/// nobody knows.
const ODD: &[u8] = b"\n { \"model\" :\t\"other\",\"model\":\"\\u0074iny\" , \"prompt\":[1,\r\n2 ,3],
  \"return_token_ids\":true,\"stream_options\" : {\"include_usage\":true, \"x\":{}}, \"unknown\":[],
  \"big\":123456789012345678901234567890, \"f\":1.0e+2, \"neg\":-0, \"esc\":\"\\/\\ud83d\\ude00 \\u0000\",
  \"raw\":\"\xf0\x9f\x98\x80\", \"nan\":NaN, \"unknown\":null, \"tools\":[{\"type\" :\"function\"}] } \n";

struct Scene {
    engine: FakeEngine,
    gateway: Gateway,
}

impl Scene {
    /// An engine that answers with what it got.
    async fn new() -> Self {
        let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
        engine.set_default(Reply::Echo);
        let gateway = Gateway::over(pool("tiny", &[&engine])).await;
        Self { engine, gateway }
    }

    async fn last(&self) -> Recorded {
        self.engine.wait_idle(SOON).await.pop().unwrap()
    }
}

fn megabyte() -> Vec<u8> {
    let words = "the quick brown fox ".repeat(50_000);
    json!({"model": "tiny", "prompt": words, "max_tokens": 1}).to_string().into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_gets_the_body_byte_for_byte() {
    let scene = Scene::new().await;
    let tools = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": 1}}}],
        "tool_choice": "auto", "logit_bias": {"1": -100}, "seed": 18446744073709551615_u64});
    for body in [ODD.to_vec(), tools.to_string().into_bytes(), megabyte(), b"{}".to_vec()] {
        for path in [COMPLETIONS, CHAT] {
            let response = scene.gateway.post_bytes(path, &body).await;
            let got = scene.last().await;
            assert_eq!(got.body, body, "{path}");
            assert_eq!((response.status, &response.body[..]), (200, &body[..]), "{path}");
            assert_eq!(got.header("content-length"), body.len().to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_sent_in_chunks_arrives_as_it_is_however_it_is_cut() {
    let scene = Scene::new().await;
    for (body, size) in [(ODD.to_vec(), 1), (ODD.to_vec(), 7), (megabyte(), 100_000)] {
        let mut client = scene.gateway.connect().await;
        client.start_chunked("POST", COMPLETIONS, &[JSON]).await.unwrap();
        for piece in body.chunks(size) {
            client.chunk(piece).await.unwrap();
        }
        client.finish_chunks().await.unwrap();
        assert_eq!(client.response().await.unwrap().body, body);
        let got = scene.last().await;
        assert_eq!(got.body, body);
        assert_eq!(got.header("transfer-encoding"), "", "the framing is between two hops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn method_path_and_query_pass_as_they_are() {
    let scene = Scene::new().await;
    for query in ["", "?", "?a=1&a=%20b%2Fc&&", "?x=%C3%A9;'()"] {
        let path = format!("{COMPLETIONS}{query}");
        scene.gateway.post(&path, &json!({"model": "tiny"})).await;
        let got = scene.last().await;
        assert_eq!((got.method, got.path), ("POST".to_owned(), path));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_to_end_headers_pass_and_those_of_the_connection_do_not() {
    let scene = Scene::new().await;
    let sent = [
        JSON,
        ("authorization", "Bearer client-key"),
        ("X-Request-Id", "req-1"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("user-agent", "a test/1.0 (odd; \"agent\")"),
        ("accept-encoding", "gzip"),
        ("x-many", "one"),
        ("x-many", "two, three"),
        ("x-empty", ""),
        ("cookie", "a=b; c=d"),
        ("x-data-parallel-rank", "1"),
        ("connection", "keep-alive, X-Secret-Hop"),
        ("x-secret-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("expect", "100-continue"),
    ];
    let mut client = scene.gateway.connect().await;
    client.send("POST", COMPLETIONS, &sent, b"{\"model\":\"tiny\"}").await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);
    let got = scene.last().await;
    let mut names: Vec<&str> = got.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let mut expected: Vec<String> = sent[..11].iter().map(|h| h.0.to_lowercase()).collect();
    expected.extend(["host", "content-length"].map(str::to_owned));
    expected.extend(["for", "proto", "host"].map(|name| format!("x-forwarded-{name}")));
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(names, expected);
    for (name, value) in &sent[..11] {
        let values: Vec<&str> =
            got.headers.get_all(*name).iter().map(|v| v.to_str().unwrap()).collect();
        assert!(values.contains(value), "{name}: {values:?}");
    }
    assert_eq!(got.header("host"), scene.engine.addr().to_string(), "the engine's own name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pools_key_replaces_the_clients() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_default(Reply::Echo);
    let mut config = pool("tiny", &[&engine]);
    config["api_key"] = "pool-key".into();
    let gateway = Gateway::over(config).await;
    for sent in [&[JSON][..], &[JSON, ("authorization", "Bearer client-key")]] {
        let mut client = gateway.connect().await;
        client.send("POST", COMPLETIONS, sent, b"{}").await.unwrap();
        assert_eq!(client.response().await.unwrap().status, 200);
        let got = engine.wait_idle(SOON).await.pop().unwrap();
        let keys: Vec<_> = got.headers.get_all("authorization").iter().collect();
        assert_eq!(keys, ["Bearer pool-key"]);
    }
    let models = until(SOON, || async {
        let asked = engine.info_requests();
        let found = asked.iter().find(|request| request.path == "/v1/models").cloned();
        found.ok_or_else(|| format!("{asked:?}"))
    })
    .await;
    assert_eq!(models.header("authorization"), "Bearer pool-key", "engines may guard this too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_carries_many_requests_also_pipelined_ones() {
    let scene = Scene::new().await;
    let mut client = scene.gateway.connect().await;
    for n in 0..20 {
        let body = json!({"model": "tiny", "n": n}).to_string();
        client.send("POST", COMPLETIONS, &[JSON], body.as_bytes()).await.unwrap();
        assert_eq!(client.response().await.unwrap().text(), body);
    }
    let bodies: Vec<String> = (0..5).map(|n| json!({"piped": n}).to_string()).collect();
    for body in &bodies {
        client.send("POST", COMPLETIONS, &[JSON], body.as_bytes()).await.unwrap();
    }
    for body in &bodies {
        assert_eq!(client.response().await.unwrap().text(), *body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_for_100_continue_is_told_to_go_on() {
    let scene = Scene::new().await;
    let mut client = scene.gateway.connect().await;
    let head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\n\
        content-length: 2\r\n\r\n";
    client.write(head).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 100);
    client.write(b"{}").await.unwrap();
    let response = client.response().await.unwrap();
    assert_eq!((response.status, response.text()), (200, "{}".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_framing_never_reaches_an_engine() {
    let scene = Scene::new().await;
    for head in [
        "POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}}",
        "POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: +2\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked, x\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\nz\r\n{}\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: g\r\nx y: 1\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let mut client = scene.gateway.connect().await;
        client.write(head.as_bytes()).await.unwrap();
        let status = read_status(&mut client).await;
        assert!(status.is_none_or(|status| status == 400), "{head:?}: {status:?}");
    }
    assert_eq!(scene.engine.requests().len(), 0);
}

/// The status of the answer; `None` when the connection is closed without one.
async fn read_status(client: &mut RawClient) -> Option<u16> {
    client.head().await.ok().map(|head| head.status)
}
