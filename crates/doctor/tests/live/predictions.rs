//! Predictions against what engines report or count.

use kvasir_doctor::{LegName, Target, Verdict};
use kvasir_engine_sim::server::SimServerConfig;
use kvasir_engine_sim::{Algorithm, EngineConfig, HashForm};
use kvasir_testkit::engine::{FakeEngine, Reply};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions};
use serde_json::{Value, json};

use crate::common::{complete, plain, probing, release, report, says, start, state};

#[tokio::test(flavor = "multi_thread")]
async fn without_reports_the_counters_tell() {
    let server = start(SimServerConfig { report_cached_tokens: false, ..plain() }).await;
    let found = report(&probing(&server)).await;
    let parts = ["8 of 8 probes", "by the hit counters", "(0, 48, 48, 0, 48, 0, 48, 0)"];
    says(&found, LegName::Prediction, Verdict::Ok, &parts);
    assert_eq!(state(&server).await["ranks"][0]["finished"], 8, "no prompt was sent twice");
}

/// 0.20.2 says null for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn null_is_a_zero_once_there_was_a_number() {
    let config = release("0.20.2", Algorithm::Sha256, Some("0"), HashForm::Int);
    let server = start(config).await;
    let mut target = probing(&server);
    target.events = server.events_endpoint();
    target.replay = server.replay_endpoint();
    let found = report(&target).await;
    says(&found, LegName::Prediction, Verdict::Ok, &["8 of 8", "(0, 48, 48, 0, 48, 0, 48, 0)"]);
}

/// Blocks of 128 tokens in a short context, as vLLM on CPU has them.
#[tokio::test(flavor = "multi_thread")]
async fn a_context_of_few_blocks() {
    let mut config = plain();
    config.engine = EngineConfig { block_size: 128, max_model_len: 300, ..config.engine };
    config.max_model_len = 300;
    let server = start(config).await;
    let found = report(&probing(&server)).await;
    says(&found, LegName::Prediction, Verdict::Ok, &["8 of 8", "256"]);
    says(&found, LegName::BlockSize, Verdict::Ok, &["events 128"]);

    let mut config = plain();
    config.engine = EngineConfig { block_size: 128, max_model_len: 100, ..config.engine };
    config.max_model_len = 100;
    let server = start(config).await;
    let found = report(&probing(&server)).await;
    says(&found, LegName::Prediction, Verdict::Unknown, &["fills a block of 128"]);
}

/// The events of one engine, the answers of another.
#[tokio::test(flavor = "multi_thread")]
async fn anothers_events() {
    let (server, other) = (start(plain()).await, start(plain()).await);
    complete(&other, &(100..180).collect::<Vec<u32>>()).await;
    let mut target = probing(&server);
    target.patience = std::time::Duration::from_millis(500);
    (target.events, target.replay) = (other.events_endpoint(), other.replay_endpoint());
    let found = report(&target).await;
    let parts = ["probe 2 of", "the same again", "predicted 0, reported 48 of 51 tokens"];
    says(&found, LegName::Prediction, Verdict::Off, &parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn caching_off() {
    let mut config = plain();
    config.engine.enable_prefix_caching = false;
    let server = start(config).await;
    let mut target = probing(&server);
    target.patience = std::time::Duration::from_millis(500);
    let found = report(&target).await;
    says(&found, LegName::Prediction, Verdict::Unknown, &["prefix caching is off"]);
    says(&found, LegName::Wire, Verdict::Unknown, &["no event came of"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_reported() {
    let server = start(plain()).await;
    let fault = json!({"http": "error:503", "path": "/v1/completions"}).to_string();
    let addr = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    let set = kvasir_testkit::client::post(addr, "/sim/faults", fault.as_bytes()).await.unwrap();
    assert_eq!(set.status, 200);
    let found = report(&probing(&server)).await;
    let parts = ["a new prompt", "/v1/completions answered 503"];
    says(&found, LegName::Prediction, Verdict::Unknown, &parts);
}

/// Others' requests are never taken for the probe's own.
#[tokio::test(flavor = "multi_thread")]
async fn counters_that_others_move_too() {
    let server = start(SimServerConfig { report_cached_tokens: false, ..plain() }).await;
    let server = std::sync::Arc::new(server);
    let others = std::sync::Arc::clone(&server);
    let traffic = tokio::spawn(async move {
        loop {
            complete(&others, &(300..333).collect::<Vec<u32>>()).await;
        }
    });
    let found = report(&probing(&server)).await;
    traffic.abort();
    let leg = found.leg(LegName::Prediction).unwrap();
    assert_ne!(leg.verdict, Verdict::Off, "{leg}");
    says(&found, LegName::HashContract, Verdict::Ok, &["with cache_salt and lora"]);
}

/// Blocks that others evict between a prediction and its answer are nobody's fault.
#[tokio::test(flavor = "multi_thread")]
async fn others_evict() {
    use kvasir_testkit::publisher::payload::{Form, batch, removed, stored};
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    let sources = json!({"0": {"enable_kv_cache_events": true, "publisher": "zmq", "topic": "",
        "endpoint": publisher.endpoint(), "replay_endpoint": publisher.replay_endpoint()}});
    let config = kvasir_testkit::engine::EngineConfig {
        kv_event_sources: Some(sources),
        ..kvasir_testkit::engine::EngineConfig::default()
    };
    let engine = FakeEngine::start(config).await.unwrap();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    engine.set_handler(move |request| {
        let body: Value = serde_json::from_slice(&request.body).ok()?;
        let ids = body["prompt"].as_array()?.iter().filter_map(Value::as_u64);
        let tokens: Vec<u32> = ids.map(|id| id as u32).collect();
        let short = stored(&[1, 2, 3], None, &tokens[..48]);
        let (events, cached) = match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => (vec![short], 0),
            // Evicted just before, and stored again.
            1 => (vec![removed(&[1, 2, 3]), short], 0),
            2 => (vec![short], 48),
            _ => (vec![stored(&[4], Some(3), &tokens[48..64])], 48),
        };
        publisher.publish(batch(Form::Map, 1.0, &events));
        let usage = json!({"prompt_tokens": tokens.len(),
            "prompt_tokens_details": {"cached_tokens": cached}});
        Some(Reply::Json(http::StatusCode::OK, json!({"usage": usage})))
    });
    let mut target = Target::new(engine.addr().to_string().parse().unwrap());
    target.probe = true;
    let found = report(&target).await;
    says(&found, LegName::Prediction, Verdict::Ok, &["3 of 3 probes", "(0, 48, 48)"]);
    let prompts = engine.requests().iter().filter(|r| r.path == "/v1/completions").count();
    assert_eq!(prompts, 4, "the one that was disturbed is sent again");
}

/// An engine that stops answering is asked once more, not for every prompt of the plan.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_meanwhile() {
    let engine = FakeEngine::start(Default::default()).await.unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    engine.set_handler(move |request| {
        let asked = request.path == "/v1/completions";
        let before = count.fetch_add(usize::from(asked), std::sync::atomic::Ordering::Relaxed);
        (asked && before > 0).then_some(Reply::ResetBeforeHead)
    });
    let mut target = Target::new(engine.addr().to_string().parse().unwrap());
    target.probe = true;
    let found = report(&target).await;
    says(&found, LegName::Prediction, Verdict::Unknown, &["the same again: broken answer"]);
    let prompts = engine.requests().iter().filter(|r| r.path == "/v1/completions").count();
    assert_eq!(prompts, 2);
}

/// Engines whose vocabulary is smaller than the usual ids, and pages without counters.
#[tokio::test(flavor = "multi_thread")]
async fn a_vocabulary_of_few_tokens() {
    let config = kvasir_testkit::engine::EngineConfig {
        report_cached_tokens: false,
        ..kvasir_testkit::engine::EngineConfig::default()
    };
    let engine = FakeEngine::start(config).await.unwrap();
    engine.set_handler(|request| {
        let body: Value = serde_json::from_slice(&request.body).ok()?;
        let large = body["prompt"].as_array()?.iter().any(|id| id.as_u64() > Some(30));
        large.then(|| Reply::status(http::StatusCode::BAD_REQUEST))
    });
    engine.set_page("/metrics", Reply::status(http::StatusCode::NOT_FOUND));
    let mut target = Target::new(engine.addr().to_string().parse().unwrap());
    target.probe = true;
    let found = report(&target).await;
    let parts = ["not reported in answers", "no hit counters in /metrics"];
    says(&found, LegName::Prediction, Verdict::Unknown, &parts);
    let prompts = engine.requests().iter().filter(|r| r.path == "/v1/completions").count();
    assert_eq!(prompts, 4, "one that was refused, and three");
}
