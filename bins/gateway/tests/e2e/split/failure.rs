//! Decode legs that fail, before and after their first data, and clients that leave.

use std::time::Duration;

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::EngineKind;
use serde_json::{Value, json};

use super::{Split, body, plan, refusal, streamed, tokens};
use crate::harness::{COMPLETIONS, SOON, until};

#[tokio::test]
async fn another_decode_engine_goes_on_from_the_same_prompt() {
    for fault in ["error:503", "reset", "garbage"] {
        let split = Split::of(EngineKind::Vllm, 1, 2).await;
        split.decode[0].fault(json!({"http": fault})).await;
        for turn in 0..3 {
            let response = split.ask(turn * 300).await;
            assert_eq!(tokens(&response).len(), 8, "{fault}");
            assert_eq!(response.head.header("x-kvasir-endpoint"), Some(&*split.decode[1].url()));
            // Its prompt was computed once.
            assert_eq!(split.prefill[0].finished().await, u64::from(turn) + 1, "{fault}");
            // One that broke off may have fetched the blocks before.
            let plan = plan(&response);
            let fetched = fault != "error:503" && plan == "transfer_failed";
            assert!(plan == "split" || fetched, "{fault}: {plan}");
        }
        assert!(fault != "error:503" || split.decode[1].pulled().await > 0);
        split.until_clean().await;
    }
}

#[tokio::test]
async fn blocks_that_cannot_be_fetched_are_computed_anew() {
    for decoders in [1, 2] {
        let split = Split::of(EngineKind::Vllm, 1, decoders).await;
        for engine in &split.decode {
            engine.fault(json!({"transfer": "fail"})).await;
        }
        let response = split.ask(0).await;
        let seen = (plan(&response), tokens(&response).len());
        assert_eq!(seen, ("transfer_failed".to_owned(), 8), "{decoders}");
        assert_eq!(response.head.header("x-kvasir-prefill-endpoint"), None);
        assert_eq!(split.count("transfer_failed").await, 1.0);
        split.until_clean().await;
    }
}

#[tokio::test]
async fn a_lease_that_is_over_is_not_used() {
    // The engine's.
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    split.prefill[0].fault(json!({"lease": "expired"})).await;
    let response = split.ask(0).await;
    assert_eq!((plan(&response), tokens(&response).len()), ("transfer_failed".to_owned(), 8));
    split.until_clean().await;
    // By the clock.
    let short = json!({"lease_ms": 1});
    let split = Split::with(EngineKind::Vllm, 1, 2, CostModel::DEMO, short).await;
    split.decode[0].fault(json!({"http": "slow:20"})).await;
    split.decode[1].fault(json!({"http": "slow:20"})).await;
    for engine in &split.decode {
        engine.fault(json!({"http": "error:503", "once": true})).await;
    }
    let response = split.ask(0).await;
    let (plan, status) = (plan(&response), response.status);
    assert!((plan == "lease_expired" && status == 200) || status == 503, "{plan} {status}");
    split.until_clean().await;
}

#[tokio::test]
async fn a_lone_decode_engine_that_dies_is_named() {
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    split.decode[0].fault(json!({"http": "reset"})).await;
    let response = split.ask(0).await;
    assert_eq!(refusal(&response), (502, "pd_decode_backend_died".to_owned()));
    split.until_clean().await;
}

#[tokio::test]
async fn one_that_hangs_is_waited_for_as_long_as_is_said() {
    let limit = json!({"decode_timeout_ms": 300});
    let split = Split::with(EngineKind::Vllm, 1, 1, CostModel::DEMO, limit).await;
    split.decode[0].fault(json!({"http": "hang"})).await;
    let response = split.post(COMPLETIONS, &streamed(body(0))).await;
    assert_eq!(refusal(&response), (504, "pd_decode_timeout".to_owned()));
    split.until_clean().await;
}

#[tokio::test]
async fn an_answer_that_had_begun_ends_as_any_stream() {
    let split = Split::of(EngineKind::Vllm, 1, 2).await;
    for engine in &split.decode {
        engine.fault(json!({"http": "reset_mid_body"})).await;
    }
    let body = streamed(body(0));
    let mut client = split.gateway.sent(COMPLETIONS, body.to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let mut events = Vec::new();
    while let Some(event) = client.event().await.unwrap() {
        events.push(event);
    }
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "engine_broke_off", "{events:?}");
    assert!(!events.iter().any(|event| event == "[DONE]" || event.starts_with("HTTP/")));
    split.until_clean().await;
}

#[tokio::test]
async fn a_client_that_leaves_leaves_nothing_behind() {
    for kind in [EngineKind::Vllm, EngineKind::Sglang, EngineKind::TrtLlm] {
        let split = Split::of(kind, 1, 1).await;
        for (hangs, leg) in [(&split.prefill[0], "prefill"), (&split.decode[0], "decode")] {
            hangs.fault(json!({"http": "hang"})).await;
            let client = split.gateway.sent(COMPLETIONS, body(0).to_string().as_bytes()).await;
            // Both are counted from the choice on.
            let in_flight = if kind == EngineKind::Vllm && leg == "decode" { 1.0 } else { 2.0 };
            until(SOON, || async {
                let page = split.gateway.metrics().await;
                let seen = page.sum("kvasir_endpoint_in_flight", &[]).unwrap_or(0.0);
                let leases = page.sum("kvasir_pd_leases", &[]).unwrap_or(0.0);
                let there = seen >= 1.0 && (seen <= in_flight || leases > 0.0);
                if there { Ok(()) } else { Err(format!("{seen} in flight, {leases} leases")) }
            })
            .await;
            client.abort().unwrap();
            split.gateway.until_idle().await;
            hangs.fault(json!({"http": "ok"})).await;
            split.until_clean().await;
        }
        let response = split.ask(0).await;
        assert_eq!((plan(&response), tokens(&response).len()), ("split".to_owned(), 8), "{kind}");
        split.until_clean().await;
    }
}

#[tokio::test]
async fn an_answer_that_takes_long_is_no_decode_engine_that_hangs() {
    // What is not streamed begins when all of it was generated.
    let limit = json!({"decode_timeout_ms": 200});
    let split = Split::with(EngineKind::Vllm, 1, 1, CostModel::MID_GPU, limit).await;
    let mut body = body(0);
    body["max_tokens"] = 60.into();
    let began = std::time::Instant::now();
    let response = split.post(COMPLETIONS, &body).await;
    assert_eq!(tokens(&response).len(), 60);
    assert!(began.elapsed() > Duration::from_millis(200), "it was too fast to say anything");
    split.until_clean().await;
}
