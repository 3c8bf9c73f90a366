//! Decode legs that fail, before and after their first data, and clients that leave.

use std::time::Duration;

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::EngineKind;
use kvasir_testkit::client;
use kvasir_testkit::engine::{EngineConfig as FakeConfig, FakeEngine, RawEnd, RawStep, Reply};
use serde_json::{Value, json};

use super::view::stream;
use super::{Engine, Split, body, count, plan, refusal, streamed, tokens};
use crate::harness::{COMPLETIONS, Decision, Gateway, Golden, SOON, until};

/// An engine that does all of it, for what it answers.
async fn alone() -> Engine {
    Engine::start(EngineKind::Vllm, None, CostModel::DEMO).await
}

/// What one engine answers, token for token.
async fn want(alone: &Engine, body: &Value) -> Vec<u64> {
    tokens(&client::post(alone.addr, COMPLETIONS, body.to_string().as_bytes()).await.unwrap())
}

/// Which of two decode engines comes first is by chance.
const TURNS: u32 = 12;

/// Whether an engine failed, and another one answered.
async fn has_retried(split: &Split) -> bool {
    let page = split.gateway.metrics().await;
    page.sum("kvasir_retries_total", &[("result", "ok")]).is_some_and(|count| count > 0.0)
}

#[tokio::test]
async fn another_decode_engine_gets_what_the_first_certainly_did_not_touch() {
    let alone = alone().await;
    for fault in
        ["error:503", "error:429", "reset", "garbage", "error:502", "error:504", "error:500"]
    {
        let split = Split::of(EngineKind::Vllm, 1, 2).await;
        // Blocks that were fetched are freed, and read all the same.
        split.prefill[0].fault(json!({"gone": "garbage"})).await;
        split.decode[0].fault(json!({"http": fault})).await;
        let mut last = String::new();
        for turn in 0..TURNS {
            let response = split.ask(turn * 300).await;
            assert_eq!(tokens(&response), want(&alone, &body(turn * 300)).await, "{fault}");
            assert_eq!(response.head.header("x-kvasir-endpoint"), Some(&*split.decode[1].url()));
            // Its prompt was computed once.
            assert_eq!(split.prefill[0].finished().await, u64::from(turn) + 1, "{fault}");
            last = plan(&response);
            // Whoever goes on, what was decided of the prefill engine is told.
            let reason = response.head.header("x-kvasir-reason").unwrap();
            assert_eq!(reason.contains("prefill_overlap="), last == "split", "{reason}");
            if has_retried(&split).await {
                break;
            }
        }
        // One that is busy did nothing with it; of any other that is not known.
        let busy = matches!(fault, "error:503" | "error:429");
        assert_eq!(last, if busy { "split" } else { "transfer_failed" }, "{fault}");
        assert!(has_retried(&split).await && (!busy || split.decode[1].pulled().await > 0));
        split.until_clean().await;
    }
}

#[tokio::test]
async fn blocks_that_were_fetched_are_not_fetched_again() {
    let alone = alone().await;
    for streams in [false, true] {
        let split = Split::of(EngineKind::Vllm, 1, 2).await;
        split.prefill[0].fault(json!({"gone": "garbage"})).await;
        // It breaks off in place of an answer, of which it has made all where that is not streamed.
        split.decode[0].fault(json!({"http": "garbage", "leg": "decode"})).await;
        for turn in 0..TURNS {
            let asked = body(turn * 300);
            let want = want(&alone, &asked).await;
            let got = match streams {
                false => tokens(&split.post(COMPLETIONS, &asked).await),
                true => stream(&split.gateway, COMPLETIONS, &streamed(asked)).await.ids,
            };
            assert_eq!(got, want, "{turn}, streamed: {streams}");
            if has_retried(&split).await {
                break;
            }
        }
        assert_eq!(split.count("transfer_failed").await, 1.0);
        assert!(streams || split.decode[0].pulled().await > 0);
        split.until_clean().await;
    }
}

#[tokio::test]
async fn a_stream_whose_blocks_cannot_be_fetched_begins_with_no_error() {
    let alone = alone().await;
    for decoders in [1, 2] {
        let split = Split::of(EngineKind::Vllm, 1, decoders).await;
        for engine in &split.decode {
            engine.fault(json!({"transfer": "fail"})).await;
        }
        let asked = body(0);
        let want = want(&alone, &asked).await;
        let got = stream(&split.gateway, COMPLETIONS, &streamed(asked)).await;
        assert_eq!(got.ids, want, "{decoders}: {:?}", got.chunks);
        let plan = Decision::of_head(&got.head).plan;
        assert_eq!(plan.as_deref(), Some("transfer_failed"), "{decoders}");
        assert_eq!(split.count("transfer_failed").await, 1.0);
        // Nothing was fetched, and nothing learned of how fast that is.
        let page = split.gateway.metrics().await;
        assert_eq!(page.sum("kvasir_endpoint_transfer_tokens_per_second", &[]), None);
        assert_eq!(count(&page, "kvasir_pd_leases_expired_total"), 0.0);
        split.until_clean().await;
        let page = split.gateway.metrics().await;
        assert_eq!(count(&page, "kvasir_pd_leases_abandoned_total"), 1.0);
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
    for (lease, slow, want) in
        [(1, 0, "lease_expired"), (2_000, 0, "split"), (2_000, 1_100, "lease_expired")]
    {
        let lease = json!({"lease_ms": lease});
        let split = Split::with(EngineKind::Vllm, 1, 2, CostModel::DEMO, lease).await;
        // It counts from when the leg was sent, and its last second is left alone.
        split.prefill[0].fault(json!({"http": format!("slow:{slow}"), "gone": "garbage"})).await;
        let response = split.ask(0).await;
        assert_eq!((plan(&response), tokens(&response).len()), (want.to_owned(), 8), "{slow}");
        split.until_clean().await;
    }
}

#[tokio::test]
async fn the_time_for_the_whole_request_bounds_the_prefill_engines_answer() {
    let engine = || FakeEngine::start(FakeConfig::default());
    let (prefill, decode) = (engine().await.unwrap(), engine().await.unwrap());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    prefill.set_default(Reply::Raw(vec![RawStep::Write(head.into())], RawEnd::Hold));
    let endpoints = json!([{"url": prefill.url(), "role": "prefill"},
        {"url": decode.url(), "role": "decode"}]);
    let config = json!({"timeouts": {"request_ms": 400}, "pools": [{"model": "tiny",
        "tokenizer_dir": Golden::staged(), "token_parity": "off", "policy": "round_robin",
        "disaggregation": {"protocol": "nixl"}, "endpoints": endpoints}]});
    let gateway = Gateway::start(config).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 2.0).await;
    let began = std::time::Instant::now();
    // More than it takes to open a breaker.
    for _ in 0..6 {
        let response = gateway.post(COMPLETIONS, &body(0)).await;
        assert_eq!(refusal(&response), (504, "request_timeout".to_owned()));
    }
    assert!(began.elapsed() < SOON, "it was waited for {:?}", began.elapsed());
    let failed = [("cause", "request_timeout")];
    gateway.until_metric("kvasir_failed_attempts_total", &failed, 6.0).await;
    assert_eq!(prefill.requests().len(), 6, "it is no fault of the engine");
    gateway.until_idle().await;
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
    assert!(response.text().contains("decode leg: no first data within 300 ms"));
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
