//! Two servers that share the work, and one that does all of it.

use std::time::Duration;

use kvasir_engine_sim::server::{EngineKind, PdConfig, PdRole, SimServer, SimServerConfig};
use serde_json::{Value, json};

use crate::common::{addr, ask, fetch, metric, quick, start, testdata, until};

/// One of each.
pub(crate) struct Pair {
    pub(crate) prefill: SimServer,
    pub(crate) decode: SimServer,
}

/// A server with the tiny model's tokenizer and this role.
pub(crate) fn with_role(kind: EngineKind, role: PdRole) -> SimServerConfig {
    let mut config = quick();
    config.root = Some(testdata("models/tiny"));
    config.kind = kind;
    config.pd = PdConfig {
        role: Some(role),
        transfer_time: Duration::from_millis(1),
        transfer_rate: 1e6,
        rendezvous: Duration::from_secs(10),
        ..PdConfig::default()
    };
    config
}

impl Pair {
    pub(crate) async fn of(kind: EngineKind) -> Self {
        Self::with(kind, |_| ()).await
    }

    /// With settings of both changed.
    pub(crate) async fn with(kind: EngineKind, change: impl Fn(&mut PdConfig)) -> Self {
        let server = async |role| {
            let mut config = with_role(kind, role);
            change(&mut config.pd);
            start(config).await
        };
        Self { prefill: server(PdRole::Prefill).await, decode: server(PdRole::Decode).await }
    }

    /// Nothing is left anywhere, and nobody is at work.
    pub(crate) async fn is_clean(&self) {
        for server in [&self.prefill, &self.decode] {
            let idle = |state: &Value| {
                let pd = &state["pd"];
                let rank = &state["ranks"][0];
                pd["leases"] == 0
                    && pd["rooms"] == 0
                    && pd["pulls"] == 0
                    && ["held_requests", "used_blocks", "running", "waiting"]
                        .iter()
                        .all(|name| rank[name] == 0)
            };
            until(|| fetch(server, "/sim/state"), idle).await;
            for name in ["sim_leases", "sim_rooms", "sim_pulls"] {
                assert_eq!(metric(server, name).await, 0.0, "{name}");
            }
        }
    }
}

/// The body of a prefill leg of vLLM's.
pub(crate) fn nixl_prefill(body: &Value) -> Value {
    let mut leg = body.clone();
    leg["max_tokens"] = json!(1);
    leg["stream"] = json!(false);
    leg.as_object_mut().unwrap().remove("stream_options");
    leg["kv_transfer_params"] = json!({"do_remote_decode": true, "do_remote_prefill": false,
        "remote_engine_id": null, "remote_block_ids": null, "remote_host": null,
        "remote_port": null});
    leg
}

/// The body of a decode leg of vLLM's, after the prefill leg has been answered.
pub(crate) async fn nixl_decode(prefill: &SimServer, path: &str, body: &Value) -> (Value, Value) {
    let first = ask(prefill, path, &nixl_prefill(body)).await;
    let mut leg = body.clone();
    leg["kv_transfer_params"] = first["kv_transfer_params"].clone();
    (first, leg)
}

/// The fields of SGLang's legs.
pub(crate) fn with_room(body: &Value, prefill: &SimServer, room: u64) -> Value {
    let mut leg = body.clone();
    leg["bootstrap_host"] = json!("127.0.0.1");
    leg["bootstrap_port"] = json!(addr(prefill).port());
    leg["bootstrap_room"] = json!(room);
    leg
}

/// Three ways to ask.
pub(crate) fn bodies() -> Vec<(&'static str, Value)> {
    let text = "The licence of this text allows everyone to copy it. ".repeat(6);
    vec![
        (
            "/v1/completions",
            json!({"model": "tiny", "prompt": text, "max_tokens": 12,
            "return_token_ids": true}),
        ),
        (
            "/v1/completions",
            json!({"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 3,
            "return_token_ids": true}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "tiny", "max_tokens": 9,
            "return_token_ids": true, "messages": [{"role": "user", "content": text}]}),
        ),
    ]
}

/// The tokens of an answer's first choice.
pub(crate) fn tokens(answer: &Value) -> Vec<u64> {
    let ids = answer["choices"][0]["token_ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The tokens of a stream.
pub(crate) fn streamed(chunks: &[Value]) -> Vec<u64> {
    let of = |chunk: &Value| match chunk["choices"][0]["token_ids"].as_array() {
        Some(ids) => ids.iter().map(|id| id.as_u64().unwrap()).collect(),
        None => Vec::new(),
    };
    chunks.iter().flat_map(of).collect()
}

/// A server that knows of no legs.
pub(crate) async fn alone() -> SimServer {
    let mut config = quick();
    config.root = Some(testdata("models/tiny"));
    start(config).await
}
