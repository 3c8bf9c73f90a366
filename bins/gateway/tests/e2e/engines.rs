//! Engines other than vLLM: how they are recognised, and what is learned of their caches.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply, Stored};
use kvasir_testkit::publisher::payload::{self, Form};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions, ReplayForm};
use rmpv::Value as Wire;
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Decision, Gateway, SOON, completion, ids, pool, until};

/// What is not answered by an engine of another kind than vLLM.
fn disguise(engine: &FakeEngine, owner: &str, metrics: &'static str) {
    let page = |path: &str, body: Value| engine.set_page(path, Reply::Json(StatusCode::OK, body));
    let model = json!({"id": "tiny", "object": "model", "owned_by": owner, "root": "/models/tiny"});
    page("/v1/models", json!({"object": "list", "data": [model]}));
    engine.set_page("/version", Reply::status(StatusCode::NOT_FOUND));
    let metrics = Reply::Status(StatusCode::OK, http::HeaderMap::new(), metrics.into());
    engine.set_page("/metrics", metrics);
}

/// The credit a prompt got, and what the engine had cached.
async fn ask(gateway: &Gateway, prompt: &[u32]) -> (u64, u64) {
    let response = gateway.post(COMPLETIONS, &completion(prompt)).await;
    let cached = &response.json()["usage"]["prompt_tokens_details"]["cached_tokens"];
    (Decision::of(&response).overlap, cached.as_u64().unwrap())
}

async fn until_trust(gateway: &Gateway, wanted: &str) {
    until(SOON, || async {
        let page = gateway.metrics().await;
        let read = |label| page.label("kvasir_endpoint_trust", &[], label);
        let seen = format!("{}({})", read("state"), read("reason"));
        if seen == wanted { Ok(()) } else { Err(seen) }
    })
    .await;
}

async fn until_blocks(gateway: &Gateway, count: f64) {
    let device = [("tier", "device")];
    gateway.until_metric("kvasir_endpoint_resident_blocks", &device, count).await;
}

/// As SGLang publishes: signed hashes, no groups, no extra keys.
fn sglang_batch(form: Form, stored: &Stored) -> Vec<u8> {
    let signed = |hash: u64| Wire::from(hash.cast_signed());
    let hashes = stored.hashes.iter().map(|hash| signed(*hash)).collect();
    let event = payload::stored(&stored.hashes, None, &stored.tokens)
        .field("block_hashes", Wire::Array(hashes))
        .field("parent_block_hash", stored.parent.map_or(Wire::Nil, signed));
    payload::batch(form, 0.0, &[event])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sglang_says_itself_where_its_events_are_and_is_predicted_right() {
    for (form, replay, path) in [
        (Form::Array, ReplayForm::WithoutTopic, "/get_server_info"),
        (Form::Map, ReplayForm::WithTopic, "/server_info"),
    ] {
        let options = PublisherOptions {
            topic: "kv-events".to_owned(),
            replay: Some(replay),
            ..PublisherOptions::default()
        };
        let publisher = Arc::new(FakePublisher::start(options).unwrap());
        let sink = Arc::clone(&publisher);
        let config = EngineConfig {
            sink: Some(Box::new(move |stored| {
                sink.publish(sglang_batch(form, &stored));
            })),
            ..EngineConfig::default()
        };
        let engine = FakeEngine::start(config).await.unwrap();
        disguise(
            &engine,
            "sglang",
            "sglang:num_running_reqs{model_name=\"tiny\"} 1.0\n\
             sglang:num_queue_reqs{model_name=\"tiny\"} 0.0\n\
             sglang:token_usage{model_name=\"tiny\"} 0.25\n",
        );
        let events = json!({"publisher": "zmq", "topic": "kv-events",
            "endpoint": publisher.endpoint(), "replay_endpoint": publisher.replay_endpoint()});
        // The page size is wrong here: the events say what it is.
        let info = json!({"version": "0.5.23", "page_size": 64, "dp_size": 1,
            "kv_events_config": events.to_string()});
        engine.set_page(path, Reply::Json(StatusCode::OK, info));
        let gateway = Gateway::over(pool("tiny", &[&engine])).await;
        until_trust(&gateway, "exact()").await;
        assert_eq!(gateway.metrics().await.sum("kvasir_endpoint_kv_usage", &[]), Some(0.25));
        assert_eq!(ask(&gateway, &ids(1, 70)).await, (0, 0));
        until_blocks(&gateway, 4.0).await;
        assert_eq!(ask(&gateway, &ids(1, 100)).await, (64, 64), "{path}");
        until_blocks(&gateway, 6.0).await;
        assert_eq!(ask(&gateway, &ids(1, 100)).await, (96, 96), "{path}");
        assert_eq!(gateway.metrics().await.sum("kvasir_endpoint_block_size", &[]), Some(16.0));
        publisher.publish_lost(payload::batch(form, 1.0, &[payload::cleared()]));
        publisher.publish(payload::batch(form, 2.0, &[]));
        until_blocks(&gateway, 0.0).await;
    }
}

/// As TensorRT-LLM tells of stored blocks.
fn trt_event(id: u64, stored: &Stored) -> Value {
    let chunks = stored.tokens.chunks(stored.block_size);
    let blocks = stored.hashes.iter().zip(chunks).map(|(hash, tokens)| {
        let tokens = tokens.iter().map(|id| {
            json!({"type": "unique_token", "token_id": id,
            "token_extra_id": 0})
        });
        json!({"type": "stored_block", "block_hash": hash, "cache_level": 0, "priority": 35,
            "tokens": tokens.collect::<Vec<_>>()})
    });
    json!({"event_id": id, "window_size": 2048, "data": {"type": "stored",
        "parent_hash": stored.parent, "blocks": blocks.collect::<Vec<_>>()}})
}

struct Trt {
    engine: Arc<FakeEngine>,
    next: Arc<Mutex<u64>>,
}

impl Trt {
    async fn start() -> Self {
        let this: Arc<OnceLock<Weak<FakeEngine>>> = Arc::default();
        let next = Arc::new(Mutex::new(1));
        let (engine, number) = (Arc::clone(&this), Arc::clone(&next));
        let config = EngineConfig {
            sink: Some(Box::new(move |stored| {
                let mut next = number.lock().unwrap();
                let engine = engine.get().and_then(Weak::upgrade).unwrap();
                engine.push_cache_events(vec![trt_event(*next, &stored)]);
                *next += 1;
            })),
            ..EngineConfig::default()
        };
        let engine = Arc::new(FakeEngine::start(config).await.unwrap());
        this.set(Arc::downgrade(&engine)).unwrap();
        disguise(&engine, "tensorrt_llm", "[]");
        let created = json!({"type": "created", "num_blocks_per_cache_level": [100, 0]});
        let created = json!({"event_id": 0, "window_size": 2048, "data": created});
        engine.push_cache_events(vec![created]);
        Self { engine, next }
    }

    /// Numbers an event, which is lost.
    fn lose(&self) {
        *self.next.lock().unwrap() += 1;
    }

    fn asked_for_events(&self) -> bool {
        self.engine.info_requests().iter().any(|request| request.path == "/kv_cache_events")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tensorrt_llm_is_polled_where_the_configuration_says_so() {
    let trt = Trt::start().await;
    let mut pool = pool("tiny", &[&trt.engine]);
    pool["endpoints"][0]["events"] = "poll".into();
    let gateway = Gateway::over(pool).await;
    until_trust(&gateway, "exact()").await;
    assert_eq!(ask(&gateway, &ids(1, 70)).await, (0, 0));
    until_blocks(&gateway, 4.0).await;
    assert_eq!(ask(&gateway, &ids(1, 100)).await, (64, 64));
    until_blocks(&gateway, 6.0).await;
    assert_eq!(ask(&gateway, &ids(1, 100)).await, (96, 96));
    // Somebody else took an event.
    trt.lose();
    assert_eq!(ask(&gateway, &ids(1001, 70)).await, (0, 0));
    until_trust(&gateway, "partial(lost_batch)").await;
    until_blocks(&gateway, 4.0).await;
    assert_eq!(ask(&gateway, &ids(1, 100)).await, (0, 96));
    assert_eq!(ask(&gateway, &ids(1001, 70)).await, (64, 64));
    // Its stream is counted as those that are subscribed to.
    let page = gateway.metrics().await;
    let counted = |name: &str| page.sum(&format!("kvasir_stream_{name}_total"), &[]);
    assert_eq!((counted("gaps"), counted("disconnects")), (Some(1.0), Some(0.0)));
    assert!(counted("batches") >= Some(4.0), "{:?}", counted("batches"));
    // A question that fails may have taken events with it.
    trt.engine.set_page("/kv_cache_events", Reply::ResetBeforeHead);
    until_trust(&gateway, "absent(disconnected)").await;
    gateway.until_metric("kvasir_stream_disconnects_total", &[], 1.0).await;
    trt.engine.set_page("/kv_cache_events", None);
    until_trust(&gateway, "suspect(life_in_doubt)").await;
    assert_eq!(ask(&gateway, &ids(2001, 70)).await, (0, 0));
    until_trust(&gateway, "partial(lost_batch)").await;
    assert_eq!(ask(&gateway, &ids(1001, 70)).await, (64, 64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_tensorrt_llms_events_unasked() {
    let trt = Trt::start().await;
    let gateway = Gateway::over(pool("tiny", &[&trt.engine])).await;
    until_trust(&gateway, "absent(not_polled)").await;
    assert_eq!(ask(&gateway, &ids(1, 70)).await, (0, 0));
    assert_eq!(ask(&gateway, &ids(1, 70)).await, (0, 64));
    assert!(!trt.asked_for_events());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn llama_cpp_is_served_by_load_and_said_to_publish_nothing() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    disguise(&engine, "me", "up 1\n");
    let props = json!({"default_generation_settings": {}, "total_slots": 1});
    engine.set_page("/props", Reply::Json(StatusCode::OK, props));
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    until_trust(&gateway, "absent(engine_without_events)").await;
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 70))).await);
    assert_eq!((decision.overlap, &*decision.trust), (0, "absent(engine_without_events)"));
}
