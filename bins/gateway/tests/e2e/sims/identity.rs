//! Blocks known by the engines' own hashes.

use kvasir_engine_sim::server::SimServerConfig;
use kvasir_engine_sim::{EngineConfig, Hashing};
use serde_json::{Value, json};

use super::{FAST, Sim, ask};
use crate::harness::{Gateway, ids, pool_at};

const BLOCKS: usize = 60;

/// An engine with `PYTHONHASHSEED=0`.
async fn sim(algorithm: &str, event_tokens: bool) -> Sim {
    let version = EngineConfig::DEFAULT_VERSION;
    let hashing = Hashing::of_engine(version, algorithm.parse().unwrap(), Some("0")).unwrap();
    let engine = EngineConfig { hashing, ..EngineConfig::default() };
    let config = SimServerConfig { engine, event_tokens, ..SimServerConfig::default() };
    Sim::with(config, BLOCKS, FAST).await
}

fn pool_by(sim: &Sim, identity: &Value) -> Value {
    let mut pool = pool_at("tiny", &[sim.url()]);
    pool["identity"] = identity.clone();
    pool.as_object_mut().unwrap().remove("tokenizer_dir");
    pool
}

async fn over(sim: &Sim, identity: &Value) -> Gateway {
    let gateway = Gateway::over(pool_by(sim, identity)).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    let exact = [("state", "exact")];
    gateway.until_metric("kvasir_endpoint_trust", &exact, 1.0).await;
    gateway
}

fn by_hashes(algorithm: &str, seed: &str) -> Value {
    json!({"engine": {"algorithm": algorithm, "seed": seed}})
}

/// A conversation that grows, another, and a return to the first; what was reported as cached.
async fn converse(sim: &Sim, gateway: &Gateway) -> Vec<u64> {
    let prompts = [ids(1, 100), ids(1, 180), ids(2_000, 100), ids(1, 180), ids(1, 260)];
    let mut cached = Vec::new();
    for prompt in &prompts {
        cached.push(ask(gateway, prompt, 1).await.agreed());
        sim.settle(gateway).await;
    }
    cached
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn predictions_are_those_of_tokens_with_or_without_tokens_in_events() {
    for algorithm in ["sha256_cbor", "sha256", "xxhash"] {
        let mut seen = Vec::new();
        let ways = [
            (json!("tokens"), true),
            (by_hashes(algorithm, "0"), true),
            (by_hashes(algorithm, "0"), false),
        ];
        for (identity, event_tokens) in ways {
            let sim = sim(algorithm, event_tokens).await;
            let gateway = over(&sim, &identity).await;
            seen.push(converse(&sim, &gateway).await);
            let state = if event_tokens { "verified" } else { "unchecked" };
            let labels = [("state", state)];
            gateway.until_metric("kvasir_endpoint_hash_contract", &labels, 1.0).await;
        }
        assert_eq!(seen, vec![vec![0, 96, 0, 176, 176]; 3], "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_seed_is_named_in_metrics_and_log_and_routes_by_load() {
    let sim = sim("sha256_cbor", true).await;
    let gateway = over(&sim, &by_hashes("sha256_cbor", "42")).await;
    assert_eq!(ask(&gateway, &ids(1, 100), 1).await.decision.overlap, 0);
    let labels = [("state", "mismatch"), ("contract", "vllm sha256_cbor"), ("cause", "seed")];
    gateway.until_metric("kvasir_endpoint_hash_contract", &labels, 1.0).await;
    let suspect = [("state", "suspect"), ("reason", "hash_mismatch")];
    gateway.until_metric("kvasir_endpoint_trust", &suspect, 1.0).await;
    let answer = ask(&gateway, &ids(1, 100), 1).await;
    assert_eq!((answer.decision.overlap, answer.cached), (0, 96));
    assert_eq!(answer.decision.trust, "suspect(hash_mismatch)");
    let words = r#"seed is \"0\", you configured \"42\""#;
    gateway.line("the cause", |line| line.contains(words)).await;
    let failed = gateway.metrics().await.sum("kvasir_endpoint_hash_blocks_failed_total", &[]);
    assert_eq!(failed, Some(1.0));
}
