//! What the tests of the server share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{CostModel, EngineConfig};
use kvasir_testkit::client::{RawClient, Response, get, post};
use serde_json::{Value, json};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A step takes 0.1 ms and a little per token.
pub(crate) const QUICK: CostModel = CostModel {
    step_overhead: 1e-4,
    weights: 0.0,
    per_token: 1e-7,
    per_request: 0.0,
    per_context_token: 0.0,
    per_attention_pair: 0.0,
    speed: 1.0,
};

/// Every step takes this long.
pub(crate) fn steps_of(seconds: f64) -> CostModel {
    CostModel { step_overhead: seconds, per_token: 0.0, ..QUICK }
}

/// A path below the repository's `testdata`.
pub(crate) fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

/// A quick server with faults on, called `tiny`, without a tokenizer.
pub(crate) fn quick() -> SimServerConfig {
    SimServerConfig {
        engine: EngineConfig {
            num_blocks: 257,
            max_model_len: 2_048,
            cost: QUICK,
            ..EngineConfig::default()
        },
        model: "tiny".to_owned(),
        faults: true,
        ..SimServerConfig::default()
    }
}

/// The same with steps of this many seconds.
pub(crate) fn slow(seconds: f64) -> SimServerConfig {
    let mut config = quick();
    config.engine.cost = steps_of(seconds);
    config
}

pub(crate) async fn start(config: SimServerConfig) -> SimServer {
    SimServer::start(config).await.unwrap()
}

pub(crate) fn addr(server: &SimServer) -> SocketAddr {
    server.url().strip_prefix("http://").unwrap().parse().unwrap()
}

pub(crate) async fn fetch(server: &SimServer, path: &str) -> Value {
    let response = get(addr(server), path).await.unwrap();
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.json()
}

pub(crate) async fn send(server: &SimServer, path: &str, body: &Value) -> Response {
    post(addr(server), path, body.to_string().as_bytes()).await.unwrap()
}

/// Sends and gives the JSON of a good answer.
pub(crate) async fn ask(server: &SimServer, path: &str, body: &Value) -> Value {
    let response = send(server, path, body).await;
    assert_eq!(response.status, 200, "{path} {body}: {}", response.text());
    response.json()
}

pub(crate) async fn complete(server: &SimServer, prompt: &[u32], max_tokens: usize) -> Value {
    let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": max_tokens});
    ask(server, "/v1/completions", &body).await
}

/// A streamed answer whose head has been read.
pub(crate) async fn stream(server: &SimServer, path: &str, body: &Value) -> RawClient {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut client = RawClient::connect(addr(server)).await.unwrap();
    let headers = [("content-type", "application/json")];
    client.send("POST", path, &headers, body.to_string().as_bytes()).await.unwrap();
    let head = client.head().await.unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream; charset=utf-8"));
    client
}

/// All events of a stream as JSON; the last must be `[DONE]`.
pub(crate) async fn chunks(client: &mut RawClient) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = client.event().await.unwrap() {
        events.push(event);
    }
    assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{events:?}");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// A sample of the metrics page; 0 where there is none.
pub(crate) async fn metric(server: &SimServer, start: &str) -> f64 {
    let page = get(addr(server), "/metrics").await.unwrap().text();
    let line = page.lines().find(|line| line.starts_with(start));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Waits until what `look` sees satisfies `good`.
pub(crate) async fn until<T, F: Future<Output = T>>(
    mut look: impl FnMut() -> F,
    good: impl Fn(&T) -> bool,
) -> T {
    let begun = std::time::Instant::now();
    loop {
        let seen = look().await;
        if good(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Distinct prompts: `length` tokens that depend on `number`.
pub(crate) fn prompt(number: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| number * 10_000 + at).collect()
}
