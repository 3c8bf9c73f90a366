//! Legs that follow each other, and prefill engines that fail: others are asked, and where none is left a
//! decode engine computes the prompt.

use std::time::{Duration, Instant};

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::{EngineKind, PdRole};
use serde_json::json;

use super::{Engine, Split, plan, refusal, tokens};

#[tokio::test]
async fn a_prefill_engine_that_is_not_there_is_passed_over() {
    let split = Split::of(EngineKind::Vllm, 2, 1).await;
    split.prefill[0].order("/sim/restart", &json!({"down_ms": 600_000})).await;
    for turn in 0..4 {
        let response = split.ask(turn * 10).await;
        assert_eq!((plan(&response), tokens(&response).len()), ("split".to_owned(), 8));
        let prefill = response.head.header("x-kvasir-prefill-endpoint");
        assert_eq!(prefill, Some(&*split.prefill[1].url()));
    }
    split.gateway.until_idle().await;
}

#[tokio::test]
async fn without_prefill_engines_decode_engines_compute() {
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    split.prefill[0].fault(json!({"http": "reset"})).await;
    let response = split.ask(0).await;
    assert_eq!((plan(&response), tokens(&response).len()), ("prefill_failed".to_owned(), 8));
    assert_eq!(response.head.header("x-kvasir-prefill-endpoint"), None);
    split.prefill[0].fault(json!({"http": "error:503"})).await;
    assert_eq!(plan(&split.ask(400).await), "prefill_failed");
    split.prefill[0].fault(json!({"http": "error:500"})).await;
    assert_eq!(plan(&split.ask(800).await), "prefill_failed");
    assert_eq!(split.count("prefill_failed").await, 3.0);
    assert_eq!(split.decode[0].pulled().await, 0);
    split.until_clean().await;
}

#[tokio::test]
async fn one_that_breaks_off_or_is_busy_is_no_end() {
    for fault in ["reset", "error:500", "error:503", "error:429", "garbage", "reset_mid_body"] {
        let split = Split::of(EngineKind::Vllm, 2, 1).await;
        split.prefill[0].fault(json!({"http": fault})).await;
        for turn in 0..2 {
            let response = split.ask(turn * 300).await;
            let seen = (plan(&response), tokens(&response).len());
            assert_eq!(seen, ("split".to_owned(), 8), "{fault}");
        }
        split.until_clean().await;
    }
}

#[tokio::test]
async fn one_that_hangs_is_waited_for_as_long_as_is_said() {
    let limit = json!({"prefill_timeout_ms": 300});
    let split = Split::with(EngineKind::Vllm, 1, 1, CostModel::DEMO, limit).await;
    split.prefill[0].fault(json!({"http": "hang"})).await;
    let began = Instant::now();
    let response = split.ask(0).await;
    assert_eq!(refusal(&response), (504, "pd_prefill_timeout".to_owned()));
    let text = response.text();
    let why =
        "the prefill engine serving `tiny` was too slow: prefill leg: no first data within 300 ms";
    assert!(text.contains(why), "{text}");
    assert!(began.elapsed() >= Duration::from_millis(300));
    split.until_clean().await;
}

#[tokio::test]
async fn what_it_says_of_the_request_is_passed_on() {
    let split = Split::of(EngineKind::Vllm, 2, 1).await;
    for engine in &split.prefill {
        engine.fault(json!({"http": "error:422"})).await;
    }
    let response = split.ask(0).await;
    assert_eq!(response.status, 422, "{}", response.text());
    assert_eq!(split.decode[0].finished().await, 0);
    split.until_clean().await;
}

#[tokio::test]
async fn without_anybody_it_is_said_so() {
    let split = Split::of(EngineKind::Vllm, 1, 1).await;
    for engine in split.engines() {
        engine.order("/sim/restart", &json!({"down_ms": 600_000})).await;
    }
    let response = split.ask(0).await;
    assert_eq!(refusal(&response), (503, "pd_pool_unavailable".to_owned()));
    split.gateway.until_idle().await;
}

#[tokio::test]
async fn an_engine_without_connector_hands_over_nothing() {
    let prefill = vec![Engine::start(EngineKind::Vllm, None, CostModel::DEMO).await];
    let decode = Engine::start(EngineKind::Vllm, Some(PdRole::Decode), CostModel::DEMO).await;
    let split = Split::over(prefill, vec![decode], json!({"protocol": "auto"})).await;
    let response = split.ask(0).await;
    assert_eq!((plan(&response), tokens(&response).len()), ("params_missing".to_owned(), 8));
    let page = split.gateway.metrics().await;
    assert_eq!(super::count(&page, "kvasir_pd_params_missing_total"), 1.0);
    split.until_clean().await;
}

#[tokio::test]
async fn what_no_prefill_engine_could_compute_a_decode_engine_computes() {
    for kind in [EngineKind::Vllm, EngineKind::TrtLlm] {
        for faults in [
            ["error:500", "error:500", "error:500"],
            ["reset", "error:500", "error:500"],
            ["error:500", "reset_mid_body", "error:500"],
            ["error:500", "error:503", "error:503"],
        ] {
            let split = Split::of(kind, 3, 1).await;
            // Whichever comes first: all do the same in the first and the last.
            for (engine, fault) in split.prefill.iter().zip(faults) {
                engine.fault(json!({"http": fault, "once": true})).await;
            }
            split.prefill[2].fault(json!({"http": faults[2]})).await;
            let response = split.ask(0).await;
            let seen = (plan(&response), tokens(&response).len());
            assert_eq!(seen, ("prefill_failed".to_owned(), 8), "{kind}: {faults:?}");
            let line = split.gateway.access_line(|line| line["status"] == 200).await;
            assert_eq!(line["attempts"], 3, "{kind}: {faults:?}: {line}");
            split.until_clean().await;
        }
    }
}

#[tokio::test]
async fn what_breaks_two_prefill_engines_goes_no_further() {
    for kind in [EngineKind::Vllm, EngineKind::TrtLlm] {
        for fault in ["reset", "garbage", "reset_mid_body"] {
            let split = Split::of(kind, 2, 1).await;
            for engine in &split.prefill {
                engine.fault(json!({"http": fault})).await;
            }
            let response = split.ask(0).await;
            let died = (502, "pd_prefill_backend_died".to_owned());
            assert_eq!(refusal(&response), died, "{kind}: {fault}");
            assert!(response.text().contains("prefill leg: "), "{}", response.text());
            assert_eq!(split.decode[0].finished().await, 0, "{kind}: {fault}");
            split.until_clean().await;
        }
    }
    // Nor does it where two answered with an error, and a decode engine breaks off.
    let split = Split::of(EngineKind::Vllm, 2, 2).await;
    for engine in &split.prefill {
        engine.fault(json!({"http": "error:500"})).await;
    }
    for engine in &split.decode {
        engine.fault(json!({"http": "reset"})).await;
    }
    let response = split.ask(0).await;
    let line = split.gateway.access_line(|line| line["status"].as_u64() >= Some(500)).await;
    assert_eq!(line["attempts"], 3, "{line}");
    // An engine's own answer is better than none.
    assert_eq!(response.status, 500, "{}", response.text());
    split.until_clean().await;
}
