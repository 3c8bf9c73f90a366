//! Engines given by URL alone.

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model};
use serde_json::json;

use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, until};

async fn until_ready(gateway: &Gateway) {
    until(SOON, || async {
        let ready = gateway.get("/readyz").await;
        if ready.status == 200 { Ok(()) } else { Err(ready.text()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_comes_up_later_is_waited_for() {
    let replica = Replica::start().await;
    replica.engine.stop().await.unwrap();
    let gateway = Gateway::with_urls(&[replica.url()], &[]).await;
    // It listens from the first moment, and says that it is not ready.
    assert_eq!(gateway.get("/health").await.status, 200);
    assert_eq!(gateway.get("/readyz").await.status, 503);
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2])).await;
    assert_eq!((response.status, &response.json()["error"]["code"]), (503, &json!("not_ready")));
    gateway.line("what is waited for", |line| line.contains(&*replica.url())).await;
    replica.engine.resume().unwrap();
    until_ready(&gateway).await;
    gateway.until_learned(&[&replica]).await;
    // Model, tokenizer, block size and events were all found.
    let body = completion(&ids(1, 64));
    assert_eq!(Decision::of(&gateway.post(COMPLETIONS, &body).await).overlap, 0);
    gateway.until_blocks(&replica, 4).await;
    let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
    assert_eq!((&*decision.policy, decision.overlap), ("latency", 48));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_with_different_models_get_a_pool_each() {
    let config =
        |model: &str| EngineConfig { models: vec![Model::base(model)], ..EngineConfig::default() };
    let one = FakeEngine::start(config("one")).await.unwrap();
    let two = FakeEngine::start(config("two")).await.unwrap();
    let gateway = Gateway::with_urls(&[one.url(), two.url()], &["--policy", "round_robin"]).await;
    until_ready(&gateway).await;
    for (model, engine) in [("one", &one), ("two", &two)] {
        for _ in 0..3 {
            let body = json!({"model": model, "prompt": [1, 2, 3]});
            let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
            assert_eq!((decision.endpoint, &*decision.policy), (engine.url(), "round_robin"));
        }
    }
    let models = gateway.get("/v1/models").await.json();
    let names: Vec<_> = models["data"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert_eq!(names, ["one", "two"]);
    let missing = gateway.post(COMPLETIONS, &json!({"prompt": [1]})).await;
    assert_eq!(missing.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_given_twice_is_one_engine() {
    let replica = Replica::start().await;
    let urls = [replica.url(), replica.url(), format!("{}/", replica.url())];
    let gateway = Gateway::with_urls(&urls, &[]).await;
    until_ready(&gateway).await;
    gateway.until_learned(&[&replica]).await;
    assert_eq!(Decision::of(&gateway.post(COMPLETIONS, &completion(&[1])).await).endpoint, urls[0]);
    let line = gateway.line("the request", |line| line.contains("candidates=")).await;
    assert!(line.contains("candidates=1"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latecomer_of_the_same_model_joins_the_pool() {
    let (early, late) = (Replica::start().await, Replica::start().await);
    late.engine.stop().await.unwrap();
    let gateway =
        Gateway::with_urls(&[early.url(), late.url()], &["--policy", "round_robin"]).await;
    gateway.line("what is waited for", |line| line.contains(&*late.url())).await;
    late.engine.resume().unwrap();
    until_ready(&gateway).await;
    gateway.until_learned(&[&early, &late]).await;
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(Decision::of(&gateway.post(COMPLETIONS, &completion(&[1])).await).endpoint);
    }
    for url in [early.url(), late.url()] {
        assert_eq!(taken.iter().filter(|taken| **taken == url).count(), 2, "{taken:?}");
    }
}
