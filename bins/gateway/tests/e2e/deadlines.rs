//! Every limit of time by itself: which error names it, to clients of both protocols, streamed and not.

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, RawEnd, RawStep, Reply, SseChunk};
use kvasir_testkit::http_client::HttpClient;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{COMPLETIONS, Gateway, NEVER, SOON, completion, pool, pool_at, stream};

/// An answer as either client sees it.
struct Answer {
    status: u16,
    body: String,
}

impl Answer {
    /// The error of a refusal, or of the last event.
    fn error(&self) -> Value {
        let last = self.body.trim_end().rsplit("\n\n").next().unwrap();
        let text = last.strip_prefix("data: ").unwrap_or(last);
        let whole: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{}", self.body));
        whole["error"].clone()
    }
}

async fn ask(gateway: &Gateway, http2: bool, body: &Value) -> Answer {
    if http2 {
        let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
        let whole = client.post(COMPLETIONS, body).await.unwrap();
        let body = String::from_utf8(whole.body.to_vec()).unwrap();
        return Answer { status: whole.status.as_u16(), body };
    }
    let mut client: RawClient = gateway.sent(COMPLETIONS, body.to_string().as_bytes()).await;
    let response = client.response().await.unwrap();
    Answer { status: response.status, body: response.text() }
}

/// What is written of a request whose time was up.
async fn is_named(gateway: &Gateway, code: &str, counted: (&str, &str)) {
    let line = gateway.access_line(|line| line["outcome"] == code).await;
    assert_eq!(line["fault"], "engine", "{line}");
    gateway.until_metric(counted.0, &[("cause", counted.1)], 1.0).await;
    gateway.until_idle().await;
}

/// All ways to ask.
fn ways() -> [(bool, Value); 4] {
    let (plain, streamed) = (completion(&[1, 2, 3]), stream(&[1, 2, 3], 4));
    [(false, plain.clone()), (false, streamed.clone()), (true, plain), (true, streamed)]
}

async fn over(engine: &FakeEngine, limit: &str, ms: u64) -> Gateway {
    let timeouts = json!({"connect_ms": 20_000, limit: ms});
    Gateway::start(json!({"pools": [pool("tiny", &[engine])], "timeouts": timeouts})).await
}

const FAILED: &str = "kvasir_failed_attempts_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting() {
    // Accepted by the system; nobody shakes hands.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    for (http2, body) in ways() {
        let pools = json!([pool_at("tiny", std::slice::from_ref(&url))]);
        let timeouts = json!({"connect_ms": 200});
        // Nobody else finds out before the request does.
        let config = json!({"pools": pools, "timeouts": timeouts, "scrape_interval_ms": 3_600_000});
        let gateway = Gateway::start(config).await;
        let answer = ask(&gateway, http2, &body).await;
        assert_eq!((answer.status, &answer.error()["code"]), (503, &json!("no_endpoint")));
        is_named(&gateway, "no_endpoint", (FAILED, "connect_tls")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_data_and_the_whole_before_it() {
    for (limit, code) in
        [("first_data_ms", "first_data_timeout"), ("request_ms", "request_timeout")]
    {
        for reply in [Reply::HangBeforeHead, Reply::HeadThenHang] {
            for (http2, body) in ways() {
                let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
                engine.set_default(reply.clone());
                let gateway = over(&engine, limit, 300).await;
                let answer = ask(&gateway, http2, &body).await;
                let error = answer.error();
                assert_eq!((answer.status, &error["code"]), (504, &json!(code)), "{error}");
                assert_eq!(error["type"], "server_error");
                is_named(&gateway, code, (FAILED, code)).await;
                engine.wait_idle(SOON).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_and_the_whole_in_the_middle_of_a_stream() {
    for (limit, code) in [("idle_ms", "idle_timeout"), ("request_ms", "request_timeout")] {
        for http2 in [false, true] {
            let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
            let chunks = [(std::time::Duration::ZERO, "1"), (NEVER, "2")]
                .map(|(gap, data)| SseChunk { gap, data: data.to_owned() });
            let head_delay = std::time::Duration::ZERO;
            engine.push([Reply::Sse { head_delay, chunks: chunks.into(), done: true }]);
            let gateway = over(&engine, limit, 1_500).await;
            let answer = ask(&gateway, http2, &stream(&[1, 2, 3], 4)).await;
            assert!(answer.body.starts_with("data: 1\n\n"), "{}", answer.body);
            assert_eq!((answer.status, &answer.error()["code"]), (200, &json!(code)));
            is_named(&gateway, code, ("kvasir_streams_broken_total", code)).await;
            engine.wait_idle(SOON).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_and_the_whole_in_the_middle_of_an_answer_that_is_not_streamed() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    for (limit, code) in [("idle_ms", "idle_timeout"), ("request_ms", "request_timeout")] {
        for http2 in [false, true] {
            let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
            engine.push([Reply::Raw(vec![RawStep::Write(head.into())], RawEnd::Hold)]);
            let gateway = over(&engine, limit, 1_000).await;
            let answer = ask(&gateway, http2, &completion(&[1, 2, 3])).await;
            assert_eq!((answer.status, &answer.error()["code"]), (504, &json!(code)));
            is_named(&gateway, code, (FAILED, code)).await;
            engine.wait_idle(SOON).await;
        }
    }
}
