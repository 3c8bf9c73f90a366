//! Legs that are sent at once: one that fails ends the other one, and another pair is tried once.

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

#[tokio::test]
async fn what_no_pair_can_serve_goes_to_nobody() {
    let split = Split::of(EngineKind::Sglang, 1, 1).await;
    let mut several = body(0);
    several["n"] = json!(2);
    let response = split.post(COMPLETIONS, &several).await;
    assert_eq!(refusal(&response), (400, "several_answers".to_owned()));
    let prompts = json!({"model": "tiny", "prompt": [[1, 2], [3, 4]], "max_tokens": 2});
    for (path, body, why) in [
        (COMPLETIONS, prompts, "several_prompts"),
        ("/v1/responses", json!({"model": "tiny", "input": "a"}), "api"),
        ("/v1/embeddings", json!({"model": "tiny", "input": "a"}), "api"),
    ] {
        let response = split.post(path, &body).await;
        assert_eq!(refusal(&response), (503, "pd_pool_unavailable".to_owned()), "{path}");
        assert!(response.text().contains(&format!("({why})")), "{}", response.text());
    }
    assert_eq!(split.decode[0].finished().await, 0);
    split.until_clean().await;
}

#[tokio::test]
async fn without_anybody_to_compute_it_is_not_ready() {
    let split = Split::of(EngineKind::Sglang, 0, 1).await;
    split.gateway.until_metric("kvasir_pool_ready", &[], 0.0).await;
    let split = Split::of(EngineKind::Sglang, 1, 1).await;
    split.gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
}

#[tokio::test]
async fn a_kept_connection_that_breaks_is_answered_by_another_room() {
    for side in ["prefill", "decode"] {
        let split = Split::of(EngineKind::Sglang, 1, 1).await;
        assert_eq!(tokens(&split.ask(0).await).len(), 8);
        let at = if side == "prefill" { &split.prefill[0] } else { &split.decode[0] };
        at.fault(json!({"http": "reset", "once": true})).await;
        assert_eq!(tokens(&split.ask(300).await).len(), 8, "{side}");
        let page = split.gateway.metrics().await;
        let repeated = ("kvasir_upstream_stale_retries_total", [("request", "repeated")]);
        assert_eq!(page.sum(repeated.0, &repeated.1).unwrap_or(0.0), 0.0, "{side}");
        let again = page.sum("kvasir_retries_total", &[("cause", "broke"), ("result", "ok")]);
        assert_eq!(again, Some(1.0), "{side}");
        split.until_clean().await;
    }
}

#[tokio::test]
async fn a_decode_engine_is_not_blamed_for_a_prompt_that_does_not_come() {
    let split = Split::of(EngineKind::Sglang, 2, 1).await;
    for engine in &split.prefill {
        engine.fault(json!({"http": "slow:400"})).await;
    }
    // As it says where its prefill engine does not come: another one may.
    split.decode[0].fault(json!({"http": "error:500", "once": true})).await;
    assert_eq!(tokens(&split.ask(0).await).len(), 8);
    split.decode[0].fault(json!({"http": "error:500", "once": false})).await;
    for turn in 1..6 {
        assert_eq!(split.ask(turn * 300).await.status, 500);
    }
    let page = split.gateway.metrics().await;
    let opened = page.sum("kvasir_breaker_transitions_total", &[("to", "open")]);
    assert_eq!(opened.unwrap_or(0.0), 0.0);
    split.until_clean().await;
}

#[tokio::test]
async fn a_busy_decode_engine_is_no_failed_hand_over() {
    let split = Split::of(EngineKind::Sglang, 1, 2).await;
    for engine in &split.decode {
        engine.fault(json!({"http": "error:503"})).await;
    }
    for turn in 0..4 {
        assert_eq!(split.ask(turn * 300).await.status, 503);
    }
    let page = split.gateway.metrics().await;
    for name in ["kvasir_pd_failed_hand_overs_total", "kvasir_pd_left_out"] {
        assert_eq!(page.sum(name, &[]).unwrap_or(0.0), 0.0, "{name}");
    }
    for engine in &split.decode {
        engine.fault(json!({"http": "ok"})).await;
    }
    // They are left alone for a while, and then the pair serves again.
    crate::harness::until(crate::harness::SOON, || async {
        let response = split.ask(9_000).await;
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    })
    .await;
    split.until_clean().await;
}
