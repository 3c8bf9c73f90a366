//! Legs sent at once to engines that do as they are told: what simulated ones never do.

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::{Value, json};

use super::refusal;
use crate::harness::{COMPLETIONS, Gateway, completion};

/// So many prefill engines, and one that decodes, and never answers.
async fn scene(count: usize) -> (Vec<FakeEngine>, FakeEngine, Gateway) {
    let mut prefill = Vec::new();
    for _ in 0..count {
        prefill.push(FakeEngine::start(EngineConfig::default()).await.unwrap());
    }
    let decode = FakeEngine::start(EngineConfig::default()).await.unwrap();
    decode.set_default(Reply::HangBeforeHead);
    let endpoint = |engine: &FakeEngine, role: &str| json!({"url": engine.url(), "role": role});
    let mut endpoints: Vec<Value> =
        prefill.iter().map(|engine| endpoint(engine, "prefill")).collect();
    endpoints.push(endpoint(&decode, "decode"));
    let gateway = Gateway::start(json!({"pools": [{"model": "tiny", "policy": "round_robin",
        "disaggregation": {"protocol": "sglang"}, "endpoints": endpoints}]}))
    .await;
    gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    gateway.until_metric("kvasir_endpoint_up", &[], (count + 1) as f64).await;
    (prefill, decode, gateway)
}

fn begins_with(error: &Value) -> Reply {
    let kind = http::HeaderValue::from_static("text/event-stream");
    let headers = http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, kind)]);
    let body = format!("data: {}\n\ndata: [DONE]\n\n", json!({"error": error}));
    Reply::Status(http::StatusCode::OK, headers, body.into())
}

#[tokio::test]
async fn a_prefill_stream_that_begins_with_an_error_has_failed() {
    let (prefill, _decode, gateway) = scene(1).await;
    let mut body = completion(&[1, 2, 3]);
    body["stream"] = true.into();
    prefill[0].set_default(begins_with(&json!({"message": "boom", "code": 500})));
    let response = gateway.post(COMPLETIONS, &body).await;
    assert_eq!(refusal(&response), (502, "pd_sg_prefill_failed".to_owned()));
    assert!(response.text().contains("boom"), "{}", response.text());
    // What it says of the request itself is the answer.
    prefill[0].set_default(begins_with(&json!({"message": "too long", "code": 400})));
    let response = gateway.post(COMPLETIONS, &body).await;
    assert!(response.status == 200 && response.text().contains("too long"), "{}", response.text());
    gateway.until_idle().await;
}

#[tokio::test]
async fn pairs_whose_prefill_engines_are_gone_are_counted() {
    let (prefill, decode, gateway) = scene(4).await;
    for engine in &prefill {
        engine.stop().await.unwrap();
    }
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    assert_eq!(refusal(&response), (503, "pd_pool_unavailable".to_owned()));
    assert!(decode.requests().len() <= 2, "{:?}", decode.requests());
    // Two legs each.
    let line = gateway.access_line(|line| line["status"] == 503).await;
    assert!((2..=4).contains(&line["attempts"].as_u64().unwrap()), "{line}");
    gateway.until_idle().await;
}
