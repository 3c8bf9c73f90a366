//! Prompts that are being computed count for the next choice, as long as they are.

use http::StatusCode;
use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::Reply;
use kvasir_testkit::eventually_async;
use serde_json::json;

use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool};

const PENDING: &str = "kvasir_endpoint_pending_prefixes";

async fn scene() -> ([Replica; 2], Gateway) {
    let replicas = [Replica::start().await, Replica::start().await];
    let gateway = Gateway::over(pool("tiny", &[&replicas[0].engine, &replicas[1].engine])).await;
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    (replicas, gateway)
}

fn answer_with(replicas: &[Replica], reply: &Reply) {
    replicas.iter().for_each(|replica| replica.engine.set_default(reply.clone()));
}

/// 25 blocks that begin with `first`, and some tokens of its own.
fn prompt(first: u32, own: u32) -> Vec<u32> {
    [ids(first, 400), ids(own, 20)].concat()
}

async fn ask(gateway: &Gateway, prompt: &[u32]) -> Decision {
    Decision::of(&gateway.post(COMPLETIONS, &completion(prompt)).await)
}

/// A request that no engine answers.
async fn held(replicas: &[Replica], gateway: &Gateway, prompt: &[u32], hang: &Reply) -> RawClient {
    answer_with(replicas, hang);
    let before = replicas.iter().map(|replica| replica.engine.requests().len()).sum::<usize>();
    let client = gateway.sent(COMPLETIONS, completion(prompt).to_string().as_bytes()).await;
    let asked = || replicas.iter().map(|replica| replica.engine.requests().len()).sum::<usize>();
    eventually_async(SOON, || asked() > before).await;
    assert_eq!(gateway.metrics().await.sum(PENDING, &[]), Some(1.0));
    answer_with(replicas, &Reply::Default);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_computed_draws_the_next_request() {
    let (replicas, gateway) = scene().await;
    let _leader = held(&replicas, &gateway, &prompt(1, 1_000), &Reply::HangBeforeHead).await;
    let busy = replicas.iter().find(|replica| !replica.engine.requests().is_empty()).unwrap();
    let follower = ask(&gateway, &prompt(1, 2_000)).await;
    assert_eq!((follower.overlap, follower.pending), (0, 400), "{follower:?}");
    assert_eq!((follower.endpoint, &*follower.reason), (busy.url(), "least_latency_cold"));
    // What is there is no longer pending; a prompt of its own never was.
    gateway.until_blocks(busy, 26).await;
    let warm = ask(&gateway, &prompt(1, 3_000)).await;
    assert_eq!((warm.overlap, warm.pending), (400, 0), "{warm:?}");
    let line = gateway.access_line(|line| line["pending_tokens"] == 400).await;
    assert_eq!(line["overlap_tokens"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_takes_it_along() {
    let (replicas, gateway) = scene().await;
    for (n, hang) in (0..).zip([Reply::HangBeforeHead, Reply::HeadThenHang]) {
        let client = held(&replicas, &gateway, &prompt(1 + 500 * n, 3_000), &hang).await;
        client.abort().unwrap();
        gateway.until_idle().await;
        assert_eq!(gateway.metrics().await.sum(PENDING, &[]), Some(0.0), "{hang:?}");
        let next = ask(&gateway, &prompt(1 + 500 * n, 3_500)).await;
        assert_eq!((next.overlap, next.pending), (0, 0), "{hang:?}: {next:?}");
        gateway.until_metric(PENDING, &[], 0.0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_fails_keeps_nothing() {
    for failure in [Reply::ResetBeforeHead, Reply::ResetMidBody(Vec::new())] {
        let (replicas, gateway) = scene().await;
        // Whichever is asked first breaks; then the other answers.
        replicas[0].engine.set_default(failure.clone());
        let mut asked = 0;
        while replicas[0].engine.requests().is_empty() {
            assert!(asked < 60, "{failure:?}: nothing failed");
            ask(&gateway, &ids(1 + 20 * asked, 20)).await;
            asked += 1;
        }
        let labels = [("endpoint", &*replicas[0].url())];
        let page = gateway.metrics().await;
        assert_eq!(page.sum(PENDING, &labels), Some(0.0), "{failure:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_no_prefix() {
    let (replicas, gateway) = scene().await;
    let error = json!({"error": {"message": "too long"}});
    answer_with(&replicas, &Reply::Json(StatusCode::BAD_REQUEST, error));
    let response = gateway.post(COMPLETIONS, &completion(&prompt(1, 1_000))).await;
    assert_eq!(response.status, 400);
    assert_eq!(gateway.metrics().await.sum(PENDING, &[]), Some(0.0));
    answer_with(&replicas, &Reply::Default);
    let next = ask(&gateway, &prompt(1, 2_000)).await;
    assert_eq!((next.overlap, next.pending), (0, 0), "{next:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_outlives_the_first_token_a_little_until_its_blocks_are_known() {
    let (replicas, gateway) = scene().await;
    replicas.iter().for_each(Replica::lose_next_batch);
    let first = ask(&gateway, &prompt(1, 1_000)).await;
    let next = ask(&gateway, &prompt(1, 2_000)).await;
    // On a slow machine the lost batch may have been asked for again meanwhile.
    assert_eq!(next.overlap + next.pending, 400, "{next:?}");
    assert_eq!(next.endpoint, first.endpoint);
    gateway.until_metric(PENDING, &[], 0.0).await;
}
