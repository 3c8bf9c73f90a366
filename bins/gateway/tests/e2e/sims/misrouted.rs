//! Fleets that are routed wrongly: what the gateway and `kvasirctl` say of each is the cause.

use std::path::{Path, PathBuf};

use kvasir_engine_sim::server::SimServerConfig;
use kvasir_engine_sim::{CostModel, EngineConfig};
use serde_json::{Value, json};

use super::{FAST, Sim};
use crate::admin::{Admin, started};
use crate::ctl::Home;
use crate::harness::{CHAT, COMPLETIONS, ConfigFile, Gateway, Golden, SOON, ids, until};

/// A fleet with something wrong.
struct Fleet {
    gateway: Gateway,
    admin: Admin,
    _file: ConfigFile,
}

impl Fleet {
    async fn of(endpoints: Value, more: Value) -> Self {
        let count = endpoints.as_array().unwrap().len();
        let mut pool = json!({"model": "tiny", "policy": "round_robin", "token_parity": "off",
            "tokenizer_dir": Golden::staged(), "endpoints": endpoints});
        pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (gateway, admin, _file) = started(json!([pool])).await;
        gateway.until_metric("kvasir_endpoint_up", &[], super::as_f64(count)).await;
        gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
        Self { gateway, admin, _file }
    }

    async fn until_trust(&self, state: &str, count: f64) {
        self.gateway.until_metric("kvasir_endpoint_trust", &[("state", state)], count).await;
    }

    async fn ask(&self, first: u32, tokens: u32) {
        let body = json!({"model": "tiny", "prompt": ids(first, tokens), "max_tokens": 1});
        assert_eq!(self.gateway.post(COMPLETIONS, &body).await.status, 200);
    }

    /// The causes found, each with the endpoint it is of, as soon as there are any.
    async fn causes(&self) -> Vec<(String, Option<String>)> {
        until(SOON, || async {
            let parity = self.admin.get("/api/v1/parity").await;
            let problems = parity["pools"][0]["problems"].as_array().unwrap().clone();
            let causes: Vec<_> = problems.iter().map(cause).collect();
            if causes.is_empty() { Err(parity.to_string()) } else { Ok(causes) }
        })
        .await
    }

    /// What `kvasirctl doctor` and `get parity` print is this cause, of this endpoint, with these
    /// words of what shows it and what to do.
    async fn is_told(&self, cause: &str, endpoint: Option<&Sim>, words: &[&str]) {
        let home = Home::of(&self.admin);
        let heading = match endpoint {
            Some(sim) => format!("\n  {cause}  {}\n", sim.url()),
            None => format!("\n  {cause}\n"),
        };
        for (args, status) in [(&["doctor"][..], 1), (&["get", "parity"], 0)] {
            let ran = home.run(args).await;
            assert_eq!(ran.status, Some(status), "{args:?}: {}{}", ran.out, ran.err);
            assert!(ran.out.contains("pool tiny\n"), "{}", ran.out);
            let Some((_, told)) = ran.out.split_once(&heading) else {
                panic!("{args:?} does not say {heading:?}: {}", ran.out)
            };
            for part in words {
                assert!(told.contains(part), "{args:?} does not say {part:?}: {}", ran.out);
            }
        }
    }

    /// They say that nothing is wrong.
    async fn is_sound(&self) {
        let home = Home::of(&self.admin);
        let ran = home.run(&["doctor"]).await;
        assert_eq!((ran.status, &*ran.err), (Some(0), ""), "{}", ran.out);
        assert!(ran.out.ends_with("1 pool: 0 problems\n"), "{}", ran.out);
        let ran = home.run(&["get", "parity"]).await;
        assert!(ran.out.ends_with("no problems\n"), "{}", ran.out);
    }
}

fn cause(problem: &Value) -> (String, Option<String>) {
    for words in ["finding", "remedy"] {
        assert!(problem[words].as_str().is_some_and(|text| text.len() > 10), "{problem}");
    }
    let endpoint = problem["endpoint"].as_str().map(str::to_owned);
    (problem["cause"].as_str().unwrap().to_owned(), endpoint)
}

fn is(cause: &str, endpoint: Option<&Sim>) -> Vec<(String, Option<String>)> {
    vec![(cause.to_owned(), endpoint.map(Sim::url))]
}

async fn with(change: impl FnOnce(&mut SimServerConfig), blocks: usize, cost: CostModel) -> Sim {
    let mut config = SimServerConfig::default();
    change(&mut config);
    Sim::with(config, blocks, cost).await
}

/// The staged tokenizer with the chat template of another model.
fn with_template(name: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/chat-models");
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("misrouted-{name}"));
    std::fs::create_dir_all(parent.join("tiny")).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
        let from = match file {
            "tokenizer.json" => models.join(file),
            _ => models.join(name).join(file),
        };
        std::fs::copy(from, parent.join("tiny").join(file)).unwrap();
    }
    parent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_template() {
    let root = Some(Golden::staged().join("tiny"));
    let sim = with(|config| config.root = root, 200, FAST).await;
    let endpoints = json!([{"url": sim.url()}]);
    let fleet = Fleet::of(endpoints, json!({"tokenizer_dir": with_template("glm4")})).await;
    fleet.until_trust("exact", 1.0).await;
    for turn in 0..12 {
        let body = json!({"model": "tiny", "max_tokens": 1,
            "messages": [{"role": "user", "content": format!("question {turn}")}]});
        assert_eq!(fleet.gateway.post(CHAT, &body).await.status, 200);
    }
    assert_eq!(fleet.causes().await, is("wrong_template", None));
    let words = ["than the gateway at `chat` for `tiny`", " answers of ", "chat_template.jinja"];
    fleet.is_told("wrong_template", None, &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_events() {
    let sim = Sim::without_replay(40, FAST).await;
    let fleet = Fleet::of(json!([{"url": sim.url()}]), json!({})).await;
    fleet.until_trust("partial", 1.0).await;
    // Known from the start once the whole cache was filled anew.
    for turn in 0..6 {
        fleet.ask(600 * turn, 150).await;
    }
    fleet.until_trust("exact", 1.0).await;
    sim.lose_next_batch().await;
    fleet.ask(3_600, 150).await;
    sim.until_batch_lost().await;
    fleet.ask(3_900, 150).await;
    fleet.until_trust("partial", 1.0).await;
    assert_eq!(fleet.causes().await, is("lost_events", Some(&sim)));
    let words = ["partial(lost_batch)", "1 gap,", "0 failed replays", "`replay`"];
    fleet.is_told("lost_events", Some(&sim), &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_block_size() {
    let sim = Sim::start(200, FAST).await;
    let engine = EngineConfig { block_size: 32, ..EngineConfig::default() };
    let other = with(|config| config.engine = engine, 200, FAST).await;
    let events = other.server.events_endpoint().unwrap();
    let fleet = Fleet::of(json!([{"url": sim.url(), "events": events}]), json!({})).await;
    let whole = Fleet::of(json!([{"url": other.url()}]), json!({})).await;
    // The other engine's prompts show in the events that are followed.
    until(SOON, || async {
        whole.ask(0, 150).await;
        let sizes = [("endpoint", &*sim.url())].map(|(name, url)| (name, url.to_owned()));
        let sizes = sizes.each_ref().map(|(name, url)| (*name, url.as_str()));
        let page = fleet.gateway.metrics().await;
        match page.sum("kvasir_endpoint_block_size", &sizes) {
            Some(32.0) => Ok(()),
            size => Err(format!("{size:?}")),
        }
    })
    .await;
    let causes = fleet.causes().await;
    assert!(causes.contains(&is("wrong_block_size", Some(&sim))[0]), "{causes:?}");
    let words = ["blocks of 32 tokens", "metrics say 16", "`events`"];
    fleet.is_told("wrong_block_size", Some(&sim), &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_is_too_small() {
    let sim = Sim::start(40, FAST).await;
    let fleet = Fleet::of(json!([{"url": sim.url()}]), json!({})).await;
    fleet.until_trust("exact", 1.0).await;
    // Six prompts of nine blocks in turn, with room for four.
    for turn in 0..180 {
        fleet.ask(600 * (turn % 6), 150).await;
    }
    assert_eq!(fleet.causes().await, is("full_cache", Some(&sim)));
    let words = [" % of the blocks it evicts", "more memory for the cache"];
    fleet.is_told("full_cache", Some(&sim), &words).await;
    // With room for all there is nothing to say.
    let sim = Sim::start(80, FAST).await;
    let fleet = Fleet::of(json!([{"url": sim.url()}]), json!({})).await;
    fleet.until_trust("exact", 1.0).await;
    for turn in 0..180 {
        fleet.ask(600 * (turn % 6), 150).await;
    }
    let parity = fleet.admin.get("/api/v1/parity").await;
    assert_eq!(parity["pools"][0]["problems"], json!([]));
    fleet.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_replica() {
    let sims = [
        Sim::start(800, FAST).await,
        Sim::start(800, FAST).await,
        Sim::start(800, CostModel::MID_GPU).await,
    ];
    let endpoints: Vec<Value> = sims.iter().map(|sim| json!({"url": sim.url()})).collect();
    let fleet = Fleet::of(endpoints.into(), json!({})).await;
    fleet.until_trust("exact", 3.0).await;
    for turn in 0..24 {
        let prompt = ids(turn, 2_000);
        let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 1, "stream": true});
        assert_eq!(fleet.gateway.post(COMPLETIONS, &body).await.status, 200);
    }
    assert_eq!(fleet.causes().await, is("slow_replica", Some(&sims[2])));
    let words = ["its first data takes ", " ms, that of others ", "`weight`"];
    fleet.is_told("slow_replica", Some(&sims[2]), &words).await;
    // What left the pool is spoken of no more, though its answers are remembered.
    let slow = sims[2].url().replace("http://", "");
    fleet.admin.done("DELETE", &format!("/api/v1/pools/tiny/endpoints/{slow}"), &json!({})).await;
    fleet.is_sound().await;
}
