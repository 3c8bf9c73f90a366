//! The flow recorded from two vLLM 0.32.0 servers with NIXL, field by field.

use kvasir_engine_sim::server::{EngineKind, PdRole, SimServer, SimServerConfig};
use kvasir_engine_sim::{Algorithm, Hashing, Version};
use serde_json::Value;

use crate::common::{addr, ask, metric, start, testdata};
use crate::pair::{Pair, with_role};

fn server_like(role: PdRole) -> SimServerConfig {
    let mut config = with_role(EngineKind::Vllm, role);
    config.engine.block_size = 32;
    config.engine.hashing =
        Hashing::of_engine(Version::release(0, 32, 0), Algorithm::Sha256Cbor, Some("0")).unwrap();
    config.tokens.vocabulary = 4_096;
    config
}

fn recording() -> Value {
    let path = testdata("captures/nixl-pd-0.32.0.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The same fields in the same order, with values of the same kinds.
fn same_shape(at: &str, theirs: &Value, ours: &Value) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: Vec<_> = a.keys().collect();
            assert_eq!(keys, b.keys().collect::<Vec<_>>(), "fields at {at}");
            for (key, value) in a {
                same_shape(&format!("{at}.{key}"), value, &b[key]);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{at}");
            for (i, value) in b.iter().enumerate() {
                same_shape(&format!("{at}[{i}]"), &a[i], value);
            }
        }
        (a, b) => assert_eq!(
            std::mem::discriminant(a),
            std::mem::discriminant(b),
            "{at}: recorded {a}, here {b}"
        ),
    }
}

/// Values that no two servers share.
fn check_own(server: &SimServer, id: &str, params: &Value) {
    assert_eq!(params["remote_host"], "127.0.0.1");
    assert_eq!(params["remote_port"], addr(server).port(), "its own port is the side channel");
    let parts: Vec<usize> =
        params["remote_engine_id"].as_str().unwrap().split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    let name = params["remote_request_id"].as_str().unwrap();
    let between = if id.starts_with("cmpl") { "-0-" } else { "-" };
    let end = name.strip_prefix(&format!("{id}{between}")).unwrap();
    assert!(end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
}

#[tokio::test]
async fn the_recorded_flow() {
    let pair = Pair {
        prefill: start(server_like(PdRole::Prefill)).await,
        decode: start(server_like(PdRole::Decode)).await,
    };
    let mut left = Value::Null;
    let mut generated: Vec<Vec<Value>> = Vec::new();
    for entry in recording()["log"].as_array().unwrap() {
        let url = entry["url"].as_str().unwrap();
        let (server, path) = match url.split_once("8010/") {
            Some((_, path)) => (&pair.prefill, path),
            None => (&pair.decode, url.split_once("8011/").unwrap().1),
        };
        let mut body = entry["request"].clone();
        let fetches = body["kv_transfer_params"]["do_remote_prefill"] == true;
        if fetches {
            body["kv_transfer_params"] = left.clone();
        }
        let ours = ask(server, &format!("/{path}"), &body).await;
        let theirs = &entry["response"];
        same_shape(path, theirs, &ours);
        assert_eq!(ours["usage"], theirs["usage"], "{url}");
        let ids = |answer: &Value| match &answer["prompt_token_ids"] {
            Value::Null => answer["choices"][0]["prompt_token_ids"].clone(),
            ids => ids.clone(),
        };
        assert_eq!(ids(&ours), ids(theirs), "{url}");
        generated.push(ours["choices"][0]["token_ids"].as_array().unwrap().clone());
        let params = &ours["kv_transfer_params"];
        if params.is_object() {
            check_own(server, ours["id"].as_str().unwrap(), params);
            let mut same = params.clone();
            for own in ["remote_engine_id", "remote_request_id", "remote_port"] {
                same[own] = theirs["kv_transfer_params"][own].clone();
            }
            assert_eq!(same, theirs["kv_transfer_params"], "block numbers and all");
            left = params.clone();
        }
    }
    assert_eq!(generated[1], generated[2], "split and whole");
    assert_eq!(generated[0], generated[1][..1]);
    assert_eq!(generated[3], generated[4][..1]);
    same_counters(&pair).await;
    pair.is_clean().await;
}

/// Those of the recording, but for the one lease that expired there.
async fn same_counters(pair: &Pair) {
    let recorded = recording();
    let mut compared = 0;
    for (side, server) in [("prefill", &pair.prefill), ("decode", &pair.decode)] {
        for line in recorded["metrics"][side].as_array().unwrap() {
            let line = line.as_str().unwrap();
            let (name, value) = line.rsplit_once(' ').unwrap();
            if !name.contains("prefix_cache") && !name.contains("failed_transfers") {
                continue;
            }
            if name.starts_with("vllm:cache_config_info") {
                continue;
            }
            assert_eq!(metric(server, name).await, value.parse::<f64>().unwrap(), "{side} {name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 10);
    assert_eq!(metric(&pair.prefill, "vllm:nixl_num_kv_expired_reqs_total").await, 0.0);
}
