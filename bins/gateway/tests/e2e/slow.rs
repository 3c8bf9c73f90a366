//! Clients that read nothing: they are cut off, and engines do not work for them.

use std::time::{Duration, Instant};

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, Reply, SseChunk};
use kvasir_testkit::http_client::{HttpClient, data, full};
use serde_json::json;

use crate::harness::{COMPLETIONS, Gateway, SOON, completion, pool, stream};

/// A gateway that waits for a second, and an engine that sends without end.
async fn scene() -> (FakeEngine, Gateway) {
    waiting(1).await
}

/// The same, waiting for so many seconds.
async fn waiting(seconds: u64) -> (FakeEngine, Gateway) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let listener = json!({"write_stall_s": seconds});
    let config = json!({"pools": [pool("tiny", &[&engine])], "listener": listener});
    (engine, Gateway::start(config).await)
}

/// More than all buffers in between hold.
fn flood() -> Reply {
    let data = "x".repeat(64 << 10);
    let chunk = || SseChunk { gap: Duration::ZERO, data: data.clone() };
    Reply::Sse {
        head_delay: Duration::ZERO,
        chunks: (0..800).map(|_| chunk()).collect(),
        done: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_is_cut_off() {
    let (engine, gateway) = scene().await;
    engine.push([flood()]);
    let began = Instant::now();
    let client = gateway.sent(COMPLETIONS, stream(&[1], 800).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    let seen = engine.wait_idle(SOON).await;
    assert_eq!(seen[0].fate, Fate::ClientGoneMidBody);
    assert!(began.elapsed() >= Duration::from_secs(1), "not before its time");
    gateway.until_idle().await;
    gateway.until_metric("kvasir_write_stalls_total", &[("level", "connection")], 1.0).await;
    gateway.until_metric("kvasir_client_connections", &[], 1.0).await;
    let line = gateway.access_line(|line| line["stream"] == true).await;
    assert_eq!(line["outcome"], "client_left");
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_takes_nothing_is_ended_and_the_others_go_on() {
    let (engine, gateway) = scene().await;
    engine.push([flood()]);
    // A small window is full at once, while the connection is read all the time.
    let mut client = HttpClient::h2c_with_window(gateway.addr(), 65_535).await.unwrap();
    let request = http::Request::post(client.uri(COMPLETIONS));
    let request = request.body(full(stream(&[1], 800).to_string())).unwrap();
    let mut body = client.begin(request).await.unwrap().into_body();
    data(&mut body).await.unwrap().unwrap();
    let seen = engine.wait_idle(SOON).await;
    assert_eq!(seen[0].fate, Fate::ClientGoneMidBody);
    gateway.until_metric("kvasir_write_stalls_total", &[("level", "stream")], 1.0).await;
    gateway.until_idle().await;
    let answer = client.post(COMPLETIONS, &completion(&[1])).await.unwrap();
    assert_eq!(answer.status, 200, "the connection is as good as before");
    // What was sent can still be read; the end is told as what it is.
    let mut ended = Ok(());
    while ended.is_ok() {
        match data(&mut body).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a truncated answer looks whole"),
            Err(error) => ended = Err(error),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_slowly_gets_everything() {
    let (engine, gateway) = waiting(3).await;
    let data = "x".repeat(64 << 10);
    let chunks = (0..200).map(|_| SseChunk { gap: Duration::ZERO, data: data.clone() }).collect();
    engine.push([Reply::Sse { head_delay: Duration::ZERO, chunks, done: true }]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1], 200).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let mut events = 0;
    while client.event().await.unwrap().is_some() {
        events += 1;
        // Longer in all than a pause may be.
        if events % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
    }
    assert_eq!(events, 201);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_slow_is_no_client_that_is() {
    let (engine, gateway) = scene().await;
    let pause = Duration::from_secs(3);
    let slow = Reply::SlowTokens { first: Duration::ZERO, gap: pause, count: 2 };
    engine.push([slow.clone(), slow]);
    let mut plain = gateway.sent(COMPLETIONS, stream(&[1], 2).to_string().as_bytes()).await;
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    let answer = client.post(COMPLETIONS, &stream(&[1], 2)).await.unwrap();
    assert!(answer.body.ends_with(b"data: [DONE]\n\n"));
    assert!(plain.response().await.unwrap().text().ends_with("data: [DONE]\n\n"));
}
