//! Events of a real cache that are late, lost, doubled, or of a life that is over.

use std::time::{Duration, Instant};

use kvasir_testkit::client;
use serde_json::json;

use super::{Answer, FAST, Sim, ask, over, until_trusted};
use crate::harness::{COMPLETIONS, Gateway, ids};

/// Room for four prompts of ten blocks: the fifth evicts.
const BLOCKS: usize = 40;

fn prompt(number: u32) -> Vec<u32> {
    ids(1_000 * number, 150)
}

/// One request, of a single step, and what it did to the cache.
async fn asked(sim: &Sim, gateway: &Gateway, number: u32) -> Answer {
    let answer = ask(gateway, &prompt(number), 1).await;
    sim.note().await;
    answer
}

/// All prompts are predicted right, those just served and those evicted.
async fn all_agree(sim: &Sim, gateway: &Gateway, newest: u32) {
    sim.settle(gateway).await;
    assert_eq!(asked(sim, gateway, newest).await.agreed(), 144);
    for number in (0..newest).rev() {
        sim.settle(gateway).await;
        asked(sim, gateway, number).await.agreed();
    }
    sim.settle(gateway).await;
}

async fn stream_metric(gateway: &Gateway, name: &str) -> f64 {
    gateway.metrics().await.sum(name, &[]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_events_are_believed_when_they_come_and_not_before() {
    let sims = [Sim::start(BLOCKS, FAST).await];
    let gateway = over(&sims, "latency").await;
    let sim = &sims[0];
    // Long enough that the second request overtakes the first one's events, most of the time.
    const LATE: Duration = Duration::from_secs(2);
    sim.events("delay_ms:2000").await;
    let mut number = 20;
    loop {
        let began = Instant::now();
        assert_eq!(asked(sim, &gateway, number).await.agreed(), 0);
        let early = asked(sim, &gateway, number).await;
        if began.elapsed() < LATE {
            assert_eq!((early.decision.overlap, early.cached), (0, 144), "{early:?}");
            break;
        }
        sim.settle(&gateway).await;
        number += 1;
    }
    sim.settle(&gateway).await;
    assert_eq!(asked(sim, &gateway, number).await.agreed(), 144);
    sim.events("delay_ms:30").await;
    // From the fourth on, what is late says that blocks are gone.
    for number in 1..8 {
        let answer = asked(sim, &gateway, number).await;
        assert_eq!((answer.decision.overlap, answer.cached), (0, 0), "{answer:?}");
    }
    all_agree(sim, &gateway, 7).await;
    assert_eq!(stream_metric(&gateway, "kvasir_stream_gaps_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_events_are_fetched_again_and_doubled_ones_count_once() {
    let sims = [Sim::start(BLOCKS, FAST).await];
    let gateway = over(&sims, "latency").await;
    let sim = &sims[0];
    asked(sim, &gateway, 0).await;
    // One batch, then several, some of which evict. Each gap shows in the next batch, unless that is so
    // late that the replay socket was asked before, for want of events: then there was none.
    let mut gaps = 0.0;
    for lost in [1..2, 3..9] {
        sim.settle(&gateway).await;
        let next = lost.end;
        for number in lost {
            sim.lose_next_batch().await;
            assert_eq!(asked(sim, &gateway, number).await.cached, 0);
            sim.until_batch_lost().await;
        }
        asked(sim, &gateway, next).await;
        all_agree(sim, &gateway, next).await;
        let seen = stream_metric(&gateway, "kvasir_stream_gaps_total").await;
        assert!((gaps..=gaps + 1.0).contains(&seen), "{seen} gaps, {gaps} before");
        gaps = seen;
    }
    assert!(stream_metric(&gateway, "kvasir_stream_replays_total").await >= 2.0);
    sim.events("duplicate").await;
    for number in 10..16 {
        assert_eq!(asked(sim, &gateway, number).await.agreed(), 0);
        sim.settle(&gateway).await;
    }
    all_agree(sim, &gateway, 15).await;
    assert_eq!(stream_metric(&gateway, "kvasir_stream_gaps_total").await, gaps);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_life_that_is_over_nothing_is_credited_and_the_next_is_learned() {
    let sims = [Sim::start(600, FAST).await];
    let gateway = over(&sims, "latency").await;
    let url = sims[0].url();
    let blocks = [("endpoint", &*url)];
    let until_blocks = async |count| {
        gateway.until_metric("kvasir_endpoint_resident_blocks", &blocks, count).await;
    };
    for life in 0..4_u32 {
        // As many batches as in the life before, more, or fewer.
        for number in 0..[3, 3, 5, 1][life as usize] {
            assert_eq!(ask(&gateway, &prompt(number), 1).await.agreed(), 0, "life {life}");
            until_blocks(f64::from(9 * (number + 1))).await;
            assert_eq!(ask(&gateway, &prompt(number), 1).await.agreed(), 144, "life {life}");
        }
        tokio::time::timeout(Duration::from_secs(20), sims[0].server.restart()).await.unwrap();
        until_blocks(0.0).await;
        until_trusted(&gateway, &sims).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_begun_late_is_complete_when_the_cache_was_filled_anew() {
    let sim = Sim::without_replay(BLOCKS, FAST).await;
    // Before the gateway was there.
    let early = super::body(&prompt(50), 1, false);
    client::post(sim.addr, COMPLETIONS, early.as_bytes()).await.unwrap();
    let sims = [sim];
    let pool = json!({"model": "tiny", "endpoints": [{"url": sims[0].url()}]});
    let gateway = Gateway::start(json!({ "pools": [pool] })).await;
    let late = [("state", "partial"), ("reason", "joined_late")];
    gateway.until_metric("kvasir_endpoint_trust", &late, 1.0).await;
    for number in 0..5 {
        let answer = asked(&sims[0], &gateway, number).await;
        assert_eq!(answer.decision.trust, "partial(joined_late)", "{number}");
        let stored = f64::from(number + 1);
        gateway.until_metric("kvasir_stream_batches_total", &[], stored).await;
    }
    // 45 blocks of 9 a prompt, in a cache of 41.
    until_trusted(&gateway, &sims).await;
    assert_eq!(ask(&gateway, &prompt(4), 1).await.agreed(), 144);
}
