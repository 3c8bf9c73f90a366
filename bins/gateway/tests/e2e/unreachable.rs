//! Engines that are known to be unreachable: a request that finds no other tries each of them once, and
//! one that is found to be back is asked at once what it is.

use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use serde_json::json;

use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, completion, pool_at};

/// Nothing but requests tells the gateway anything.
const NO_SCRAPES: u64 = 3_600_000;

async fn dead(count: usize) -> Vec<FakeEngine> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
        engine.stop().await.unwrap();
        engines.push(engine);
    }
    engines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_there_is_no_other_each_unreachable_engine_is_tried_once() {
    let engines = dead(3).await;
    let urls: Vec<String> = engines.iter().map(FakeEngine::url).collect();
    let mut pool = pool_at("tiny", &urls);
    pool["endpoints"][2]["state"] = "disabled".into();
    let gateway = Gateway::start(json!({"pools": [pool], "scrape_interval_ms": NO_SCRAPES})).await;
    for url in &urls[..2] {
        gateway
            .line("unreachable", |line| line.contains("unreachable") && line.contains(url))
            .await;
    }

    let refused = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    assert_eq!(refused.status, 503);
    let error = refused.json()["error"].clone();
    assert_eq!(error["code"], "no_endpoint");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("none of those tried could be connected to"), "{message}");
    assert!(message.contains("not tried: 1 disabled"), "{message}");
    let line = gateway.access_line(|line| line["status"] == 503).await;
    assert_eq!(line["attempts"], 2, "each once: {line}");

    // Whichever is back is found, whatever order they are tried in.
    for back in [1, 0] {
        engines[back].restart().await.unwrap();
        let answer = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
        assert_eq!(Decision::of(&answer).endpoint, urls[back]);
        engines[back].stop().await.unwrap();
        let refused = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
        assert_eq!(refused.status, 503);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_a_request_finds_is_asked_what_it_is_at_once() {
    let replica = Replica::start().await;
    replica.engine.stop().await.unwrap();
    let pool = pool_at("tiny", &[replica.url()]);
    let gateway = Gateway::start(json!({"pools": [pool], "scrape_interval_ms": NO_SCRAPES})).await;
    let url = replica.url();
    gateway.line("unreachable", |line| line.contains("unreachable") && line.contains(&url)).await;
    replica.engine.restart().await.unwrap();
    let answer = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.until_learned(&[&replica]).await;
}
