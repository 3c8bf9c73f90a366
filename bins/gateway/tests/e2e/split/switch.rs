//! Roles that change, and splitting that goes off and on, while requests are under way: no client notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::{EngineKind, PdRole};
use serde_json::{Value, json};

use super::{Engine, Split, body, config, tokens};
use crate::harness::{COMPLETIONS, ConfigFile, Gateway};

const PROMPTS: u32 = 40;
const CLIENTS: u32 = 8;
const SWITCHES: usize = 9;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_switched_under_traffic() {
    switched(EngineKind::Vllm, "auto").await;
    switched(EngineKind::TrtLlm, "trtllm").await;
}

async fn switched(kind: EngineKind, protocol: &str) {
    let mut engines = Vec::new();
    for _ in 0..4 {
        engines.push(Engine::start(kind, Some(PdRole::Both), CostModel::DEMO).await);
    }
    let ways = ways(&engines, protocol);
    let file = ConfigFile::of(&ways[0]);
    let gateway = Gateway::of_file(&file).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 4.0).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    if protocol == "auto" {
        gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], 4.0).await;
    }
    let split = Arc::new(Split { prefill: engines, decode: Vec::new(), gateway });
    let mut expected = Vec::new();
    for prompt in 0..PROMPTS {
        expected.push(tokens(&split.ask(prompt * 300).await));
    }
    let expected = Arc::new(expected);
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (split, expected) = (Arc::clone(&split), Arc::clone(&expected));
            let (over, answered) = (Arc::clone(&over), Arc::clone(&answered));
            tokio::spawn(async move {
                for turn in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let prompt = (number * 7 + turn) % PROMPTS;
                    let answer = split.post(COMPLETIONS, &body(prompt * 300)).await;
                    assert_eq!(tokens(&answer), expected[prompt as usize], "prompt {prompt}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for (turn, way) in ways.iter().cycle().skip(1).take(SWITCHES).enumerate() {
        split.gateway.reload(&file, way).await;
        // Each way serves some.
        let before = answered.load(Ordering::Relaxed);
        crate::harness::until(crate::harness::SOON, || async {
            let now = answered.load(Ordering::Relaxed);
            let failed = clients.iter().any(tokio::task::JoinHandle::is_finished);
            if failed || now >= before + 3 * CLIENTS {
                Ok(())
            } else {
                Err(format!("{turn}: {now}"))
            }
        })
        .await;
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("every answer is the right one");
    }
    assert!(split.count("split").await > f64::from(CLIENTS), "requests were split");
    for engine in &split.prefill {
        assert!(engine.pulled().await > 0, "every engine was a decode engine for a while");
    }
    split.until_clean().await;
}

/// The first two compute prompts, then the others, then each does all.
fn ways(engines: &[Engine], protocol: &str) -> [Value; 3] {
    let (first, second) = engines.split_at(2);
    let enabled = |on: bool| json!({"protocol": protocol, "enabled": on});
    [
        config(first, second, &enabled(true)),
        config(second, first, &enabled(true)),
        config(first, second, &enabled(false)),
    ]
}
