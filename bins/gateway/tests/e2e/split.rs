//! Prefill and decode at different engines: the gateway between clients and simulated engines that
//! hand over what they computed, over real sockets, in the protocols of vLLM, SGLang and TensorRT-LLM.

mod answers;
mod failure;
mod judged;
mod legs;
mod pair;
mod scripted;
mod soak;
mod speed;
mod switch;
mod view;
mod whose_fault;

use std::net::SocketAddr;
use std::time::Duration;

use kvasir_engine_sim::server::{EngineKind, PdConfig, PdRole, SimServer, SimServerConfig};
use kvasir_engine_sim::{CostModel, EngineConfig};
use kvasir_testkit::client::{self, Response};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Gateway, Golden, MetricsPage, SOON, until};

/// How long simulated prefill engines keep what nobody fetches.
const LEASE: Duration = Duration::from_millis(4000);

/// A simulated engine with a part.
struct Engine {
    server: SimServer,
    addr: SocketAddr,
}

impl Engine {
    async fn start(kind: EngineKind, role: Option<PdRole>, cost: CostModel) -> Self {
        Self::with(kind, role, cost, |_| ()).await
    }

    async fn with(
        kind: EngineKind,
        role: Option<PdRole>,
        cost: CostModel,
        change: impl Fn(&mut SimServerConfig),
    ) -> Self {
        let mut config = SimServerConfig {
            engine: EngineConfig {
                num_blocks: 2_001,
                max_model_len: 16_000,
                cost,
                ..EngineConfig::default()
            },
            model: "tiny".to_owned(),
            root: Some(Golden::staged().join("tiny")),
            kind,
            pd: PdConfig {
                role,
                lease: LEASE,
                transfer_time: Duration::from_millis(1),
                transfer_rate: 1e6,
                rendezvous: Duration::from_secs(5),
                ..PdConfig::default()
            },
            faults: true,
            ..SimServerConfig::default()
        };
        change(&mut config);
        let server = SimServer::start(config).await.unwrap();
        let addr = server.url().strip_prefix("http://").unwrap().parse().unwrap();
        Self { server, addr }
    }

    fn url(&self) -> String {
        self.server.url()
    }

    async fn order(&self, path: &str, order: &Value) {
        let answer = client::post(self.addr, path, order.to_string().as_bytes()).await.unwrap();
        assert!(matches!(answer.status, 200 | 202), "{}", answer.text());
    }

    /// What happens to requests from now on. The default is for legs only, and for ever.
    async fn fault(&self, mut wanted: Value) {
        if wanted.get("path").is_none() {
            wanted["path"] = json!("/v1/c");
        }
        self.order("/sim/faults", &wanted).await;
    }

    async fn state(&self) -> Value {
        client::get(self.addr, "/sim/state").await.unwrap().json()
    }

    /// Nothing is being done, and nothing kept.
    async fn until_clean(&self) {
        until(SOON, || async {
            let state = self.state().await;
            let (pd, rank) = (&state["pd"], &state["ranks"][0]);
            let left: Vec<String> = ["leases", "rooms", "pulls"]
                .iter()
                .filter(|name| pd[**name] != 0)
                .map(|name| format!("{name}: {}", pd[*name]))
                .chain(
                    ["held_requests", "running", "waiting"]
                        .iter()
                        .filter(|name| rank[**name] != 0)
                        .map(|name| format!("{name}: {}", rank[*name])),
                )
                .collect();
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await;
    }

    /// Tokens that it fetched.
    async fn pulled(&self) -> u64 {
        self.state().await["pd"]["pulled_tokens"].as_u64().unwrap()
    }

    /// Requests that came to their end there.
    async fn finished(&self) -> u64 {
        self.state().await["ranks"][0]["finished"].as_u64().unwrap()
    }
}

/// Engines of one kind, and a gateway that splits requests among them.
struct Split {
    prefill: Vec<Engine>,
    decode: Vec<Engine>,
    gateway: Gateway,
}

impl Split {
    /// So many of each.
    async fn of(kind: EngineKind, prefill: usize, decode: usize) -> Self {
        Self::with(kind, prefill, decode, CostModel::DEMO, json!({})).await
    }

    /// The same with more said of the pool's disaggregation.
    async fn with(
        kind: EngineKind,
        prefill: usize,
        decode: usize,
        cost: CostModel,
        disaggregation: Value,
    ) -> Self {
        let mut sides = [Vec::new(), Vec::new()];
        for (side, count, role) in [(0, prefill, PdRole::Prefill), (1, decode, PdRole::Decode)] {
            for _ in 0..count {
                sides[side].push(Engine::start(kind, Some(role), cost).await);
            }
        }
        let [prefill, decode] = sides;
        let mut disaggregation = disaggregation;
        let protocol = match kind {
            // What vLLM's engines are, their events say; the others are told.
            EngineKind::Vllm => "auto",
            EngineKind::Sglang => "sglang",
            EngineKind::TrtLlm => "trtllm",
        };
        disaggregation["protocol"] = protocol.into();
        Self::over(prefill, decode, disaggregation).await
    }

    /// Over these engines, once it knows what each is.
    async fn over(prefill: Vec<Engine>, decode: Vec<Engine>, disaggregation: Value) -> Self {
        let gateway = Gateway::start(config(&prefill, &decode, &disaggregation)).await;
        let all = f64::from(u32::try_from(prefill.len() + decode.len()).unwrap());
        gateway.until_metric("kvasir_endpoint_up", &[], all).await;
        if disaggregation["protocol"] == "auto" {
            gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], all).await;
        }
        gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
        Self { prefill, decode, gateway }
    }

    fn engines(&self) -> impl Iterator<Item = &Engine> {
        self.prefill.iter().chain(&self.decode)
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.gateway.post(path, body).await
    }

    /// A completion of eight tokens that nobody has seen.
    async fn ask(&self, first: u32) -> Response {
        self.post(COMPLETIONS, &body(first)).await
    }

    async fn count(&self, plan: &str) -> f64 {
        let page = self.gateway.metrics().await;
        page.sum("kvasir_pd_requests_total", &[("plan", plan)]).unwrap_or(0.0)
    }

    /// Nothing is counted, kept or done anywhere.
    async fn until_clean(&self) {
        self.gateway.until_idle().await;
        until(SOON, || async {
            let page = self.gateway.metrics().await;
            let left = |name: &str| page.sum(name, &[]).unwrap_or(0.0);
            let seen = (left("kvasir_pd_leases"), left("kvasir_pd_rooms"));
            if seen == (0.0, 0.0) { Ok(()) } else { Err(format!("leases, rooms: {seen:?}")) }
        })
        .await;
        for engine in self.engines() {
            engine.until_clean().await;
        }
    }
}

fn config(prefill: &[Engine], decode: &[Engine], disaggregation: &Value) -> Value {
    let endpoint = |engine: &Engine, role: &str| json!({"url": engine.url(), "role": role, "bootstrap_port": engine.addr.port()});
    let endpoints: Vec<Value> = prefill
        .iter()
        .map(|engine| endpoint(engine, "prefill"))
        .chain(decode.iter().map(|engine| endpoint(engine, "decode")))
        .collect();
    // What is given up counts until its end.
    let lease = u64::try_from(LEASE.as_millis()).unwrap();
    let mut section = json!({"enabled": true, "lease_ms": lease});
    section.as_object_mut().unwrap().extend(disaggregation.as_object().unwrap().clone());
    // What is not streamed is waited for as long as anywhere.
    json!({"timeouts": {"connect_ms": 1000, "first_data_ms": 5000}, "pools": [{"model": "tiny", "tokenizer_dir": Golden::staged(), "token_parity": "off",
        // It never leaves the prefill engines out for what decode engines hold.
        "policy": "round_robin", "disaggregation": section, "endpoints": endpoints}]})
}

/// A prompt of 200 tokens and eight to come.
fn body(first: u32) -> Value {
    let prompt: Vec<u32> = (first..first + 200).collect();
    json!({"model": "tiny", "prompt": prompt, "max_tokens": 8, "return_token_ids": true})
}

pub(crate) fn streamed(mut body: Value) -> Value {
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    body
}

/// The plan that an answer names.
#[track_caller]
pub(crate) fn plan(response: &Response) -> String {
    let reason = response.head.header("x-kvasir-reason").unwrap_or_default().to_owned();
    let plan = reason.split("; ").find_map(|field| field.strip_prefix("plan="));
    plan.unwrap_or_else(|| panic!("no plan in {reason:?}; {}", response.text())).to_owned()
}

/// The code of an error of the gateway.
#[track_caller]
fn refusal(response: &Response) -> (u16, String) {
    let code = response.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
    (response.status, code)
}

/// The tokens of a whole answer.
#[track_caller]
pub(crate) fn tokens(response: &Response) -> Vec<u64> {
    assert_eq!(response.status, 200, "{}", response.text());
    ids(&response.json())
}

pub(crate) fn ids(chunk: &Value) -> Vec<u64> {
    let ids = chunk["choices"][0]["token_ids"].as_array();
    ids.map(|ids| ids.iter().filter_map(Value::as_u64).collect()).unwrap_or_default()
}

fn count(page: &MetricsPage, name: &str) -> f64 {
    page.sum(name, &[]).unwrap_or(0.0)
}
