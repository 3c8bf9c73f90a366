//! What is learned of requests in two legs: predictions against reports, and what engines have in hand.

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::EngineKind;
use serde_json::json;

use super::{Engine, Split, body, plan, tokens};
use crate::harness::{COMPLETIONS, MetricsPage, SOON, until};

/// Comparisons at an engine, and answers that were not compared for this reason (any, where it is empty).
fn judged(page: &MetricsPage, engine: &Engine) -> f64 {
    let url = engine.url();
    page.sum("kvasir_hit_judged_total", &[("endpoint", &url), ("oracle", "usage")]).unwrap_or(0.0)
}

fn unjudged(page: &MetricsPage, engine: &Engine, reason: Option<&str>) -> f64 {
    let url = engine.url();
    let mut labels = vec![("endpoint", &*url)];
    labels.extend(reason.map(|reason| ("reason", reason)));
    page.sum("kvasir_hit_unjudged_total", &labels).unwrap_or(0.0)
}

async fn until_seen(split: &Split, seen: impl Fn(&MetricsPage) -> f64, want: f64) {
    until(SOON, || async {
        let now = seen(&split.gateway.metrics().await);
        if (now - want).abs() < 0.5 { Ok(()) } else { Err(format!("{now}, not {want}")) }
    })
    .await;
}

#[tokio::test]
async fn prefill_legs_are_held_against_their_predictions_and_no_decode_leg() {
    for kind in [EngineKind::Vllm, EngineKind::TrtLlm] {
        let split = Split::of(kind, 1, 1).await;
        let (prefill, decode) = (&split.prefill[0], &split.decode[0]);
        for _ in 0..3 {
            assert_eq!(plan(&split.ask(0).await), "split", "{kind}");
        }
        let all = |page: &MetricsPage| judged(page, prefill) + unjudged(page, prefill, None);
        until_seen(&split, all, 3.0).await;
        until_seen(&split, |page| unjudged(page, decode, Some("split")), 3.0).await;
        let page = split.gateway.metrics().await;
        assert_eq!(judged(&page, decode), 0.0, "{kind}");
        // Whatever is why: none of it is for having been sent twice.
        assert_eq!(unjudged(&page, prefill, Some("attempt")), 0.0, "{kind}");
        if kind == EngineKind::Vllm {
            assert!(judged(&page, prefill) > 0.0);
            let over = page.sum("kvasir_hit_judged_total", &[("verdict", "over")]);
            assert_eq!(over.unwrap_or(0.0), 0.0);
        }
        split.until_clean().await;
    }
}

#[tokio::test]
async fn of_legs_sent_at_once_the_prefill_engines_answer_is_read_too() {
    let split = Split::of(EngineKind::Sglang, 1, 1).await;
    let (prefill, decode) = (&split.prefill[0], &split.decode[0]);
    let mut seen = 0.0;
    // One whose decode engine is done first is not read.
    for _ in 0..20 {
        assert_eq!(plan(&split.ask(0).await), "split");
        let page = split.gateway.metrics().await;
        seen = judged(&page, prefill) + unjudged(&page, prefill, None);
        if seen > 2.0 {
            break;
        }
    }
    assert!(seen > 2.0, "{seen}");
    let page = split.gateway.metrics().await;
    assert_eq!(judged(&page, decode), 0.0);
    split.until_clean().await;
}

#[tokio::test]
async fn a_prefill_leg_after_a_failed_one_is_not_compared() {
    let split = Split::of(EngineKind::Vllm, 2, 1).await;
    split.prefill[0].fault(json!({"http": "error:500"})).await;
    let mut turns = 0.0;
    let retried = [("result", "ok")];
    while split.gateway.metrics().await.sum("kvasir_retries_total", &retried).is_none() {
        assert!(turns < 8.0);
        assert_eq!(plan(&split.ask(0).await), "split");
        turns += 1.0;
    }
    let other = &split.prefill[1];
    let all = |page: &MetricsPage| judged(page, other) + unjudged(page, other, None);
    until_seen(&split, all, turns).await;
    let page = split.gateway.metrics().await;
    assert_eq!(unjudged(&page, other, Some("attempt")), 1.0);
}

#[tokio::test]
async fn a_decode_engine_that_computes_after_all_is_no_decode_leg() {
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    split.decode[0].fault(json!({"transfer": "fail"})).await;
    let response = split.ask(0).await;
    assert_eq!((plan(&response), tokens(&response).len()), ("transfer_failed".to_owned(), 8));
    until_seen(&split, |page| unjudged(page, &split.decode[0], None), 1.0).await;
    let page = split.gateway.metrics().await;
    assert_eq!(unjudged(&page, &split.decode[0], Some("split")), 0.0);
}

#[tokio::test]
async fn a_decode_engine_generates_for_answers_that_are_not_streamed_too() {
    for kind in [EngineKind::Vllm, EngineKind::Sglang] {
        let split = Split::with(kind, 1, 1, CostModel::MID_GPU, json!({})).await;
        let mut body = body(0);
        body["max_tokens"] = 4_000.into();
        let client = split.gateway.sent(COMPLETIONS, body.to_string().as_bytes()).await;
        let url = split.decode[0].url();
        let at = [("endpoint", &*url)];
        split.gateway.until_metric("kvasir_endpoint_decoding", &at, 1.0).await;
        let page = split.gateway.metrics().await;
        assert_eq!(
            page.sum("kvasir_endpoint_in_flight", &at),
            Some(1.0),
            "{kind}: it has not ended"
        );
        client.abort().unwrap();
        split.until_clean().await;
    }
}
