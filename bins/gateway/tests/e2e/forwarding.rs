//! What engines are told of a client, and what clients are told of their requests.

use std::collections::HashSet;

use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, RawEnd, RawStep, Recorded, Reply};
use serde_json::json;

use crate::harness::{COMPLETIONS, Gateway, SOON, pool};

struct Scene {
    engine: FakeEngine,
    gateway: Gateway,
}

impl Scene {
    async fn new(mode: Option<&str>) -> Self {
        let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
        engine.set_default(Reply::Echo);
        let mut config = json!({"pools": [pool("tiny", &[&engine])]});
        if let Some(mode) = mode {
            config["listener"] = json!({ "forwarded_headers": mode });
        }
        let gateway = Gateway::start(config).await;
        Self { engine, gateway }
    }

    async fn ask(&self, headers: &[(&str, &str)]) -> (Response, Recorded) {
        let mut client = self.gateway.connect().await;
        client.send("POST", COMPLETIONS, headers, b"{}").await.unwrap();
        let response = client.response().await.unwrap();
        (response, self.engine.wait_idle(SOON).await.pop().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_learn_where_requests_come_from() {
    let given = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-for", "198.51.100.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "api.example"),
        ("forwarded", "for=203.0.113.7"),
        ("via", "1.1 front"),
    ];
    let chain = "203.0.113.7, 198.51.100.1, 127.0.0.1";
    for (mode, expected) in [
        (None, [chain, "https", "api.example", "for=203.0.113.7"]),
        (Some("append"), [chain, "https", "api.example", "for=203.0.113.7"]),
        (Some("replace"), ["127.0.0.1", "http", "", ""]),
        (Some("off"), ["203.0.113.7", "https", "api.example", "for=203.0.113.7"]),
    ] {
        let scene = Scene::new(mode).await;
        let host = scene.gateway.addr().to_string();
        let expected = expected.map(|text| if text.is_empty() { &*host } else { text });
        let (_, got) = scene.ask(&given).await;
        let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        let seen = names.map(|name| got.header(name));
        assert_eq!(seen, expected[..3], "{mode:?}");
        let forwarded = if mode == Some("replace") { "" } else { expected[3] };
        assert_eq!(got.header("forwarded"), forwarded, "{mode:?}");
        assert_eq!(got.header("via"), "1.1 front", "nothing is added to it");
        let (_, got) = scene.ask(&[]).await;
        let own = ["127.0.0.1", "http", &host];
        let expected = if mode == Some("off") { ["", "", ""] } else { own };
        assert_eq!(names.map(|name| got.header(name)), expected, "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_has_one_id_everywhere() {
    let scene = Scene::new(None).await;
    let mut made = HashSet::new();
    for given in [
        &[("x-request-id", "req-7.of:mine")][..],
        &[],
        &[("x-request-id", "not sane")],
        &[("x-request-id", "a"), ("x-request-id", "b")],
    ] {
        let (response, got) = scene.ask(given).await;
        let id = response.head.header("x-request-id").unwrap().to_owned();
        if given == [("x-request-id", "req-7.of:mine")] {
            assert_eq!(id, "req-7.of:mine");
        } else {
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        }
        let seen: Vec<_> = got.headers.get_all("x-request-id").iter().collect();
        assert_eq!(seen, [&*id], "the engine's");
        scene.gateway.access_line(|line| line["request_id"] == *id).await;
        assert!(made.insert(id));
    }
    for path in ["/nowhere", "/health", "/v1/models"] {
        let response = scene.gateway.get(path).await;
        let id = response.head.header("x-request-id").unwrap().to_owned();
        assert!(made.insert(id), "own answers have one too");
    }
    // An engine that names another does not confuse anybody.
    let head = "HTTP/1.1 200 OK\r\nx-request-id: engine-1\r\ncontent-length: 2\r\n\r\n{}";
    scene.engine.push([Reply::Raw(vec![RawStep::Write(head.into())], RawEnd::Close)]);
    let (response, _) = scene.ask(&[("x-request-id", "mine")]).await;
    let ids: Vec<_> =
        response.head.headers.iter().filter(|(name, _)| name == "x-request-id").collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(ids[0].1, "mine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_connection_names_is_dropped_unless_it_is_for_everybody() {
    let scene = Scene::new(None).await;
    let (_, got) = scene
        .ask(&[
            ("connection", "authorization, X-Model, traceparent, x-hop, content-type, te"),
            ("authorization", "Bearer theirs"),
            ("x-model", "tiny"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("tracestate", "vendor=1"),
            ("content-type", "application/json"),
            ("x-hop", "1"),
            ("te", "trailers"),
        ])
        .await;
    assert_eq!(got.header("authorization"), "Bearer theirs");
    assert_eq!(got.header("x-model"), "tiny");
    assert_eq!(
        got.header("traceparent"),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    );
    assert_eq!(got.header("tracestate"), "vendor=1");
    assert_eq!(got.header("content-type"), "application/json");
    assert_eq!((got.header("x-hop"), got.header("te")), ("", ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_answers_pass_where_the_client_takes_them() {
    let scene = Scene::new(None).await;
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\n{}\r\n0\r\nx-sum: 7\r\nx-unannounced: 1\r\n\r\n";
    for (te, expected) in [(&[("te", "trailers")][..], "x-sum: 7\r\n"), (&[], "")] {
        scene.engine.push([Reply::Raw(vec![RawStep::Write(answer.into())], RawEnd::Close)]);
        let mut client = scene.gateway.connect().await;
        client.send("POST", COMPLETIONS, te, b"{}").await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") || !String::from_utf8_lossy(&seen).contains("\r\n0\r\n")
        {
            let piece = client.read_raw().await.unwrap();
            assert!(!piece.is_empty(), "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece);
        }
        let text = String::from_utf8(seen).unwrap();
        let end = text.split("\r\n0\r\n").nth(1).unwrap();
        assert_eq!(end, format!("{expected}\r\n"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_and_options_are_answered_as_they_should() {
    let scene = Scene::new(None).await;
    for (method, path, status, allow) in [
        ("HEAD", "/health", 200, None),
        ("HEAD", "/v1/models", 200, None),
        ("HEAD", "/metrics", 200, None),
        ("HEAD", "/nowhere", 404, None),
        ("HEAD", COMPLETIONS, 405, Some("POST, OPTIONS")),
        ("OPTIONS", COMPLETIONS, 204, Some("POST, OPTIONS")),
        ("OPTIONS", "/health", 204, Some("GET, HEAD, OPTIONS")),
        ("OPTIONS", "*", 204, Some("GET, HEAD, POST, OPTIONS")),
        ("OPTIONS", "/nowhere", 404, None),
    ] {
        let mut client = scene.gateway.connect().await;
        client.send(method, path, &[], b"").await.unwrap();
        let response = client.response().await.unwrap();
        assert_eq!(response.status, status, "{method} {path}");
        assert_eq!(response.head.header("allow"), allow, "{method} {path}");
        // Nothing is left over that would be taken for the next answer.
        client.send("GET", "/health", &[], b"").await.unwrap();
        assert_eq!(client.response().await.unwrap().status, 200, "{method} {path}");
    }
    assert_eq!(scene.engine.requests().len(), 0);
}
