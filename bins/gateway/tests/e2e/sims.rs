//! The gateway over simulated engines: real schedulers, caches that evict, and events that are
//! late, lost or of another life. What engines report as cached is what the gateway must have
//! predicted.

mod burst;
mod clients;
mod decisions;
mod events;
mod failure;
mod identity;
mod misrouted;
mod ranks;
mod routing;

use std::net::SocketAddr;
use std::sync::Mutex;

use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{CostModel, EngineConfig, EngineStats};
use kvasir_testkit::client::{self, Head, RawClient};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Decision, Gateway, SOON, pool_at, until};

/// Half a millisecond a token; a prompt of a thousand tokens takes five.
const FAST: CostModel = CostModel::DEMO;

/// Ten milliseconds a token; a prompt of a thousand tokens takes a hundred.
const SLOW: CostModel = CostModel::MID_GPU;

/// A simulated engine, and how far the gateway must have followed its events.
struct Sim {
    server: SimServer,
    addr: SocketAddr,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The cached blocks of each rank at the last look.
    blocks: Vec<Vec<String>>,
    /// Batches of events published until then, at least.
    batches: f64,
}

impl Sim {
    /// With room for so many blocks of 16 tokens.
    async fn start(blocks: usize, cost: CostModel) -> Self {
        Self::with_ranks(1, blocks, cost).await
    }

    /// The same with so many data-parallel ranks, each with as much room.
    async fn with_ranks(ranks: u32, blocks: usize, cost: CostModel) -> Self {
        Self::with(SimServerConfig { ranks, ..Default::default() }, blocks, cost).await
    }

    /// The same without a replay socket.
    async fn without_replay(blocks: usize, cost: CostModel) -> Self {
        Self::with(SimServerConfig { replay: None, ..Default::default() }, blocks, cost).await
    }

    async fn with(config: SimServerConfig, blocks: usize, cost: CostModel) -> Self {
        let engine = EngineConfig {
            num_blocks: blocks + 1,
            max_model_len: blocks * 16,
            cost,
            ..config.engine
        };
        let model = "tiny".to_owned();
        let config = SimServerConfig { engine, model, faults: true, ..config };
        let server = SimServer::start(config).await.unwrap();
        let addr = server.url().strip_prefix("http://").unwrap().parse().unwrap();
        Self { server, addr, seen: Mutex::default() }
    }

    async fn several(count: usize, blocks: usize, cost: CostModel) -> Vec<Self> {
        let mut sims = Vec::new();
        for _ in 0..count {
            sims.push(Self::start(blocks, cost).await);
        }
        sims
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn stats(&self) -> EngineStats {
        self.server.stats()
    }

    async fn order(&self, path: &str, order: &Value) {
        let answer = client::post(self.addr, path, order.to_string().as_bytes()).await.unwrap();
        assert!(matches!(answer.status, 200 | 202), "{}", answer.text());
    }

    /// What is to happen to event batches from now on.
    async fn events(&self, fault: &str) {
        self.order("/sim/faults", &json!({ "events": fault })).await;
    }

    /// The next batch of events is numbered and kept, but not sent.
    async fn lose_next_batch(&self) {
        self.order("/sim/faults", &json!({"events": "drop", "once": true})).await;
    }

    /// Waits until that has happened: the publisher has a thread of its own.
    async fn until_batch_lost(&self) {
        until(SOON, || async {
            let faults = client::get(self.addr, "/sim/faults").await.unwrap().json();
            if faults["events"] == "ok" { Ok(()) } else { Err(faults.to_string()) }
        })
        .await;
        self.order("/sim/faults", &json!({ "once": false })).await;
    }

    /// Breaks all connections and refuses new ones until it is restarted.
    async fn go_down(&self) {
        self.order("/sim/restart", &json!({"down_ms": 600_000})).await;
        until(SOON, || async {
            RawClient::connect(self.addr).await.map_or(Ok(()), |_| Err("it accepts".to_owned()))
        })
        .await;
    }

    /// The hashes of each rank's cached blocks, as many times as there are copies.
    async fn cached_blocks(&self) -> Vec<Vec<String>> {
        let state = client::get(self.addr, "/sim/state").await.unwrap().json();
        let texts = |rank: &Value| {
            let blocks = rank["cached_blocks"].as_array().unwrap();
            blocks.iter().map(|hash| hash.as_str().unwrap().to_owned()).collect()
        };
        state["ranks"].as_array().unwrap().iter().map(texts).collect()
    }

    /// To be called after every request of a single step: counts the batch it published, if it
    /// changed the cache.
    async fn note(&self) -> usize {
        let blocks = self.cached_blocks().await;
        let distinct = |rank: &Vec<String>| {
            let mut distinct = rank.clone();
            distinct.dedup();
            distinct.len()
        };
        let held = blocks.iter().map(distinct).sum();
        let mut seen = self.seen.lock().unwrap();
        seen.blocks.resize_with(blocks.len(), Vec::new);
        let changed = seen.blocks.iter().zip(&blocks).filter(|(before, now)| before != now);
        seen.batches += as_f64(changed.count());
        seen.blocks = blocks;
        held
    }

    /// The same, and waits until the gateway has got all batches and knows as many blocks.
    async fn settle(&self, gateway: &Gateway) {
        self.settle_with(gateway, |known, held| known == held).await;
    }

    /// The same for caches with several copies of a block: the first that is evicted ends the
    /// credit for all.
    async fn settle_with_copies(&self, gateway: &Gateway) {
        self.settle_with(gateway, |known, held| known <= held).await;
    }

    async fn settle_with(&self, gateway: &Gateway, right: fn(f64, f64) -> bool) {
        let held = self.note().await;
        let wanted = self.seen.lock().unwrap().batches;
        let url = self.url();
        let labels = [("endpoint", &*url)];
        let got = until(SOON, || async {
            let page = gateway.metrics().await;
            let batches = page.sum("kvasir_stream_batches_total", &labels).unwrap();
            let known = page.sum("kvasir_endpoint_resident_blocks", &labels).unwrap();
            if batches >= wanted && right(known, as_f64(held)) {
                return Ok(batches);
            }
            Err(format!("{batches} batches of {wanted}, {known} blocks of {held}"))
        })
        .await;
        self.seen.lock().unwrap().batches = got;
    }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

fn by_url<'a>(sims: &'a [Sim], url: &str) -> &'a Sim {
    sims.iter().find(|sim| sim.url() == url).unwrap()
}

/// A gateway that knows the caches of all these engines.
async fn over(sims: &[Sim], policy: &str) -> Gateway {
    over_with(sims, policy, json!({})).await
}

/// The same with more settings.
async fn over_with(sims: &[Sim], policy: impl Into<Value>, mut config: Value) -> Gateway {
    let urls: Vec<String> = sims.iter().map(Sim::url).collect();
    let mut pool = pool_at("tiny", &urls);
    pool["policy"] = policy.into();
    // Prompts of token ids need none.
    pool.as_object_mut().unwrap().remove("tokenizer_dir");
    config["pools"] = json!([pool]);
    let gateway = Gateway::start(config).await;
    until_trusted(&gateway, sims).await;
    gateway
}

async fn until_trusted(gateway: &Gateway, sims: &[Sim]) {
    gateway.until_metric("kvasir_endpoint_up", &[], as_f64(sims.len())).await;
    let exact = [("state", "exact")];
    gateway.until_metric("kvasir_endpoint_trust", &exact, as_f64(sims.len())).await;
}

/// An answer read to its proper end.
#[derive(Debug)]
struct Answer {
    decision: Decision,
    /// Tokens of the prompt the engine had cached, as it says.
    cached: u64,
    /// Tokens generated.
    tokens: u64,
}

impl Answer {
    /// What was predicted is what the engine reports.
    #[track_caller]
    fn agreed(&self) -> u64 {
        assert_eq!(self.decision.overlap, self.cached, "{self:?}");
        assert_eq!((&*self.decision.tokens, &*self.decision.trust), ("exact", "exact"));
        self.cached
    }
}

fn body(prompt: &[u32], count: u32, streamed: bool) -> String {
    let mut body = json!({"model": "tiny", "prompt": prompt, "max_tokens": count});
    if streamed {
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
    }
    body.to_string()
}

async fn ask(gateway: &Gateway, prompt: &[u32], count: u32) -> Answer {
    let response = gateway.post_bytes(COMPLETIONS, body(prompt, count, false).as_bytes()).await;
    answer(Decision::of(&response), &response.json()["usage"])
}

fn answer(decision: Decision, usage: &Value) -> Answer {
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    let cached = cached.unwrap_or_else(|| panic!("{usage}"));
    Answer { decision, cached, tokens: usage["completion_tokens"].as_u64().unwrap() }
}

/// Starts a stream: its head has come.
async fn open(gateway: SocketAddr, prompt: &[u32], count: u32) -> (RawClient, Head) {
    let mut client = RawClient::connect(gateway).await.unwrap().with_deadline(SOON);
    let body = body(prompt, count, true);
    client.send("POST", COMPLETIONS, &[], body.as_bytes()).await.unwrap();
    let head = client.head().await.unwrap();
    assert_eq!(head.status, 200, "{head:?}");
    (client, head)
}

/// Reads a whole stream: an event a token, the usage, `[DONE]`, the end.
async fn ask_streaming(gateway: SocketAddr, prompt: &[u32], count: u32) -> Answer {
    let (mut client, head) = open(gateway, prompt, count).await;
    let (mut tokens, mut usage) = (0, Value::Null);
    loop {
        let event = client.event().await.unwrap().expect("no [DONE]");
        if event == "[DONE]" {
            break;
        }
        let mut chunk: Value = serde_json::from_str(&event).unwrap();
        assert!(usage.is_null(), "{event} after the usage");
        tokens += chunk["choices"].as_array().unwrap().len() as u64;
        usage = chunk["usage"].take();
    }
    assert_eq!(client.event().await.unwrap(), None);
    let answer = answer(Decision::of_head(&head), &usage);
    assert_eq!(answer.tokens, tokens);
    answer
}
