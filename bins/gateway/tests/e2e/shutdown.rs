//! A stop in good order.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, Reply};
use serde_json::json;

use crate::harness::{COMPLETIONS, Gateway, SOON, long_prompt, pool, stream, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_in_flight_finish_and_new_connections_are_refused() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut gateway = Gateway::over(pool("tiny", &[&engine])).await;
    let gap = Duration::from_millis(40);
    engine.push([Reply::SlowTokens { first: gap, gap, count: 30 }]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1, 2], 30).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.event().await.unwrap().unwrap();
    let mut idle = gateway.connect().await;
    idle.send("GET", "/health", &[], b"").await.unwrap();
    assert_eq!(idle.response().await.unwrap().status, 200);
    gateway.terminate();
    until(SOON, || async {
        match RawClient::connect(gateway.addr()).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(engine.requests()[0].fate, Fate::Open, "the stream is still going on");
    assert!(idle.read_raw().await.unwrap().is_empty(), "idle connections are closed");
    let mut events = 1;
    let mut last = String::new();
    while let Some(event) = client.event().await.unwrap() {
        events += 1;
        last = event;
    }
    assert_eq!((events, &*last), (31, "[DONE]"));
    assert_eq!(gateway.exit_status().await, Some(0));
    assert_eq!(engine.requests()[0].fate, Fate::Completed);
    let line = gateway.access_line(|line| line["stream"] == true).await;
    assert_eq!(line["outcome"], "complete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_finish_in_time_is_cut_off() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 1});
    let mut gateway = Gateway::start(config).await;
    engine.push([Reply::HeadThenHang]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1], 5).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(900), "the grace was not waited for: {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    client.head().await.expect_err("no answer was made up");
    gateway.line("the reason", |line| line.contains("stopped with requests in flight")).await;
    let line = gateway.access_line(|line| line["stream"] == true).await;
    assert_eq!(line["attempts"], 1, "cut off requests are in the log too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_gateway_stops_at_once() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut gateway = Gateway::over(pool("tiny", &[&engine])).await;
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_takes_long_to_tokenise_does_not_delay_the_end() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 1, "max_prompt_bytes": 64 << 20});
    let mut gateway = Gateway::start(config).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let _client = gateway.sent(COMPLETIONS, long_prompt().as_bytes()).await;
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(engine.requests().is_empty(), "it was done before the end came");
}
