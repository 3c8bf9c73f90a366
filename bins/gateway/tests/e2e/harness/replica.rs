//! A fake engine that publishes what it caches, as vLLM 0.32 does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Stored, Tokenize};
use kvasir_testkit::publisher::payload::{self, EventSpec, Form};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions, ReplayForm};
use rmpv::Value;
use serde_json::json;

use super::Golden;

/// Tokens per block.
pub(crate) const BLOCK: u32 = 16;

/// What a replica is started with.
pub(crate) struct ReplicaOptions {
    pub(crate) models: Vec<Model>,
    /// Whether batches can be asked for again.
    pub(crate) replay: bool,
    pub(crate) tokenize: Option<Tokenize>,
    /// Tokens per block.
    pub(crate) block_size: u32,
    /// Whether answers say how many prompt tokens were cached.
    pub(crate) reports: bool,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self {
            models: vec![Model::base("tiny")],
            replay: true,
            tokenize: Some(Golden::tokenize()),
            block_size: BLOCK,
            reports: true,
        }
    }
}

/// An engine and its event publisher.
pub(crate) struct Replica {
    pub(crate) engine: FakeEngine,
    pub(crate) publisher: Arc<FakePublisher>,
    lose: Arc<AtomicBool>,
    hashes: Arc<Mutex<Vec<u64>>>,
}

impl Replica {
    pub(crate) async fn start() -> Self {
        Self::with(ReplicaOptions::default()).await
    }

    pub(crate) async fn several(count: usize) -> Vec<Self> {
        let mut replicas = Vec::new();
        for _ in 0..count {
            replicas.push(Self::start().await);
        }
        replicas
    }

    pub(crate) async fn with(options: ReplicaOptions) -> Self {
        let replay = options.replay.then_some(ReplayForm::WithTopic);
        let publisher = PublisherOptions { replay, ..PublisherOptions::default() };
        let publisher = Arc::new(FakePublisher::start(publisher).unwrap());
        let source = json!({"0": {"enable_kv_cache_events": true, "publisher": "zmq",
            "endpoint": publisher.endpoint(), "replay_endpoint": publisher.replay_endpoint(),
            "topic": ""}});
        let lose = Arc::new(AtomicBool::new(false));
        let hashes = Arc::<Mutex<Vec<u64>>>::default();
        let (sink, losing, stores) =
            (Arc::clone(&publisher), Arc::clone(&lose), Arc::clone(&hashes));
        let config = EngineConfig {
            models: options.models,
            kv_event_sources: Some(source),
            tokenize: options.tokenize,
            block_size: options.block_size as usize,
            report_cached_tokens: options.reports,
            sink: Some(Box::new(move |stored| {
                stores.lock().unwrap().extend(&stored.hashes);
                let batch = payload::batch(Form::Map, 0.0, &[event(&stored)]);
                if losing.swap(false, Ordering::SeqCst) {
                    sink.publish_lost(batch);
                } else {
                    sink.publish(batch);
                }
            })),
            ..EngineConfig::default()
        };
        Self { engine: FakeEngine::start(config).await.unwrap(), publisher, lose, hashes }
    }

    pub(crate) fn url(&self) -> String {
        self.engine.url()
    }

    /// The next batch is lost on the way; it is kept for replay.
    pub(crate) fn lose_next_batch(&self) {
        self.lose.store(true, Ordering::SeqCst);
    }

    /// The hashes of all blocks stored so far, in order.
    pub(crate) fn stored_hashes(&self) -> Vec<u64> {
        self.hashes.lock().unwrap().clone()
    }

    /// Publishes a batch of one event.
    pub(crate) fn publish(&self, event: EventSpec) {
        self.publisher.publish(payload::batch(Form::Map, 0.0, &[event]));
    }

    /// Ends the process and starts another in its place.
    pub(crate) async fn restart(&self) {
        self.engine.restart().await.unwrap();
        self.publisher.restart(0);
    }
}

fn event(stored: &Stored) -> EventSpec {
    let name = stored.lora_name.as_deref();
    let extra_keys = (0..stored.hashes.len()).map(|block| {
        let first = block == 0 && stored.parent.is_none();
        let salt = stored.cache_salt.as_deref().filter(|_| first);
        let keys: Vec<Value> = name.into_iter().chain(salt).map(Value::from).collect();
        if keys.is_empty() { Value::Nil } else { Value::Array(keys) }
    });
    payload::stored(&stored.hashes, stored.parent, &stored.tokens)
        .field("lora_name", name.map_or(Value::Nil, Value::from))
        .field("lora_id", name.map_or(Value::Nil, |_| Value::from(1)))
        .field("extra_keys", Value::Array(extra_keys.collect()))
}
