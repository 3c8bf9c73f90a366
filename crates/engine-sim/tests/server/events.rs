//! Events as a subscriber receives them, against what the engine's cache holds.

use std::collections::BTreeSet;

use kvasir_engine_sim::HashForm;
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_inventory::{AbsentReason, EngineHash, Trust};
use kvasir_kv_events::{Address, Event, Subscriber, SubscriberConfig, Update};
use serde_json::{Value, json};

use crate::common::{DEADLINE, complete, fetch, prompt, quick, send, start};

/// What a subscriber believes.
pub(crate) struct Picture {
    subscriber: Subscriber,
    pub(crate) blocks: BTreeSet<u64>,
    pub(crate) trust: Trust,
    pub(crate) forgotten: usize,
    pub(crate) batches: usize,
    pub(crate) ranks: BTreeSet<Option<u32>>,
}

impl Picture {
    pub(crate) fn of_rank(server: &SimServer, rank: u32, replay: bool) -> Self {
        let address = |endpoint: Option<String>| {
            Address::parse(&endpoint.unwrap()).unwrap().for_rank(rank).unwrap()
        };
        let mut config = SubscriberConfig::new(address(server.events_endpoint()));
        config.replay = replay.then(|| address(server.replay_endpoint()));
        config.idle_check = std::time::Duration::from_millis(200);
        let subscriber = Subscriber::spawn(config).unwrap();
        let trust = Trust::Absent(AbsentReason::Connecting);
        let (blocks, ranks) = (BTreeSet::new(), BTreeSet::new());
        Self { subscriber, blocks, trust, forgotten: 0, batches: 0, ranks }
    }

    fn apply(&mut self, update: Update) {
        match update {
            Update::Forget { trust, .. } => {
                self.blocks.clear();
                self.trust = trust;
                self.forgotten += 1;
            }
            Update::Trust { trust, .. } => self.trust = trust,
            Update::Batch { batch, .. } => {
                self.batches += 1;
                self.ranks.insert(batch.rank);
                for event in batch.events {
                    match event {
                        Event::Stored(stored) => {
                            self.blocks.extend(stored.block_hashes.iter().map(number));
                        }
                        Event::Removed(removed) => {
                            for hash in removed.block_hashes.iter().map(number) {
                                self.blocks.remove(&hash);
                            }
                        }
                        Event::Cleared => self.blocks.clear(),
                    }
                }
            }
        }
    }

    /// Waits until the picture is exact and satisfies `good`.
    pub(crate) async fn until(&mut self, what: &str, good: impl Fn(&Self) -> bool) {
        self.wait(what, |picture| picture.trust == Trust::Exact && good(picture)).await;
    }

    /// Waits until the picture satisfies `good`, whatever its trust.
    pub(crate) async fn wait(&mut self, what: &str, good: impl Fn(&Self) -> bool) {
        let wait = async {
            while !good(self) {
                let update = self.subscriber.recv().await.unwrap();
                self.apply(update);
            }
        };
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            panic!("{what}: {:?}, {} blocks", self.trust, self.blocks.len());
        }
    }

    /// Waits until the picture equals what the engine holds now.
    pub(crate) async fn equals(&mut self, what: &str, server: &SimServer, rank: usize) {
        let state = fetch(server, "/sim/state").await;
        let held = held(&state, rank);
        self.until(what, |picture| picture.blocks == held).await;
    }
}

fn number(hash: &EngineHash) -> u64 {
    hash.0
}

/// The blocks a rank says it caches.
pub(crate) fn held(state: &Value, rank: usize) -> BTreeSet<u64> {
    let blocks = state["ranks"][rank]["cached_blocks"].as_array().unwrap();
    blocks.iter().map(|hash| hash.as_str().unwrap().parse().unwrap()).collect()
}

/// Requests of shared and own prefixes, some at once, that fill the cache several times.
pub(crate) async fn workload(server: &SimServer, mut seed: u64) {
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..15 {
        let mut bodies = Vec::new();
        for _ in 0..4 {
            let shared = u32::try_from(random(5)).unwrap();
            let mut tokens = prompt(shared, 16 * u32::try_from(1 + random(8)).unwrap());
            let own = u32::try_from(10 + random(1_000)).unwrap();
            tokens.extend(prompt(own, u32::try_from(random(200)).unwrap()));
            let salt = (random(5) == 0).then_some("tenant");
            bodies.push(json!({"model": "tiny", "prompt": tokens, "ignore_eos": true,
                "max_tokens": 1 + random(60), "cache_salt": salt}));
        }
        let (a, b, c, d) = tokio::join!(
            send(server, "/v1/completions", &bodies[0]),
            send(server, "/v1/completions", &bodies[1]),
            send(server, "/v1/completions", &bodies[2]),
            send(server, "/v1/completions", &bodies[3]),
        );
        assert!([a, b, c, d].iter().all(|answer| answer.status == 200));
    }
}

#[tokio::test]
async fn what_is_published_is_what_is_cached() {
    for (version, form, seed) in [
        ("0.32.0", HashForm::Int, 1),
        ("0.32.0", HashForm::Bytes(32), 2),
        ("0.20.2", HashForm::Int, 3),
        ("0.33.0", HashForm::Int, 4),
    ] {
        let mut config = quick();
        config.version = version.to_owned();
        config.hash_form = form;
        config.topic = "kv@one".to_owned();
        let server = start(config).await;
        let mut from_the_start = Picture::of_rank(&server, 0, true);
        from_the_start.until("connected", |_| true).await;
        workload(&server, seed).await;
        from_the_start.equals("from the start", &server, 0).await;
        assert_eq!(from_the_start.ranks, BTreeSet::from([Some(0)]));
        assert!(from_the_start.blocks.len() > 100);
        assert!(server.stats().prefix_hits > 0);

        let mut late = Picture::of_rank(&server, 0, true);
        late.equals("from replay", &server, 0).await;
        workload(&server, seed + 10).await;
        late.equals("joined late", &server, 0).await;
        from_the_start.equals("went on", &server, 0).await;
    }
}

#[tokio::test]
async fn a_reset_is_published_with_the_next_step() {
    let server = start(quick()).await;
    let mut picture = Picture::of_rank(&server, 0, true);
    complete(&server, &prompt(1, 100), 1).await;
    picture.until("stored", |picture| picture.blocks.len() == 6).await;
    send(&server, "/reset_prefix_cache", &Value::Null).await;
    complete(&server, &prompt(2, 40), 1).await;
    picture.until("cleared", |picture| picture.blocks.len() == 2).await;
    picture.equals("after the reset", &server, 0).await;
}

#[tokio::test]
async fn each_rank_publishes_for_itself() {
    let server = start(SimServerConfig { ranks: 3, ..quick() }).await;
    let mut pictures: Vec<_> = (0..3).map(|rank| Picture::of_rank(&server, rank, true)).collect();
    workload(&server, 7).await;
    for (rank, picture) in pictures.iter_mut().enumerate() {
        picture.equals("own rank", &server, rank).await;
        assert_eq!(picture.ranks, BTreeSet::from([Some(u32::try_from(rank).unwrap())]));
    }
}

#[tokio::test]
async fn without_an_endpoint_nothing_is_published() {
    let server = start(SimServerConfig { events: None, replay: None, ..quick() }).await;
    assert_eq!((server.events_endpoint(), server.replay_endpoint()), (None, None));
    complete(&server, &prompt(1, 100), 1).await;
    assert_eq!(fetch(&server, "/kv_event_sources").await, json!({}));
    assert_eq!(held(&fetch(&server, "/sim/state").await, 0).len(), 6);
}
