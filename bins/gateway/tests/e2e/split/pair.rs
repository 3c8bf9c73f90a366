//! Legs that are sent at once: one that fails ends the other one, and another pair is tried once.

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::EngineKind;
use serde_json::json;

use super::{Split, body, plan, refusal, streamed, tokens};
use crate::harness::COMPLETIONS;

#[tokio::test]
async fn another_pair_is_tried_once() {
    for (side, fault) in [
        ("prefill", "reset"),
        ("prefill", "error:500"),
        ("decode", "reset"),
        ("decode", "error:503"),
    ] {
        let split = Split::of(EngineKind::Sglang, 2, 2).await;
        let at = if side == "prefill" { &split.prefill[0] } else { &split.decode[0] };
        at.fault(json!({"http": fault})).await;
        for turn in 0..4 {
            let response = split.ask(turn * 300).await;
            let seen = (plan(&response), tokens(&response).len());
            assert_eq!(seen, ("split".to_owned(), 8), "{side} {fault}");
        }
        split.until_clean().await;
    }
}

#[tokio::test]
async fn two_prefill_engines_that_fail_are_enough() {
    for fault in ["reset", "error:500"] {
        let split = Split::of(EngineKind::Sglang, 3, 2).await;
        for engine in &split.prefill {
            engine.fault(json!({"http": fault})).await;
        }
        let response = split.ask(0).await;
        assert_eq!(refusal(&response), (502, "pd_sg_prefill_failed".to_owned()), "{fault}");
        split.until_clean().await;
    }
}

#[tokio::test]
async fn what_the_prefill_engine_says_of_the_request_is_passed_on() {
    let split = Split::of(EngineKind::Sglang, 1, 1).await;
    split.prefill[0].fault(json!({"http": "error:422"})).await;
    let response = split.ask(0).await;
    assert_eq!(response.status, 422, "{}", response.text());
    split.until_clean().await;
}

#[tokio::test]
async fn legs_that_hang_have_their_times() {
    let limits = json!({"prefill_timeout_ms": 300, "decode_timeout_ms": 300});
    let split = Split::with(EngineKind::Sglang, 1, 1, CostModel::DEMO, limits).await;
    split.prefill[0].fault(json!({"http": "hang"})).await;
    let response = split.post(COMPLETIONS, &streamed(body(0))).await;
    assert_eq!(refusal(&response), (504, "pd_prefill_timeout".to_owned()));
    split.until_clean().await;
}

#[tokio::test]
async fn a_lone_pair_that_fails_is_not_served_by_half_of_it() {
    let split = Split::of(EngineKind::Sglang, 1, 1).await;
    split.prefill[0].fault(json!({"http": "reset"})).await;
    let response = split.ask(0).await;
    assert_eq!(refusal(&response), (502, "pd_sg_prefill_failed".to_owned()));
    assert_eq!(split.decode[0].finished().await, 0);
    split.until_clean().await;
}

#[tokio::test]
async fn a_decode_engine_that_breaks_off_ends_its_stream() {
    let split = Split::of(EngineKind::Sglang, 1, 1).await;
    split.decode[0].fault(json!({"http": "reset_mid_body"})).await;
    let body = streamed(body(0));
    let mut client = split.gateway.sent(COMPLETIONS, body.to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let mut events = Vec::new();
    while let Some(event) = client.event().await.unwrap() {
        events.push(event);
    }
    assert!(events.last().unwrap().contains("engine_broke_off"), "{events:?}");
    split.until_clean().await;
}
