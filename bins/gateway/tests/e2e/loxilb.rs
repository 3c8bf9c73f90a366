//! LoxiLB's API as its users call it: rules over HTTP, the go/no-go check of its guide step by step, and
//! what keeps ports apart.

mod rules;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use kvasir_engine_sim::server::{PdConfig, PdRole, SimServer, SimServerConfig};
use kvasir_engine_sim::{CostModel, EngineConfig};
use kvasir_testkit::client::{RawClient, Response};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Gateway, Golden, MetricsPage, SOON, until};

const RULES: &str = "/netlox/v1/config/loadbalancer";

/// A gateway without pools of its own, and the port of LoxiLB's API.
struct Lox {
    gateway: Gateway,
    api: SocketAddr,
}

impl Lox {
    async fn start() -> Self {
        Self::with(json!({})).await
    }

    async fn with(more: Value) -> Self {
        let mut loxilb = json!({"listen": "127.0.0.1:0", "tokenizer_dir": Golden::staged()});
        for (key, value) in more.as_object().unwrap() {
            loxilb[key] = value.clone();
        }
        let config = json!({"pools": [], "loxilb": loxilb, "decision_headers": true});
        let gateway = Gateway::start(config).await;
        let line = gateway.line("the API", |line| line.contains("API is served")).await;
        let at = line.find("127.0.0.1:").unwrap();
        let text = &line[at..];
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':');
        let api = text[..end.unwrap_or(text.len())].parse().unwrap();
        Self { gateway, api }
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Response {
        ask(self.api, method, path, body).await
    }

    async fn post(&self, rule: &Value) -> Response {
        self.call("POST", RULES, rule).await
    }

    async fn made(&self, rule: &Value) -> Value {
        let answer = self.post(rule).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    async fn list(&self) -> Value {
        self.call("GET", &format!("{RULES}/all"), &Value::Null).await.json()["lbAttr"].clone()
    }

    async fn metrics(&self) -> MetricsPage {
        let page = self.call("GET", "/netlox/v1/metrics", &Value::Null).await;
        assert_eq!(page.status, 200);
        MetricsPage::parse_foreign(&page.text())
    }

    async fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().await.sum(name, labels).unwrap_or_default()
    }

    async fn until_sum(&self, name: &str, labels: &[(&str, &str)], wanted: impl Fn(f64) -> bool) {
        until(SOON, || async {
            let seen = self.sum(name, labels).await;
            if wanted(seen) { Ok(()) } else { Err(format!("{name}{labels:?} {seen}")) }
        })
        .await;
    }
}

async fn ask(at: SocketAddr, method: &str, path: &str, body: &Value) -> Response {
    let mut client = RawClient::connect(at).await.unwrap().with_deadline(SOON);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("content-type", "application/json")];
    client.send(method, path, &headers, body.as_bytes()).await.unwrap();
    client.response().await.unwrap()
}

/// A port that is free at all loopback addresses, most likely.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port()
}

/// Simulated engines at addresses of their own, which publish on one port as a rule has it.
struct Engines {
    servers: Vec<SimServer>,
    zmq: u16,
    http: u16,
}

impl Engines {
    /// At 127.0.1.1 and so on, or from another `net` on.
    async fn start(net: u8, model: &str, roles: &[Option<PdRole>]) -> Self {
        let (zmq, http) = (free_port(), free_port());
        let mut servers = Vec::new();
        for (at, role) in (1..).zip(roles) {
            let ip = Ipv4Addr::new(127, 0, net, at);
            let config = SimServerConfig {
                engine: EngineConfig {
                    num_blocks: 2_001,
                    max_model_len: 16_000,
                    cost: CostModel::DEMO,
                    ..EngineConfig::default()
                },
                model: model.to_owned(),
                root: Some(Golden::staged().join("tiny")),
                pd: PdConfig { role: *role, ..PdConfig::default() },
                listen: SocketAddr::from((ip, http)),
                events: Some(format!("tcp://{ip}:{zmq}")),
                replay: None,
                faults: true,
                ..SimServerConfig::default()
            };
            servers.push(SimServer::start(config).await.unwrap());
        }
        Self { servers, zmq, http }
    }

    fn endpoints(&self, roles: &[u32]) -> Vec<Value> {
        let host = |server: &SimServer| {
            let url = server.url();
            let at: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
            at.ip().to_string()
        };
        let one = |(server, role): (&SimServer, &u32)| {
            json!({"endpointIP": host(server), "targetPort": self.http, "weight": 1,
                "ep_role": role})
        };
        self.servers.iter().zip(roles).map(one).collect()
    }
}

/// The example of the guide for mode 1, with other addresses.
fn example(vip: &str, port: u16, engines: &Engines) -> Value {
    json!({
        "serviceArguments": {
            "externalIP": vip, "port": port, "protocol": "tcp", "sel": 3, "mode": 4,
            "kvExactMode": 1, "kvZmqPort": engines.zmq, "kvHashAlgo": "sha256_cbor",
            "kvBlockSize": 16, "kvWarmupSec": 30
        },
        "endpoints": engines.endpoints(&[1, 2])
    })
}

/// A rule of one pool.
fn single(vip: &str, port: u16, model: &str, engines: &Engines) -> Value {
    let roles = vec![0; engines.servers.len()];
    json!({
        "serviceArguments": {
            "externalIP": vip, "port": port, "protocol": "tcp", "sel": 0, "mode": 4,
            "model_name": model, "kvExactMode": 3, "kvZmqPort": engines.zmq
        },
        "endpoints": engines.endpoints(&roles)
    })
}

/// 20 blocks that differ from those of another `first`.
fn prompt(model: &str, first: u32) -> Value {
    json!({"model": model, "prompt": (first..first + 321).collect::<Vec<u32>>(), "max_tokens": 2})
}

async fn complete(at: SocketAddr, body: &Value) -> Response {
    let answer = ask(at, "POST", COMPLETIONS, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

const HITS: &str = "loxilb_pd_kv_tier15_hits_total";

/// Steps 1 to 3 of the check, after a rule was made; step 4 (the publisher listens) is what the engines
/// are here.
async fn go_no_go(lox: &Lox, made: &Value, publishers: f64) {
    let at: SocketAddr = made["bound"].as_str().unwrap().parse().unwrap();
    let service = made["service_id"].to_string();
    // Step 3: as many subscribers as there are publishers.
    lox.until_sum("loxilb_kv_subscriber_connected", &[], |seen| seen == publishers).await;
    let before = lox.sum(HITS, &[]).await;
    // Step 1: a cold request fills the inventory.
    let cold = until(SOON, || async {
        // Refused while its engines are not known, which is no decision.
        let cold = ask(at, "POST", COMPLETIONS, &prompt("tiny", 100)).await;
        if cold.status == 503 { Err(cold.text()) } else { Ok(cold.status) }
    });
    assert_eq!(cold.await, 200);
    lox.until_sum("loxilb_pd_kv_blocks", &[("service", &service)], |seen| seen >= 20.0).await;
    assert_eq!(lox.sum(HITS, &[]).await, before, "a cold request is no hit");
    let fallen = "loxilb_pd_kv_tier15_fallthrough_total";
    lox.until_sum("loxilb_ai_requests_total", &[("model", "tiny")], |seen| seen >= 1.0).await;
    let fell = lox.sum(fallen, &[]).await;
    assert_eq!(lox.sum("loxilb_pd_kv_tier15_spills_total", &[]).await, 0.0);
    assert_eq!(lox.sum("loxilb_pd_kv_tier15_miss_reason_total", &[]).await, 1.0);
    // A warm one goes where its prefix is.
    let warm = complete(at, &prompt("tiny", 100)).await;
    lox.until_sum(HITS, &[], |seen| seen == before + 1.0).await;
    assert_eq!(lox.sum(fallen, &[]).await, fell, "a warm request stays in the tier");
    // Dual proof: the answer names the backend for which the decision was counted.
    let page = lox.metrics().await;
    let named = ["x-kvasir-prefill-endpoint", "x-kvasir-endpoint"];
    let backend = named.iter().find_map(|name| warm.head.header(name)).unwrap().to_owned();
    let backend = backend.trim_start_matches("http://");
    let index =
        page.label("loxilb_pd_ep_info", &[("service", &service), ("ep", backend)], "ep_idx");
    assert_eq!(page.sum(HITS, &[("ep_idx", &index)]), Some(before + 1.0), "{backend}");
    // Step 2: the inventory of that endpoint.
    let path = format!("/netlox/v1/config/ai/kv/inventory?service_id={service}&ep_idx={index}");
    let dump = lox.call("GET", &path, &Value::Null).await.json();
    assert_eq!(dump["hash_algo"], "sha256_cbor");
    let blocks = dump["blocks"].as_array().unwrap();
    assert!(blocks.len() >= 20, "{dump}");
    assert_eq!(dump["total"], blocks.len());
    // To the digit what the engine holds.
    let shown: BTreeSet<String> = blocks.iter().map(|one| one["hash_uint64"].to_string()).collect();
    let state = ask(backend.parse().unwrap(), "GET", "/sim/state", &Value::Null).await.json();
    let held = state["ranks"][0]["cached_blocks"].as_array().unwrap();
    let held: BTreeSet<String> = held.iter().map(|hash| hash.as_str().unwrap().into()).collect();
    assert_eq!(shown, held);
}

#[tokio::test]
async fn the_published_example_passes_its_own_check() {
    let engines = Engines::start(11, "tiny", &[Some(PdRole::Prefill), Some(PdRole::Decode)]).await;
    let lox = Lox::start().await;
    let port = free_port();
    // No address of this machine, as in the guide's text.
    let made = lox.made(&example("192.0.2.254", port, &engines)).await;
    assert_eq!(made["result"], "Success");
    assert_eq!(made["bound"], format!("127.0.0.1:{port}"));
    assert!(made["note"].as_str().unwrap().contains("192.0.2.254"), "{made}");
    go_no_go(&lox, &made, 1.0).await;
}

#[tokio::test]
async fn a_single_pool_passes_the_check() {
    let engines = Engines::start(12, "tiny", &[None, None]).await;
    let lox = Lox::start().await;
    let made = lox.made(&single("127.0.12.9", free_port(), "tiny", &engines)).await;
    assert!(made.get("note").is_none(), "{made}");
    go_no_go(&lox, &made, 2.0).await;
}
