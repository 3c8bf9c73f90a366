//! Rounds against an engine on a socket.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvasir_balance::SelectionSpec;
use kvasir_inventory::{Inventory, Limits};
use kvasir_kv_hash::KeySpace;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Recorded};
use serde_json::{Value, json};

use super::*;
use crate::identity::BlockIdentity;
use crate::registry::Fleet;
use crate::spec::{EndpointSpec, FleetSpec, PoolSpec, RankAddressingKind, TokenSpec};
use crate::token_oracle::Parity;

const DEADLINE: Duration = Duration::from_secs(20);

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/models")
}

/// The small model as one whose chats are encoded as harmony, with a template all the same.
fn harmony(name: &str) -> PathBuf {
    let staged = std::env::temp_dir().join(format!("kvasir-{name}-{}", std::process::id()));
    let dir = staged.join("tiny");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::copy(models().join("tiny/tokenizer.json"), dir.join("tokenizer.json")).unwrap();
    let marks = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"];
    let listed: serde_json::Map<String, Value> = (5_000..)
        .zip(marks)
        .map(|(id, mark)| (id.to_string(), json!({"content": mark, "special": true})))
        .collect();
    let config = json!({ "added_tokens_decoder": listed }).to_string();
    std::fs::write(dir.join("tokenizer_config.json"), config).unwrap();
    std::fs::write(dir.join("config.json"), r#"{"model_type":"gpt_oss"}"#).unwrap();
    std::fs::write(dir.join("chat_template.jinja"), "{{ messages[0].content }}").unwrap();
    staged
}

struct Scene {
    engine: FakeEngine,
    _fleet: Fleet,
    _seat: Arc<Seat>,
    pool: Arc<Pool>,
    renderer: Arc<Renderer>,
    checker: Checker,
}

impl Scene {
    /// An engine with another tokenizer for chats than for texts, and a checker that is driven by
    /// hand. While `refuses`, it answers 400.
    async fn new(staged: PathBuf, refuses: Arc<AtomicBool>) -> Self {
        let texts = Renderer::load(&staged.join("tiny")).unwrap();
        let tokenize = move |body: &Value| {
            if refuses.load(Ordering::Relaxed) {
                return None;
            }
            if body.get("messages").is_some() {
                return Some(vec![7]);
            }
            let body = body.to_string();
            texts.prompts(Api::Completions, body.as_bytes()).ok()?.prompts.pop()
        };
        let config = EngineConfig { tokenize: Some(Arc::new(tokenize)), ..EngineConfig::default() };
        let engine = FakeEngine::start(config).await.unwrap();
        let authority: http::uri::Authority = engine.addr().to_string().parse().unwrap();
        let endpoint = EndpointSpec::at(authority);
        let pool = PoolSpec {
            model: "tiny".to_owned(),
            aliases: Vec::new(),
            decision_headers: None,
            selection: SelectionSpec::default(),
            tokenizer_dir: Some(staged),
            authorization: None,
            tokens: TokenSpec { parity: ParityMode::Off, ..TokenSpec::default() },
            rank_addressing: RankAddressingKind::None,
            identity: BlockIdentity::Tokens,
            timeouts: crate::Timeouts::default(),
            admission: None,
            split: None,
            endpoints: vec![endpoint],
        };
        let spec = FleetSpec {
            pools: vec![pool],
            scrape_interval: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(5),
            seed: 1,
            decision_log: None,
            health: crate::HealthSpec::default(),
        };
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
        let fleet = Fleet::start(spec, inventory).unwrap();
        let pool = Arc::clone(fleet.only_pool().unwrap());
        let end = Instant::now() + DEADLINE;
        let renderer = loop {
            if let PromptState::Ready(renderer) = &*pool.prompts().state()
                && super::engine(&pool, |_| true).is_some()
            {
                break Arc::clone(renderer);
            }
            assert!(Instant::now() < end, "no tokenizer, or no engine");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let seat = Arc::new(Seat::new(Arc::clone(&pool)));
        let checker = Checker {
            seat: Arc::downgrade(&seat),
            client: client(&EngineClient::new(Duration::from_secs(5)), None),
            mode: ParityMode::Sample,
            renderer: Arc::downgrade(&renderer),
            next_probes: Some(Instant::now()),
            told: true,
            again: Duration::from_millis(10),
        };
        Self { engine, _fleet: fleet, _seat: seat, pool, renderer, checker }
    }

    fn states(&self) -> [Parity; 2] {
        ParityPart::ALL.map(|part| self.pool.token_oracle().state(part))
    }

    /// The bodies of the questions the engine was asked.
    fn asked(&self) -> Vec<Value> {
        let all = self.engine.info_requests();
        all.iter().filter(|asked| asked.path == "/tokenize").map(Recorded::json).collect()
    }

    fn sample(&self, api: Api, made_by: &Arc<Renderer>) -> Sample {
        let body = match api {
            Api::Chat => json!({"messages": [{"role": "user", "content": "Hello"}]}),
            _ => json!({"prompt": "Hello"}),
        };
        let body = Bytes::from(body.to_string());
        let ids = self.renderer.prompts(api, &body).unwrap().prompts.pop().unwrap();
        Sample { api, body, ids, made_by: Arc::downgrade(made_by), taken: Instant::now() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chats_encoded_as_harmony_are_not_judged_by_the_template() {
    let staged = harmony("oracle-harmony");
    let mut scene = Scene::new(staged.clone(), Arc::default()).await;
    std::fs::remove_dir_all(&staged).unwrap();
    let (pool, renderer) = (Arc::clone(&scene.pool), Arc::clone(&scene.renderer));
    // There is something that could be compared.
    let chats = own(&renderer, "tiny", Api::Chat, probe_chats()).await;
    assert!(renderer.is_harmony() && !chats.is_empty());
    scene.checker.probe(&pool, &renderer).await;
    assert_eq!(scene.states(), [Parity::Equal, Parity::Unchecked]);
    let sample = scene.sample(Api::Chat, &renderer);
    scene.checker.compare(&pool, &renderer, sample).await;
    assert!(scene.asked().iter().all(|body| body.get("messages").is_none()));
    assert!(!pool.token_oracle().differs(Api::Chat));
    assert_eq!(scene.checker.next_probes, None, "nothing is left to be compared");
    let oracle = crate::token_oracle::TokenOracle::new(ParityMode::Sample);
    let body = Bytes::from_static(b"{}");
    oracle.offer(Api::Chat, &body, &[1], &renderer);
    assert!(oracle.take_sample().is_none());
    oracle.offer(Api::Completions, &body, &[1], &renderer);
    assert!(oracle.take_sample().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_was_refused_is_tried_again() {
    let refuses = Arc::new(AtomicBool::new(true));
    let mut scene = Scene::new(models(), Arc::clone(&refuses)).await;
    let (pool, renderer) = (Arc::clone(&scene.pool), Arc::clone(&scene.renderer));
    scene.checker.probe(&pool, &renderer).await;
    assert_eq!(scene.states(), [Parity::Unchecked; 2]);
    assert!(scene.checker.next_probes.is_some(), "given up");
    refuses.store(false, Ordering::Relaxed);
    let running = tokio::spawn(scene.checker.run());
    let end = Instant::now() + DEADLINE;
    while pool.token_oracle().state(ParityPart::Tokenizer) != Parity::Equal {
        assert!(Instant::now() < end, "not tried again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_another_tokenizer_are_dropped() {
    let mut scene = Scene::new(models(), Arc::default()).await;
    let (pool, renderer) = (Arc::clone(&scene.pool), Arc::clone(&scene.renderer));
    let before = Arc::new(Renderer::load(&models().join("tiny")).unwrap());
    let sample = scene.sample(Api::Completions, &before);
    drop(before);
    scene.checker.compare(&pool, &renderer, sample).await;
    assert_eq!((scene.asked().len(), scene.states()[0]), (0, Parity::Unchecked));
    let sample = scene.sample(Api::Completions, &renderer);
    scene.checker.compare(&pool, &renderer, sample).await;
    assert_eq!((scene.asked().len(), scene.states()[0]), (1, Parity::Equal));
}
