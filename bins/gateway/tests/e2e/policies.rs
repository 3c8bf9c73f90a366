//! Each policy by its name, told apart by where it sends requests.

use std::collections::BTreeSet;

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{FakeEngine, Reply};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool};

/// A holder of `ids(1, 64)`, another replica, and a gateway that knows.
struct Scene {
    holder: Replica,
    other: Replica,
    gateway: Gateway,
}

impl Scene {
    async fn new(policy: &str) -> Self {
        Self::configured(&json!({ "policy": policy })).await
    }

    /// With these keys in the pool's configuration.
    async fn configured(keys: &Value) -> Self {
        let (holder, other) = (Replica::start().await, Replica::start().await);
        let mut pool = pool("tiny", &[&other.engine, &holder.engine]);
        for (key, value) in keys.as_object().unwrap() {
            pool[key] = value.clone();
        }
        let gateway = Gateway::over(pool).await;
        gateway.until_learned(&[&holder, &other]).await;
        let body = completion(&ids(1, 64)).to_string();
        let addr = holder.engine.addr();
        kvasir_testkit::client::post(addr, COMPLETIONS, body.as_bytes()).await.unwrap();
        gateway.until_blocks(&holder, 4).await;
        Self { holder, other, gateway }
    }

    async fn ask(&self, prompt: &[u32]) -> Decision {
        Decision::of(&self.gateway.post(COMPLETIONS, &completion(prompt)).await)
    }

    /// Keeps a request with this prompt in flight; says where.
    async fn occupy(&self, prompt: &[u32]) -> (RawClient, &FakeEngine) {
        for replica in [&self.holder, &self.other] {
            replica.engine.set_default(Reply::HangBeforeHead);
        }
        let before = [&self.holder, &self.other].map(|r| r.engine.requests().len());
        let body = completion(prompt).to_string();
        let client = self.gateway.sent(COMPLETIONS, body.as_bytes()).await;
        kvasir_testkit::eventually_async(SOON, || {
            [&self.holder, &self.other].map(|r| r.engine.requests().len()) != before
        })
        .await;
        for replica in [&self.holder, &self.other] {
            replica.engine.set_default(Reply::Default);
        }
        let at_holder = self.holder.engine.requests().len() > before[0];
        let taken = if at_holder { &self.holder } else { &self.other };
        (client, &taken.engine)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_robin_takes_turns_whatever_is_cached() {
    let scene = Scene::new("round_robin").await;
    let mut taken = Vec::new();
    for _ in 0..6 {
        let decision = scene.ask(&ids(1, 64)).await;
        assert_eq!((&*decision.policy, &*decision.reason), ("round_robin", "turn"));
        taken.push(decision.endpoint);
    }
    assert!(taken.windows(2).all(|pair| pair[0] != pair[1]), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_load_avoids_the_replica_with_work_in_hand() {
    let scene = Scene::new("least_load").await;
    let (_busy, engine) = scene.occupy(&ids(2000, 20)).await;
    for _ in 0..5 {
        let decision = scene.ask(&ids(1, 64)).await;
        assert_eq!((&*decision.policy, &*decision.reason), ("least_load", "least_load"));
        assert_ne!(decision.endpoint, engine.url());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_load_spreads_a_burst_evenly() {
    let scene = Scene::new("least_load").await;
    let mut held = Vec::new();
    for n in 0..6 {
        held.push(scene.occupy(&ids(2000 + n * 20, 20)).await.0);
    }
    // The holder was asked once to begin with.
    let counts = (scene.holder.engine.requests().len(), scene.other.engine.requests().len());
    assert_eq!(counts, (4, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn precise_cache_aware_goes_to_the_holder_even_if_it_is_busy() {
    let policy = json!({ "name": "precise_cache_aware", "blend": "off", "cold_seed_every": 0 });
    let scene = Scene::configured(&json!({ "policy": policy })).await;
    let (_busy, engine) = scene.occupy(&ids(1, 4000)).await;
    assert_eq!(engine.url(), scene.holder.url());
    let decision = scene.ask(&ids(1, 65)).await;
    assert_eq!((&*decision.reason, decision.overlap), ("longest_prefix", 64));
    assert_eq!(decision.endpoint, scene.holder.url());
    // What nobody holds goes by load.
    let decision = scene.ask(&ids(3000, 65)).await;
    assert_eq!((&*decision.policy, &*decision.reason), ("least_load", "least_load"));
    assert_eq!(decision.overlap, 0);
    assert_eq!(decision.endpoint, scene.other.url());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latency_leaves_the_holder_when_its_queue_costs_more_than_computing_anew() {
    let scene = Scene::new("latency").await;
    let decision = scene.ask(&ids(1, 65)).await;
    assert_eq!((&*decision.reason, decision.overlap), ("least_latency_warm", 64));
    assert_eq!(decision.endpoint, scene.holder.url());
    let (busy, engine) = scene.occupy(&ids(1, 4000)).await;
    assert_eq!(engine.url(), scene.holder.url(), "equal but for the cached part");
    let decision = scene.ask(&ids(1, 65)).await;
    assert_eq!((&*decision.reason, decision.overlap), ("least_latency_cold", 0));
    assert_eq!(decision.endpoint, scene.other.url());
    // When the queue is gone, the holder is as good as before.
    busy.abort().unwrap();
    scene.gateway.until_idle().await;
    let back = scene.ask(&ids(1, 64)).await;
    assert_eq!((&*back.reason, back.overlap), ("least_latency_warm", 48));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latency_spreads_prompts_that_nobody_holds() {
    let scene = Scene::new("latency").await;
    let mut held = Vec::new();
    let mut taken = BTreeSet::new();
    for n in 0..4 {
        let (client, engine) = scene.occupy(&ids(100 + n * 900, 800)).await;
        held.push(client);
        taken.insert(engine.url());
    }
    assert_eq!(taken.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn precise_cache_aware_relieves_a_busy_holder_by_default() {
    let scene = Scene::new("precise_cache_aware").await;
    let (_busy, engine) = scene.occupy(&ids(1, 4000)).await;
    assert_eq!(engine.url(), scene.holder.url());
    let decision = scene.ask(&ids(1, 65)).await;
    assert_eq!(decision.endpoint, scene.other.url());
    let labels = [("detail", "spill_relief"), ("policy", "precise_cache_aware")];
    scene.gateway.until_metric("kvasir_decision_details_total", &labels, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_stick_where_the_pool_says_so_and_a_shadow_is_only_counted() {
    let keys = json!({ "policy": "round_robin", "sticky": {}, "shadow": "round_robin" });
    let scene = Scene::configured(&keys).await;
    let body = completion(&ids(1, 65)).to_string();
    let mut taken = BTreeSet::new();
    for session in ["a", "b"] {
        let mut first = None;
        for _ in 0..4 {
            let mut client = scene.gateway.connect().await;
            let named = [("x-session-id", session), ("content-type", "application/json")];
            client.send("POST", COMPLETIONS, &named, body.as_bytes()).await.unwrap();
            let decision = Decision::of(&client.response().await.unwrap());
            let policy = if first.is_some() { "sticky" } else { "round_robin" };
            assert_eq!(decision.policy, policy);
            assert_eq!(*first.get_or_insert_with(|| decision.endpoint.clone()), decision.endpoint);
        }
        taken.extend(first);
    }
    assert_eq!(taken.len(), 2, "each session its own");
    // The shadow goes on taking turns: it agrees every other time.
    let of = |agrees| [("policy", "round_robin"), ("agrees", agrees)];
    scene.gateway.until_metric("kvasir_shadow_decisions_total", &of("false"), 4.0).await;
    scene.gateway.until_metric("kvasir_shadow_decisions_total", &of("true"), 4.0).await;
}
