//! Engines of several data-parallel ranks, each with a cache and a stream of its own.

use std::collections::BTreeSet;

use kvasir_testkit::client;
use serde_json::{Value, json};

use super::{FAST, Sim, as_f64, ask, body};
use crate::harness::{COMPLETIONS, Decision, Gateway, SOON, ids, pool_at};

const RANKS: u32 = 3;

/// Room for ten prompts of ten blocks in each rank.
const BLOCKS: usize = 100;

fn prompt(number: u32) -> Vec<u32> {
    ids(1_000 * number, 150)
}

async fn over(sim: &Sim, addressing: &str, endpoints: f64) -> Gateway {
    over_with(sim, json!({"rank_addressing": addressing}), endpoints).await
}

/// The same with more settings of the pool.
async fn over_with(sim: &Sim, settings: Value, endpoints: f64) -> Gateway {
    let mut pool = pool_at("tiny", &[sim.url()]);
    pool.as_object_mut().unwrap().remove("tokenizer_dir");
    pool.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let gateway = Gateway::start(json!({ "pools": [pool] })).await;
    gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], endpoints).await;
    gateway.until_metric("kvasir_stream_trust", &[("state", "exact")], as_f64(3)).await;
    gateway
}

/// Asks one rank past the gateway; the tokens it had cached.
async fn ask_rank(sim: &Sim, rank: u32, prompt: &[u32]) -> u64 {
    let mut client = client::RawClient::connect(sim.addr).await.unwrap().with_deadline(SOON);
    let headers =
        [("content-type", "application/json"), ("x-data-parallel-rank", &*rank.to_string())];
    client.send("POST", COMPLETIONS, &headers, body(prompt, 1, false).as_bytes()).await.unwrap();
    let response = client.response().await.unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addressed_by_header_each_rank_is_predicted_right() {
    let sim = Sim::with_ranks(RANKS, BLOCKS, FAST).await;
    // Choices that do not depend on times: by those a rank that was slow once gets no new prompts,
    // and the others have not room for all.
    let policy = json!({"name": "precise_cache_aware", "blend": "off", "relief": "off",
        "cold_seed_every": 0});
    let settings =
        json!({"rank_addressing": "header", "policy": policy, "fallback": "round_robin"});
    let gateway = over_with(&sim, settings, as_f64(3)).await;
    let mut used = BTreeSet::new();
    let mut hits = 0;
    // More prompts than one rank has room for; each comes several times.
    for round in 0..4 {
        for number in 0..18 {
            let answer = ask(&gateway, &prompt(number), 1).await;
            assert_eq!(answer.decision.endpoint, sim.url());
            used.insert(answer.decision.rank.expect("a rank"));
            hits += u64::from(answer.agreed() > 0);
            assert_eq!(round > 0, answer.cached > 0, "{number}: {answer:?}");
            sim.settle(&gateway).await;
        }
    }
    assert_eq!(used.len(), RANKS as usize, "{used:?}");
    assert_eq!(hits, 3 * 18);
    gateway.until_idle().await;
    let page = gateway.metrics().await;
    for rank in ["0", "1", "2"] {
        let labels = [("endpoint", &*sim.url()), ("rank", rank)];
        assert_eq!(page.sum("kvasir_endpoint_in_flight", &labels), Some(0.0));
        assert!(page.sum("kvasir_stream_batches_total", &labels) > Some(0.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_name_a_rank_where_the_gateway_does() {
    let sim = Sim::with_ranks(RANKS, BLOCKS, FAST).await;
    let gateway = over(&sim, "header", as_f64(3)).await;
    let warm = ask(&gateway, &prompt(0), 1).await;
    sim.settle(&gateway).await;
    for named in ["0", "1", "2", "99", "-1", "first"] {
        let mut client = gateway.connect().await;
        let headers = [("content-type", "application/json"), ("X-Data-Parallel-Rank", named)];
        let body = body(&prompt(0), 1, false);
        client.send("POST", COMPLETIONS, &headers, body.as_bytes()).await.unwrap();
        let response = client.response().await.unwrap();
        let decision = Decision::of(&response);
        assert_eq!((decision.rank, decision.overlap), (warm.decision.rank, 144), "{named}");
        let cached = &response.json()["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert_eq!(*cached, 144, "{named}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_engine_chooses_only_what_all_ranks_hold_is_predicted() {
    let sim = Sim::with_ranks(RANKS, BLOCKS, FAST).await;
    let gateway = over(&sim, "none", as_f64(1)).await;
    let held_by = |ranks: u32| {
        let (sim, gateway) = (&sim, &gateway);
        async move {
            for rank in 0..ranks {
                ask_rank(sim, rank, &prompt(ranks)).await;
                sim.settle(gateway).await;
            }
            let answer = ask(gateway, &prompt(ranks), 1).await;
            sim.settle(gateway).await;
            answer
        }
    };
    for ranks in 0..RANKS {
        let answer = held_by(ranks).await;
        assert_eq!((answer.decision.overlap, answer.decision.rank), (0, None), "{answer:?}");
    }
    assert_eq!(held_by(RANKS).await.agreed(), 144);
    // Whatever the engine chooses, and whatever is evicted meanwhile.
    let mut credited = 0;
    for step in 0..160_u32 {
        // A few prompts that come often, and others that push out what is older.
        let number = if step % 2 == 0 { step / 2 % 4 } else { 20 + step % 9 };
        let answer = ask(&gateway, &prompt(number), 1).await;
        assert!(answer.decision.overlap <= answer.cached, "{answer:?}");
        assert_eq!(answer.decision.trust, "exact");
        credited += u32::from(answer.decision.overlap > 0);
        sim.settle(&gateway).await;
    }
    assert!(credited > 20, "{credited}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_seen_in_the_streams_of_all_ranks() {
    let sim = Sim::with_ranks(RANKS, BLOCKS, FAST).await;
    let gateway = over(&sim, "none", as_f64(1)).await;
    let predicted = async || ask(&gateway, &prompt(0), 1).await.decision;
    for rank in 0..RANKS {
        ask_rank(&sim, rank, &prompt(0)).await;
        sim.settle(&gateway).await;
    }
    assert_eq!(predicted().await.overlap, 144);
    // A new life: the caches are empty, and the streams begin anew.
    sim.server.restart().await;
    gateway.until_metric("kvasir_endpoint_resident_blocks", &[], 0.0).await;
    gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], 1.0).await;
    assert_eq!(predicted().await.overlap, 0);
    let transitions = [("to", "exact"), ("rank", "2")];
    let seen = gateway.metrics().await.sum("kvasir_trust_transitions_total", &transitions);
    assert!(seen >= Some(2.0), "{seen:?}");
}

/// Two URLs of one rank each: one engine tells where its ranks publish, of the other it is
/// configured where the first rank does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addressed_by_url_each_engine_has_the_stream_of_its_rank() {
    let ranked = Sim::with_ranks(3, BLOCKS, FAST).await;
    for (rank, number) in [(0, 0), (1, 1), (1, 2), (2, 3), (2, 4), (2, 5)] {
        ask_rank(&ranked, rank, &prompt(number)).await;
    }
    let other = Sim::start(BLOCKS, FAST).await;
    let pool = json!({"model": "tiny", "rank_addressing": "url", "endpoints": [
        {"url": ranked.url(), "rank": 1},
        {"url": other.url(), "rank": 2, "events": ranked.server.events_endpoint(),
            "replay": ranked.server.replay_endpoint()}]});
    let gateway = Gateway::start(json!({ "pools": [pool] })).await;
    gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], as_f64(2)).await;
    for (url, rank, blocks) in [(ranked.url(), "1", 18.0), (other.url(), "2", 27.0)] {
        let labels = [("endpoint", &*url), ("rank", rank)];
        gateway.until_metric("kvasir_endpoint_resident_blocks", &labels, blocks).await;
    }
    assert_eq!(gateway.metrics().await.sum("kvasir_endpoint_up", &[]), Some(2.0));
}
