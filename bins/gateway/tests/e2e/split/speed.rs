//! How fast engines compute is learned of those that publish no events, too, where they report what was
//! cached.

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::{EngineKind, PdRole, SimServerConfig};
use serde_json::json;

use super::{Engine, Split, plan};
use crate::harness::MetricsPage;

/// A slow prefill engine, one that is forty times as fast, and a decode engine, without events.
async fn scene(report: bool) -> Split {
    let start = |role, speed: f64| {
        Engine::with(
            EngineKind::Vllm,
            Some(role),
            CostModel::MID_GPU.faster(speed),
            move |config: &mut SimServerConfig| {
                (config.events, config.replay) = (None, None);
                config.report_cached_tokens = report;
            },
        )
    };
    let prefill = vec![start(PdRole::Prefill, 0.2).await, start(PdRole::Prefill, 8.0).await];
    let decode = vec![start(PdRole::Decode, 8.0).await];
    Split::over(prefill, decode, json!({"protocol": "nixl"})).await
}

fn rate(page: &MetricsPage, engine: &Engine) -> Option<f64> {
    page.sum("kvasir_endpoint_prefill_tokens_per_second", &[("endpoint", &engine.url())])
}

#[tokio::test]
async fn what_engines_report_tells_how_fast_they_are() {
    let split = scene(true).await;
    // They take turns, and what warms them up does not count. One prompt comes again and is cached.
    for turn in 0..16 {
        assert_eq!(plan(&split.ask(turn % 10 * 200).await), "split");
    }
    let page = split.gateway.metrics().await;
    let [slow, fast] = [0, 1].map(|at| rate(&page, &split.prefill[at]).unwrap());
    assert!(fast > 2.0 * slow, "{slow} {fast}");
    split.until_clean().await;
}

#[tokio::test]
async fn engines_that_report_nothing_are_not_timed() {
    let split = scene(false).await;
    for turn in 0..8 {
        assert_eq!(plan(&split.ask(turn * 200).await), "split");
    }
    let page = split.gateway.metrics().await;
    // What was cached is not known, and would be taken for speed.
    assert!(split.prefill.iter().all(|engine| rate(&page, engine).is_none()));
    split.until_clean().await;
}
