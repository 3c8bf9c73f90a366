//! TensorRT-LLM's legs: context and generation.

use kvasir_engine_sim::server::{EngineKind, PdRole, SimServer};
use kvasir_testkit::client::get;
use serde_json::{Value, json};

use crate::common::{addr, ask, chunks, complete, fetch, metric, prompt, send, start, stream};
use crate::pair::{Pair, alone, bodies, streamed, tokens, with_role};

fn context(body: &Value, id: u64) -> Value {
    let mut leg = body.clone();
    leg["disaggregated_params"] = json!({"request_type": "context_only", "disagg_request_id": id});
    leg
}

/// The context leg's answer, and the generation leg's body.
async fn generation(prefill: &SimServer, path: &str, body: &Value, id: u64) -> (Value, Value) {
    let first = ask(prefill, path, &context(body, id)).await;
    let mut leg = body.clone();
    leg["disaggregated_params"] = first["choices"][0]["disaggregated_params"].clone();
    leg["disaggregated_params"]["request_type"] = json!("generation_only");
    (first, leg)
}

#[tokio::test]
async fn split_and_whole_give_the_same() {
    let alone = alone().await;
    let pair = Pair::of(EngineKind::TrtLlm).await;
    for (id, (path, body)) in ((1 << 62)..).zip(bodies()) {
        let whole = tokens(&ask(&alone, path, &body).await);
        let (first, leg) = generation(&pair.prefill, path, &body, id).await;
        let choice = &first["choices"][0];
        assert_eq!(choice["finish_reason"], "not_finished");
        assert_eq!(tokens(&first), whole[..1]);
        let params = &choice["disaggregated_params"];
        assert_eq!(params["request_type"], "context_only");
        assert_eq!(params["first_gen_tokens"], json!(whole[..1]));
        assert_eq!(
            (&params["ctx_request_id"], &params["disagg_request_id"]),
            (&json!(id), &json!(id))
        );
        let split = ask(&pair.decode, path, &leg).await;
        assert_eq!(tokens(&split), whole, "the first token is there once");

        let mut salted = body.clone();
        salted["cache_salt"] = json!("streams");
        let (_, leg) = generation(&pair.prefill, path, &salted, id + 100).await;
        let events = chunks(&mut stream(&pair.decode, path, &leg).await).await;
        assert_eq!(streamed(&events), whole);
    }
    pair.is_clean().await;
}

#[tokio::test]
async fn what_ends_early_is_not_kept() {
    let mut config = with_role(EngineKind::TrtLlm, PdRole::Both);
    config.tokens.stop_one_in = 3;
    let server = start(config).await;
    let (mut stopped, mut went_on) = (0, 0);
    for number in 1..40 {
        let body = json!({"model": "tiny", "prompt": prompt(number, 20), "max_tokens": 5});
        let answer = ask(&server, "/v1/completions", &context(&body, u64::from(number))).await;
        let choice = &answer["choices"][0];
        match choice["finish_reason"].as_str().unwrap() {
            "stop" => {
                stopped += 1;
                assert_eq!(choice.get("disaggregated_params"), None);
            }
            "not_finished" => {
                went_on += 1;
                assert!(choice["disaggregated_params"].is_object());
            }
            other => panic!("{other}"),
        }
    }
    assert!(stopped > 0 && went_on > 0);
    assert_eq!(metric(&server, "sim_leases").await, f64::from(went_on));

    let body =
        json!({"model": "tiny", "prompt": prompt(1, 20), "max_tokens": 1, "ignore_eos": true});
    let answer = ask(&server, "/v1/completions", &context(&body, 1_000)).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "as long as it was to be");
}

#[tokio::test]
async fn parameters_are_checked() {
    let pair = Pair::of(EngineKind::TrtLlm).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = generation(&pair.prefill, path, &body, 7).await;
    for (field, wrong) in [
        ("request_type", json!("everything")),
        ("ctx_request_id", Value::Null),
        ("first_gen_tokens", json!([])),
        ("encoded_opaque_state", json!("xyz")),
        ("encoded_opaque_state", json!("é1")),
        ("encoded_opaque_state", Value::Null),
    ] {
        let mut broken = leg.clone();
        broken["disaggregated_params"][field] = wrong.clone();
        assert_eq!(send(&pair.decode, path, &broken).await.status, 400, "{field} {wrong}");
    }
    let mut lost = leg.clone();
    lost["disaggregated_params"]["ctx_request_id"] = json!(8);
    assert_eq!(send(&pair.decode, path, &lost).await.status, 500);
    lost["stream"] = json!(true);
    assert_eq!(send(&pair.decode, path, &lost).await.status, 500);
    let mut other = leg.clone();
    other["disaggregated_params"]["first_gen_tokens"] = json!([999_999]);
    assert_eq!(send(&pair.decode, path, &other).await.status, 400, "it goes on with another");
    pair.is_clean().await;

    let mut config = with_role(EngineKind::TrtLlm, PdRole::Both);
    config.pd.role = None;
    let plain = start(config).await;
    assert_eq!(send(&plain, path, &context(&body, 1)).await.status, 400, "no transceiver");
    complete(&plain, &[1, 2, 3], 1).await;
}

#[tokio::test]
async fn pages_are_those_of_the_kind() {
    let pair = Pair::of(EngineKind::TrtLlm).await;
    assert_eq!(fetch(&pair.prefill, "/v1/models").await["data"][0]["owned_by"], "tensorrt_llm");
    complete(&pair.prefill, &[1, 2, 3], 1).await;
    assert_eq!(metric(&pair.prefill, "trtllm_request_success_total").await, 1.0);
    let page = get(addr(&pair.prefill), "/metrics").await.unwrap().text();
    assert!(!page.contains("vllm:"), "{page}");
}
