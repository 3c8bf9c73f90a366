//! The recordings once more, through a whole fleet: what was predicted for each request is held
//! against what the server reported. No endpoint of a real server may come under suspicion.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_balance::{PolicyKind, SelectionSpec};
use kvasir_fleet::{
    Chosen, EndpointSpec, Fleet, FleetSpec, ParityMode, Pool, PoolSpec, PromptTokens,
    RankAddressingKind, Report, TokenSpec, samples,
};
use kvasir_inventory::{Inventory, Limits};
use kvasir_kv_hash::KeySpace;
use kvasir_prompt::{Api, Renderer};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions};

use crate::naive::{Chain, Naive};
use crate::recording::{Line, Recording, Request};
use crate::{DEADLINE, captures, prompt_of, testdata};

/// An engine that says it is the recorded one, and the fleet that follows it.
struct Scene {
    publisher: FakePublisher,
    fleet: Fleet,
    pool: Arc<Pool>,
    _engine: FakeEngine,
}

impl Scene {
    async fn start(recording: &Recording) -> Self {
        let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
        let source = serde_json::json!({"0": {"enable_kv_cache_events": true, "publisher": "zmq",
            "endpoint": publisher.endpoint(), "replay_endpoint": publisher.replay_endpoint(),
            "topic": ""}});
        let base = recording
            .card
            .models
            .iter()
            .map(|model| Model { root: model.root.clone().unwrap(), ..Model::base(&model.id) });
        let parent = &recording.card.models[0].id;
        let adapters = recording.card.adapters.iter().map(|adapter| Model {
            root: adapter.path.clone().unwrap(),
            ..Model::adapter(&adapter.name, parent)
        });
        let engine = FakeEngine::start(EngineConfig {
            models: base.chain(adapters).collect(),
            block_size: recording.block_size,
            kv_event_sources: Some(source),
            ..EngineConfig::default()
        });
        let engine = engine.await.unwrap();
        let authority: http::uri::Authority = engine.addr().to_string().parse().unwrap();
        let pool = PoolSpec {
            model: parent.clone(),
            aliases: Vec::new(),
            decision_headers: None,
            selection: SelectionSpec::of(PolicyKind::Latency),
            tokenizer_dir: None,
            authorization: None,
            tokens: TokenSpec { parity: ParityMode::Off, ..TokenSpec::default() },
            rank_addressing: RankAddressingKind::None,
            identity: kvasir_fleet::BlockIdentity::Tokens,
            timeouts: kvasir_fleet::Timeouts::default(),
            admission: None,
            split: None,
            endpoints: vec![EndpointSpec::at(authority)],
        };
        let spec = FleetSpec {
            pools: vec![pool],
            scrape_interval: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(5),
            seed: 1,
            decision_log: None,
            health: kvasir_fleet::HealthSpec::default(),
        };
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
        let fleet = Fleet::start(spec, inventory).unwrap();
        let pool = Arc::clone(&fleet.pools()[0]);
        let this = Self { publisher, fleet, pool, _engine: engine };
        this.until("endpoint_trust", &[("state", "exact")], 1.0).await;
        this
    }

    /// The sum of a family's series with these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let mut page = String::new();
        self.fleet.render_metrics(&mut page);
        let name = format!("kvasir_{name}");
        let all = samples(&page).filter(|sample| sample.name == name);
        all.filter(|s| labels.iter().all(|(key, value)| s.label(key) == Some(value)))
            .map(|sample| sample.value)
            .sum()
    }

    async fn until(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let start = Instant::now();
        while self.sum(name, labels) < value {
            assert!(start.elapsed() < DEADLINE, "{name} {labels:?} {}", self.sum(name, labels));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until so many answers are accounted for.
    async fn until_judged(&self, asked: f64) {
        let start = Instant::now();
        let judged = || self.sum("hit_judged_total", &[("oracle", "usage")]);
        while judged() + self.sum("hit_unjudged_total", &[]) < asked {
            assert!(start.elapsed() < DEADLINE, "{} of {asked}", judged());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn choose(&self, prompt: &Chain) -> Chosen {
        let Chain { lora, salt, tokens } = prompt;
        let evidence = self.pool.evidence(&PromptTokens {
            prompts: Some(std::slice::from_ref(tokens)),
            count: tokens.len() as u64,
            exact: true,
            adapter: lora.as_deref(),
            salt: salt.as_deref(),
        });
        let model = lora.as_deref().unwrap_or(self.pool.model());
        self.pool.choose(model, &evidence, &[]).unwrap()
    }

    /// Routes the request, when all events before it are applied, and judges its recorded answer.
    async fn ask(&self, prompt: &Chain, request: &Request, resident: usize) {
        let start = Instant::now();
        let mut chosen = self.choose(prompt);
        while chosen.decision.overlap.resident() as usize != resident {
            let overlap = chosen.decision.overlap;
            assert!(start.elapsed() < DEADLINE, "{}: {overlap:?} {resident}", request.step);
            tokio::time::sleep(Duration::from_millis(1)).await;
            chosen = self.choose(prompt);
        }
        let count = prompt.tokens.len() as u64;
        let endpoint = chosen.reservation.endpoint();
        if prompt.salt.is_some() || prompt.lora.is_some() {
            endpoint.carried_extras();
        }
        let api = Api::from_path(&request.path).unwrap().as_str();
        let cached_tokens =
            endpoint.reported_cached_tokens(api, false, Some(request.cached_tokens));
        let report = Report {
            api,
            streamed: false,
            request_id: Some(&request.step),
            clean: true,
            prompt_tokens: Some(count),
            cached_tokens,
            evicted: chosen.reservation.evicted(),
        };
        endpoint.judge(chosen.decision.prediction, &report);
    }
}

/// Plays one recording; how many of its requests were judged, and how many of them had a hit.
async fn play(path: PathBuf, renderer: Arc<Renderer>) -> Option<(f64, f64)> {
    let recording = Recording::read(&path)?;
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let scene = Scene::start(&recording).await;
    let (mut naive, mut batches, mut asked) = (Naive::default(), 0.0, 0.0);
    for line in &recording.lines {
        match line {
            Line::Request(request) => {
                let prompts = prompt_of(&renderer, &recording.card, request);
                let [prompt] = prompts.as_slice() else { continue };
                // The last token is computed anew.
                let mut usable = prompt.clone();
                usable.tokens.pop();
                let resident = naive.resident(&usable, recording.block_size);
                scene.ask(prompt, request, resident).await;
                asked += 1.0;
            }
            Line::Batch { payload, events } => {
                let clears =
                    |event: &serde_json::Value| event.to_string().contains("AllBlocksCleared");
                // The server went on for longer than this recording is played: what was asked
                // before a clear counts, as it did there.
                if events.iter().any(clears) {
                    scene.until_judged(asked).await;
                }
                naive.apply(events);
                scene.publisher.publish(payload.clone());
                batches += 1.0;
                scene.until("stream_batches_total", &[], batches).await;
            }
        }
    }
    scene.until_judged(asked).await;
    let usage = [("oracle", "usage")];
    let verdict = |verdict| scene.sum("hit_judged_total", &[usage[0], ("verdict", verdict)]);
    assert_eq!((verdict("over"), verdict("under")), (0.0, 0.0), "{name}");
    assert_eq!(scene.sum("endpoint_trust", &[("reason", "hit_mismatch")]), 0.0, "{name}");
    assert_eq!(scene.sum("hit_profile_blocks", &[]), 0.0, "{name}");
    Some((scene.sum("hit_judged_total", &usage), scene.sum("hit_reported_tokens_total", &usage)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_recorded_server_comes_under_suspicion() {
    let renderer = Arc::new(Renderer::load(&testdata().join("models/tiny")).unwrap());
    let mut plays = tokio::task::JoinSet::new();
    for path in captures() {
        plays.spawn(play(path, Arc::clone(&renderer)));
    }
    let played: Vec<(f64, f64)> = plays.join_all().await.into_iter().flatten().collect();
    let judged: f64 = played.iter().map(|(judged, _)| judged).sum();
    let hit: f64 = played.iter().map(|(_, hit)| hit).sum();
    println!("{} recordings, {judged} requests judged, {hit} tokens hit", played.len());
    assert!(played.len() >= 15 && judged > 200.0 && hit > 10_000.0);
}
