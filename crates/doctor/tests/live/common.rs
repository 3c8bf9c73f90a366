//! What these tests share.

use std::time::Duration;

use kvasir_doctor::{LegName, Report, Target, Verdict, check};
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{Algorithm, CostModel, EngineConfig, HashForm, Hashing};
use kvasir_testkit::client;
use serde_json::Value;

/// A step takes 0.1 ms and a little per token.
const QUICK: CostModel = CostModel {
    step_overhead: 1e-4,
    weights: 0.0,
    per_token: 1e-7,
    per_request: 0.0,
    per_context_token: 0.0,
    per_attention_pair: 0.0,
    speed: 1.0,
};

/// A quick vLLM 0.32 of this algorithm and seed, with one adapter.
pub(crate) fn vllm(algorithm: Algorithm, seed: Option<&str>, form: HashForm) -> SimServerConfig {
    release("0.32.0", algorithm, seed, form)
}

pub(crate) fn release(
    version: &str,
    algorithm: Algorithm,
    seed: Option<&str>,
    form: HashForm,
) -> SimServerConfig {
    let hashing = Hashing::of_engine(version.parse().unwrap(), algorithm, seed).unwrap();
    SimServerConfig {
        engine: EngineConfig {
            num_blocks: 513,
            max_model_len: 2_048,
            cost: QUICK,
            hashing,
            ..EngineConfig::default()
        },
        model: "tiny".to_owned(),
        adapters: vec![("tuned".to_owned(), "/adapters/tuned".to_owned())],
        version: version.to_owned(),
        hash_form: form,
        hash_algorithm: algorithm.to_string(),
        faults: true,
        ..SimServerConfig::default()
    }
}

/// The plainest of them.
pub(crate) fn plain() -> SimServerConfig {
    vllm(Algorithm::Sha256, Some("0"), HashForm::Int)
}

pub(crate) async fn start(config: SimServerConfig) -> SimServer {
    SimServer::start(config).await.unwrap()
}

/// A target that is only read.
pub(crate) fn target(server: &SimServer) -> Target {
    let mut target = Target::new(server.url().strip_prefix("http://").unwrap().parse().unwrap());
    target.patience = Duration::from_secs(3);
    target
}

/// The same, with leave to send prompts.
pub(crate) fn probing(server: &SimServer) -> Target {
    Target { probe: true, ..target(server) }
}

/// Checks, and prints the report for whoever reads a failure.
pub(crate) async fn report(target: &Target) -> Report {
    let report = check(target).await;
    for leg in &report.legs {
        println!("{leg}");
    }
    report
}

/// A leg's verdict, and parts that its line holds.
#[track_caller]
pub(crate) fn says(report: &Report, leg: LegName, verdict: Verdict, parts: &[&str]) {
    let leg = report.leg(leg).unwrap_or_else(|| panic!("no leg {leg:?}"));
    assert_eq!(leg.verdict, verdict, "{leg}");
    for part in parts {
        assert!(leg.to_string().contains(part), "no {part:?} in: {leg}");
    }
}

/// The engine's own counters.
pub(crate) async fn state(server: &SimServer) -> Value {
    let addr = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    let response = client::get(addr, "/sim/state").await.unwrap();
    assert_eq!(response.status, 200);
    response.json()
}

/// Sends a prompt of the test's own.
pub(crate) async fn complete(server: &SimServer, tokens: &[u32]) {
    let addr = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    let body = serde_json::json!({"model": "tiny", "prompt": tokens, "max_tokens": 1});
    let answer = client::post(addr, "/v1/completions", body.to_string().as_bytes()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
}
