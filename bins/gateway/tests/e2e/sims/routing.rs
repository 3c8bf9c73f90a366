//! What is predicted is what engines report: warm and cold, alone and in a crowd, with room and
//! without.

use std::collections::HashSet;

use serde_json::json;
use tokio::task::JoinSet;

use super::{Answer, FAST, SLOW, Sim, ask, ask_streaming, by_url, over, over_with};
use crate::harness::{Gateway, SOON, ids, until};

async fn ask_either(gateway: &Gateway, prompt: &[u32], streamed: bool) -> Answer {
    if streamed {
        return ask_streaming(gateway.addr(), prompt, 1).await;
    }
    ask(gateway, prompt, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_prompt_goes_to_its_holder_with_the_overlap_the_engine_reports() {
    // Choices that do not depend on how fast the machine was a moment ago: an engine is timed by the first
    // token of streams, and one that was slow is dearer, whatever it holds.
    let by_overlap = json!({"name": "precise_cache_aware", "blend": "off", "relief": "off", "cold_seed_every": 0});
    for (policy, both) in [(json!("latency"), false), (by_overlap, true)] {
        let sims = Sim::several(3, 600, FAST).await;
        // Pages are read all the time: one that shows a request just sent must not make its engine
        // look busy with somebody else's.
        let read_often = json!({"scrape_interval_ms": 50});
        let gateway = over_with(&sims, policy, read_often).await;
        for (first, length, streamed) in
            [(1, 70, false), (10_001, 300, true), (20_001, 64, false), (30_001, 65, true)]
        {
            let (prompt, streamed) = (ids(first, length), streamed && both);
            let cold = ask_either(&gateway, &prompt, streamed).await;
            assert_eq!(cold.agreed(), 0, "{cold:?}");
            let holder = by_url(&sims, &cold.decision.endpoint);
            holder.settle(&gateway).await;
            for streamed in [streamed, !streamed && both] {
                let warm = ask_either(&gateway, &prompt, streamed).await;
                assert_eq!(warm.decision.endpoint, holder.url(), "{warm:?}");
                assert_eq!(warm.agreed(), u64::from((length - 1) / 16 * 16));
                holder.settle(&gateway).await;
            }
        }
        gateway.until_idle().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_streams_at_once_are_served_whole_and_predicted_right() {
    const STREAMS: u32 = 100;
    const GROUPS: u32 = 10;
    const TOKENS: u32 = 30;
    let sims = Sim::several(3, 2_500, SLOW.faster(4.0)).await;
    let gateway = over(&sims, "latency").await;
    let prefix = |group: u32| ids(10_000 * group, 320);
    let mut holders = HashSet::new();
    for group in 0..GROUPS {
        let answer = ask(&gateway, &prefix(group), 1).await;
        by_url(&sims, &answer.decision.endpoint).settle(&gateway).await;
        holders.insert(answer.decision.endpoint);
    }
    assert!(holders.len() > 1, "{holders:?}");
    let mut streams = JoinSet::new();
    for n in 0..STREAMS {
        let (addr, mut prompt) = (gateway.addr(), prefix(n % GROUPS));
        prompt.extend(ids(1_000_000 + 1_000 * n, 20 + n % 50));
        streams.spawn(async move { ask_streaming(addr, &prompt, TOKENS).await });
    }
    let answers = streams.join_all().await;
    gateway.until_idle().await;
    assert!(answers.iter().all(|answer| answer.tokens == u64::from(TOKENS)), "{answers:#?}");
    let sum = |of: fn(&Answer) -> u64| answers.iter().map(of).sum::<u64>();
    let (predicted, reported) = (sum(|a| a.decision.overlap), sum(|answer| answer.cached));
    // What is pending is no prediction, but a stream that waits behind it finds it computed.
    let found = predicted + sum(|a| a.decision.pending);
    assert!(reported >= 320 * 50, "{reported} tokens cached: the prefixes were hardly used");
    assert!(found.abs_diff(reported) * 50 <= reported, "{found} {reported} {answers:#?}");
    for sim in &sims {
        let stats = sim.stats();
        assert_eq!((stats.running, stats.waiting, stats.preemptions), (0, 0, 0));
    }
    let finished: u64 = sims.iter().map(|sim| sim.stats().finished).sum();
    assert_eq!(finished, u64::from(STREAMS + GROUPS), "each is computed once");
    // The gateway's own account says the same.
    let page = gateway.metrics().await;
    let judged = |what| page.sum(&format!("kvasir_judged_{what}_tokens_total"), &[]).unwrap();
    let tokens = |count: u64| f64::from(u32::try_from(count).unwrap());
    assert_eq!((judged("predicted"), judged("reported")), (tokens(predicted), tokens(reported)));
    // And it finds no fault: what differs are prefixes that were stored while requests waited.
    until(SOON, || async {
        let usage = [("oracle", "usage")];
        let count = gateway.metrics().await.sum("kvasir_hit_judged_total", &usage).unwrap();
        if count >= 20.0 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    let page = gateway.metrics().await;
    assert_eq!(page.sum("kvasir_hit_judged_total", &[("verdict", "over")]), Some(0.0));
    assert_eq!(page.sum("kvasir_endpoint_trust", &[("reason", "hit_mismatch")]), None);
}

/// Blocks of a cache that holds four or so of the prompts below.
const FEW: usize = 40;

/// Numbers as good as random, the same every time.
struct Noise(u32);

impl Noise {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % limit
    }

    /// One of a few beginnings of six blocks and one of a few ends, that many tokens beyond a
    /// full block.
    fn prompt(&mut self, beyond: u32) -> Vec<u32> {
        let mut prompt = ids(1_000 * self.below(8), 96);
        let end = 100_000 + 1_000 * self.below(4);
        prompt.extend(ids(end, self.below(6) * 16 + beyond));
        prompt
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_caches_far_too_small_each_prediction_is_still_right() {
    for (count, policy) in [(1, "latency"), (2, "precise_cache_aware")] {
        let sims = Sim::several(count, FEW, FAST).await;
        let gateway = over(&sims, policy).await;
        let mut noise = Noise(17);
        let (mut hits, mut stored) = (0, 0);
        for n in 0..100 {
            let prompt = noise.prompt(1 + n % 15);
            let answer = ask(&gateway, &prompt, 1).await;
            hits += u64::from(answer.agreed() > 0);
            stored += prompt.len() as u64 / 16 - answer.cached / 16;
            by_url(&sims, &answer.decision.endpoint).settle(&gateway).await;
        }
        // The caches were filled many times over, and of use.
        assert!(stored > 3 * (count * FEW) as u64, "{stored} blocks stored");
        assert!(hits > 20, "{hits} hits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_blocks_held_twice_never_more_is_predicted_than_there_is() {
    let sims = [Sim::start(FEW, FAST).await];
    let gateway = over(&sims, "latency").await;
    let mut noise = Noise(17);
    let (mut predicted, mut reported) = (0, 0);
    for _ in 0..100 {
        // Where a prompt ends with a full block, that one is computed anew and held once more.
        let prompt = noise.prompt(0);
        let answer = ask(&gateway, &prompt, 1).await;
        assert!(answer.decision.overlap <= answer.cached, "{answer:?}");
        predicted += answer.decision.overlap;
        reported += answer.cached;
        sims[0].settle_with_copies(&gateway).await;
    }
    assert!(predicted * 10 >= reported * 9, "{predicted} of {reported} predicted");
}
