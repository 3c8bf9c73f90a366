//! What happens to the picture of a cache when its stream of events is disturbed.

use http::StatusCode;
use kvasir_testkit::engine::Reply;
use kvasir_testkit::eventually_async;
use kvasir_testkit::publisher::payload;

use crate::harness::{
    COMPLETIONS, Decision, Gateway, Replica, ReplicaOptions, SOON, completion, ids, pool,
};

async fn over(replica: &Replica, trust: &str) -> Gateway {
    let gateway = Gateway::over(pool("tiny", &[&replica.engine])).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    gateway.until_trust(replica, trust).await;
    gateway
}

/// Sends the prompt; the credit it got and the trust behind that.
async fn ask(gateway: &Gateway, prompt: &[u32]) -> (u64, String) {
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(prompt)).await);
    (decision.overlap, decision.trust)
}

fn credit(overlap: u64, trust: &str) -> (u64, String) {
    (overlap, trust.to_owned())
}

async fn stream_metric(gateway: &Gateway, name: &str) -> f64 {
    gateway.metrics().await.sum(name, &[]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happened_before_the_gateway_started_is_learned_from_the_replay_socket() {
    let replica = Replica::start().await;
    for first in [1, 1001] {
        let body = completion(&ids(first, 64)).to_string();
        let addr = replica.engine.addr();
        kvasir_testkit::client::post(addr, COMPLETIONS, body.as_bytes()).await.unwrap();
    }
    let gateway = over(&replica, "exact").await;
    gateway.until_blocks(&replica, 8).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(48, "exact"));
    assert_eq!(ask(&gateway, &ids(1001, 65)).await, credit(64, "exact"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_batch_is_fetched_again() {
    let replica = Replica::start().await;
    let gateway = over(&replica, "exact").await;
    ask(&gateway, &ids(1, 64)).await;
    replica.lose_next_batch();
    ask(&gateway, &ids(1001, 64)).await;
    ask(&gateway, &ids(2001, 64)).await;
    gateway.until_blocks(&replica, 12).await;
    for first in [1, 1001, 2001] {
        assert_eq!(ask(&gateway, &ids(first, 64)).await, credit(48, "exact"), "{first}");
    }
    assert_eq!(stream_metric(&gateway, "kvasir_stream_gaps_total").await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_replay_socket_a_lost_batch_clears_what_was_known() {
    let replica = Replica::with(ReplicaOptions { replay: false, ..Default::default() }).await;
    let gateway = over(&replica, "partial(joined_late)").await;
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(48, "exact"), "from batch 0 on");
    replica.lose_next_batch();
    ask(&gateway, &ids(1001, 64)).await;
    ask(&gateway, &ids(2001, 64)).await;
    gateway.until_trust(&replica, "partial(lost_batch)").await;
    gateway.until_blocks(&replica, 4).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "partial(lost_batch)"));
    assert_eq!(ask(&gateway, &ids(1001, 64)).await, credit(0, "partial(lost_batch)"));
    assert_eq!(ask(&gateway, &ids(2001, 64)).await, credit(48, "partial(lost_batch)"));
    // What the engine stores again is learned again.
    replica.engine.reset_cache();
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 8).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(48, "partial(lost_batch)"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_engine_holds_nothing_until_it_says_so() {
    let replica = Replica::start().await;
    let gateway = over(&replica, "exact").await;
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    replica.restart().await;
    gateway.until_blocks(&replica, 0).await;
    gateway.until_trust(&replica, "exact").await;
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "exact"));
    gateway.until_blocks(&replica, 4).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(48, "exact"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_shows_only_in_the_numbers_is_seen_too() {
    let replica = Replica::start().await;
    let gateway = over(&replica, "exact").await;
    for first in [1, 1001, 2001] {
        ask(&gateway, &ids(first, 64)).await;
    }
    gateway.until_blocks(&replica, 12).await;
    replica.engine.reset_cache();
    replica.publisher.restart_unseen(0);
    // Batch 0 of the new life.
    ask(&gateway, &ids(3001, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    gateway.until_trust(&replica, "exact").await;
    assert_eq!(ask(&gateway, &ids(3001, 64)).await, credit(48, "exact"));
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "exact"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_ends_the_credit_until_history_is_read_again() {
    let replica = Replica::start().await;
    let gateway = over(&replica, "exact").await;
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    replica.publisher.go_down();
    gateway.until_trust(&replica, "absent(disconnected)").await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "absent(disconnected)"));
    assert_eq!(stream_metric(&gateway, "kvasir_stream_disconnects_total").await, 1.0);
    replica.publisher.come_up();
    gateway.until_blocks(&replica, 4).await;
    gateway.until_trust(&replica, "exact").await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(48, "exact"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_replay_socket_the_engines_process_is_the_witness() {
    let replica = Replica::with(ReplicaOptions { replay: false, ..Default::default() }).await;
    let gateway = over(&replica, "partial(joined_late)").await;
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    gateway.until_trust(&replica, "exact").await;
    // Several pages of its metrics are read meanwhile.
    let mut pages = replica.engine.info_requests().len();
    eventually_async(SOON, || replica.engine.info_requests().len() > pages + 3).await;
    let reconnect = async || {
        replica.publisher.go_down();
        gateway.until_trust(&replica, "absent(disconnected)").await;
        replica.publisher.come_up();
    };
    reconnect().await;
    gateway.until_trust(&replica, "suspect(life_in_doubt)").await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "suspect(life_in_doubt)"));
    // The next batch is the successor of the last, and the process is the same.
    ask(&gateway, &ids(1001, 64)).await;
    gateway.until_trust(&replica, "exact").await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(48, "exact"));
    pages = replica.engine.info_requests().len();
    eventually_async(SOON, || replica.engine.info_requests().len() > pages + 3).await;
    // Another process, whose next number would fit.
    replica.publisher.go_down();
    replica.engine.restart().await.unwrap();
    replica.publisher.restart_unseen(2);
    replica.publisher.come_up();
    gateway.until_blocks(&replica, 0).await;
    gateway.until_trust(&replica, "partial(joined_late)").await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "partial(joined_late)"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_and_cleared_blocks_are_not_credited() {
    let replica = Replica::start().await;
    let gateway = over(&replica, "exact").await;
    ask(&gateway, &ids(1, 80)).await;
    gateway.until_blocks(&replica, 5).await;
    // The third block is gone: what follows it is of no use.
    let third = replica.stored_hashes()[2];
    replica.publish(payload::removed(&[third]));
    gateway.until_blocks(&replica, 4).await;
    assert_eq!(ask(&gateway, &ids(1, 80)).await, credit(32, "exact"));
    replica.publish(payload::cleared());
    gateway.until_blocks(&replica, 0).await;
    assert_eq!(ask(&gateway, &ids(1, 80)).await, credit(0, "exact"));
}

/// A sleeping engine's cache is gone, and it may never flush the event that says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_slept_is_credited_with_nothing_it_held_before() {
    let replica = Replica::start().await;
    let gateway = over(&replica, "exact").await;
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    let says = |awake: &'static str| {
        let page = Reply::Status(StatusCode::OK, http::HeaderMap::new(), awake.into());
        replica.engine.set_page("/metrics", page);
    };
    says("vllm:engine_sleep_state{sleep_state=\"awake\"} 0.0\n");
    gateway.until_blocks(&replica, 0).await;
    let refused = gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
    assert_eq!(refused.status, 503);
    replica.engine.reset_cache();
    says("vllm:engine_sleep_state{sleep_state=\"awake\"} 1.0\n");
    gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "exact"));
    gateway.until_blocks(&replica, 4).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(48, "exact"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_not_understood_earns_no_credit() {
    let replica = Replica::start().await;
    let gateway = over(&replica, "exact").await;
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    replica.publish(payload::malformed());
    gateway.until_trust(&replica, "suspect(schema)").await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "suspect(schema)"));
    // Events of an unknown kind are no reason for doubt.
    replica.publish(payload::cleared());
    gateway.until_trust(&replica, "exact").await;
    replica.publish(payload::unknown());
    gateway.until_metric("kvasir_stream_unknown_events_total", &[], 1.0).await;
    assert_eq!(ask(&gateway, &ids(1, 64)).await, credit(0, "exact"));
}
