//! Legs sent at once (`SGLang`): whichever engine of a pair is at fault, the healthy ones stay in, and the one
//! that is not is left out soon.

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::EngineKind;
use serde_json::{Value, json};

use super::{Engine, Split, body, refusal, streamed, tokens};
use crate::harness::{COMPLETIONS, MetricsPage};

/// Time for one leg, which what is well needs a small part of.
fn limits() -> Value {
    json!({"prefill_timeout_ms": 600, "decode_timeout_ms": 600})
}

async fn two_of_each() -> Split {
    Split::with(EngineKind::Sglang, 2, 2, CostModel::DEMO, limits()).await
}

fn left_out(page: &MetricsPage, engine: &Engine, fault: &str) -> bool {
    let url = engine.url();
    page.sum("kvasir_pd_left_out", &[("endpoint", &url), ("fault", fault)]) == Some(1.0)
}

/// Nobody's breaker has opened.
#[track_caller]
fn all_closed(page: &MetricsPage, split: &Split, why: &str) {
    for engine in split.engines() {
        let labels = [("endpoint", &*engine.url()), ("state", "closed")];
        assert_eq!(page.sum("kvasir_endpoint_breaker", &labels), Some(1.0), "{why}");
    }
}

#[tokio::test]
async fn a_decode_engine_that_fails_with_both_prefill_engines_is_left_out() {
    for fault in [json!({"http": "hang", "leg": "decode"}), json!({"transfer": "fail"})] {
        for streams in [true, false] {
            let split = two_of_each().await;
            split.decode[0].fault(fault.clone()).await;
            let why = format!("{fault}, streamed: {streams}");
            let mut turns = 0;
            loop {
                let asked = body(turn(turns));
                let asked = if streams { streamed(asked) } else { asked };
                // Another pair answers.
                let response = split.post(COMPLETIONS, &asked).await;
                assert_eq!(response.status, 200, "{why}: {}", response.text());
                let page = split.gateway.metrics().await;
                all_closed(&page, &split, &why);
                if left_out(&page, &split.decode[0], "decode") {
                    break;
                }
                turns += 1;
                assert!(turns < 60, "{why}: it is not left out");
            }
            let page = split.gateway.metrics().await;
            for engine in split.engines() {
                let is_it = engine.url() == split.decode[0].url();
                assert_eq!(left_out(&page, engine, "decode"), is_it, "{why}");
                assert!(!left_out(&page, engine, "prefill"), "{why}");
            }
            // It gets nothing any more.
            let before = retries(&page);
            for more in 1..6 {
                let response = split.post(COMPLETIONS, &body(turn(turns + more))).await;
                assert_eq!(tokens(&response).len(), 8, "{why}");
            }
            assert_eq!(retries(&split.gateway.metrics().await), before, "{why}");
            split.until_clean().await;
        }
    }
}

#[tokio::test]
async fn a_prefill_engine_that_fails_with_both_decode_engines_is_left_out() {
    for fault in ["hang", "error:500"] {
        let split = two_of_each().await;
        split.prefill[0].fault(json!({"http": fault})).await;
        let mut turns = 0;
        loop {
            let response = split.post(COMPLETIONS, &streamed(body(turn(turns)))).await;
            assert_eq!(response.status, 200, "{fault}: {}", response.text());
            let page = split.gateway.metrics().await;
            all_closed(&page, &split, fault);
            if left_out(&page, &split.prefill[0], "prefill") {
                break;
            }
            turns += 1;
            assert!(turns < 60, "{fault}: it is not left out");
        }
        let page = split.gateway.metrics().await;
        assert!(!split.decode.iter().any(|engine| left_out(&page, engine, "decode")), "{fault}");
        split.until_clean().await;
    }
}

#[tokio::test]
async fn a_lone_pair_of_which_one_hangs_is_named_as_a_pair() {
    for (side, leg) in [("prefill", "prefill"), ("decode", "decode")] {
        let split = Split::with(EngineKind::Sglang, 1, 1, CostModel::DEMO, limits()).await;
        let at = if side == "prefill" { &split.prefill[0] } else { &split.decode[0] };
        at.fault(json!({"http": "hang", "leg": leg})).await;
        for turn in 0..4 {
            let response = split.post(COMPLETIONS, &streamed(body(turn * 300))).await;
            assert_eq!(refusal(&response), (504, "pd_pair_timeout".to_owned()), "{side}");
            let text = response.text();
            let want =
                "neither the prefill leg nor the decode leg gave data: no first data within 600 ms";
            assert!(text.contains(want), "{text}");
        }
        let page = split.gateway.metrics().await;
        all_closed(&page, &split, side);
        let failed = [("cause", "pd_pair_timeout")];
        assert_eq!(page.sum("kvasir_failed_attempts_total", &failed), Some(8.0), "{side}");
        // Nobody else can tell whose fault it is, and nobody else can serve it.
        assert_eq!(page.sum("kvasir_pd_faults_total", &[("fault", "link")]), Some(2.0), "{side}");
        split.until_clean().await;
        at.fault(json!({"http": "ok"})).await;
        assert_eq!(tokens(&split.ask(3000).await).len(), 8, "{side}");
    }
}

#[tokio::test]
async fn an_error_of_a_pair_names_both_legs() {
    let split = Split::of(EngineKind::Sglang, 1, 1).await;
    split.decode[0].fault(json!({"transfer": "fail"})).await;
    let response = split.ask(0).await;
    assert_eq!(refusal(&response), (502, "pd_sg_prefill_failed".to_owned()));
    let text = response.text();
    let want = "the prefill leg was answered 500 Internal Server Error; its decode leg ended with it, and no \
                KV was handed over";
    assert!(text.contains(want), "{text}");
    split.until_clean().await;
}

/// Prompts of which none begins as another.
fn turn(at: u32) -> u32 {
    at * 200
}

fn retries(page: &MetricsPage) -> f64 {
    page.sum("kvasir_retries_total", &[]).unwrap_or(0.0)
}
