//! Recorded traffic of real vLLM servers (0.20.2 and 0.32.0), played through real sockets.
//!
//! After every batch the inventory must say exactly what a naive reading of the same events says,
//! and before every recorded request the prediction made from the request's *body* must equal the
//! `cached_tokens` the server then reported.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

mod naive;
mod parity;
mod recording;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvasir_fleet::{Applier, EngineCard};
use kvasir_inventory::{AbsentReason, Inventory, Limits, Slot, Trust};
use kvasir_kv_events::{Address, Subscriber, SubscriberConfig, Update};
use kvasir_kv_hash::{KeySpace, Scope};
use kvasir_prompt::{Api, Envelope, Renderer};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions};

use crate::naive::{Chain, Naive};
use crate::recording::{Line, Recording, Request};

const DEADLINE: Duration = Duration::from_secs(20);

/// The way of an event, from a socket to the inventory.
struct Follower {
    publisher: FakePublisher,
    subscriber: Subscriber,
    inventory: Arc<Inventory>,
    slot: Slot,
    applier: Applier,
    card: EngineCard,
}

impl Follower {
    async fn start(card: EngineCard) -> Self {
        let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
        let mut config = SubscriberConfig::new(Address::parse(&publisher.endpoint()).unwrap());
        config.replay = publisher.replay_endpoint().map(|text| Address::parse(&text).unwrap());
        let subscriber = Subscriber::spawn(config).unwrap();
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
        let slot = inventory.register().unwrap();
        let connecting = Trust::Absent(AbsentReason::Connecting);
        let applier = Applier::new(Arc::clone(&inventory), slot, connecting);
        let mut this = Self { publisher, subscriber, inventory, slot, applier, card };
        this.apply_until(|_, trust| trust == Trust::Exact).await;
        this
    }

    async fn publish(&mut self, payload: Vec<u8>) {
        let published = self.publisher.publish(payload);
        self.apply_until(
            |update, _| matches!(update, Update::Batch { seq, .. } if *seq == published),
        )
        .await;
    }

    async fn apply_until(&mut self, done: impl Fn(&Update, Trust) -> bool) {
        loop {
            let update = tokio::time::timeout(DEADLINE, self.subscriber.recv());
            let update = update.await.expect("an update in time").expect("a live subscriber");
            self.applier.apply(&update, &self.card);
            if done(&update, self.applier.trust()) {
                return;
            }
        }
    }

    /// Resident tokens of a prompt, all of its full blocks.
    fn resident(&self, chain: &Chain, block_size: usize) -> u32 {
        let Chain { lora, salt, tokens } = chain;
        let path = lora.as_deref().and_then(|name| self.card.adapter(name)?.path.as_deref());
        let lora = lora.as_deref().map(|name| (name, path));
        let scope = Scope { model: self.card.base(), lora, salt: salt.as_deref() };
        let space = self.inventory.space();
        let keys = space.chain(space.root(&scope), tokens, block_size);
        let overlaps = self.inventory.overlaps(&keys, u32::try_from(block_size).unwrap());
        overlaps.get(self.slot).resident()
    }
}

fn testdata() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn captures() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(testdata().join("captures"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
        .collect();
    files.sort();
    files
}

/// The prompt as the gateway sees it: from the body alone.
fn prompt_of(renderer: &Renderer, card: &EngineCard, request: &Request) -> Vec<Chain> {
    let envelope = Envelope::parse(&request.body).unwrap();
    let api = Api::from_path(&request.path).unwrap();
    let prompts = renderer.prompts(api, &request.body).unwrap().prompts;
    let lora = envelope.model.filter(|model| card.adapter(model).is_some());
    prompts
        .into_iter()
        .map(|tokens| Chain { lora: lora.clone(), salt: envelope.cache_salt.clone(), tokens })
        .collect()
}

#[tokio::test]
async fn residency_and_predictions_equal_what_the_servers_said() {
    let renderer = Renderer::load(&testdata().join("models/tiny")).unwrap();
    let (mut batches, mut compared, mut predicted, mut hits, mut files) = (0, 0, 0, 0, 0);
    for path in captures() {
        let Some(recording) = Recording::read(&path) else { continue };
        files += 1;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let block_size = recording.block_size;
        let mut follower = Follower::start(recording.card.clone()).await;
        let mut naive = Naive::default();
        // The recorder writes a request before the events it caused.
        for line in recording.lines {
            match line {
                Line::Request(request) => {
                    let prompts = prompt_of(&renderer, &recording.card, &request);
                    let ids: Vec<Vec<u32>> = prompts.iter().map(|p| p.tokens.clone()).collect();
                    assert_eq!(ids, request.prompt_token_ids, "{name} {}", request.step);
                    let [prompt] = prompts.as_slice() else { continue };
                    let mut usable = prompt.clone();
                    usable.tokens.truncate((prompt.tokens.len() - 1) / block_size * block_size);
                    let overlap = u64::from(follower.resident(&usable, block_size));
                    assert_eq!(overlap, request.cached_tokens, "{name} {}", request.step);
                    predicted += 1;
                    hits += usize::from(overlap > 0);
                }
                Line::Batch { payload, events } => {
                    follower.publish(payload).await;
                    naive.apply(&events);
                    batches += 1;
                    for chain in naive.chains() {
                        let found = follower.resident(chain, block_size) as usize;
                        assert_eq!(found, naive.resident(chain, block_size), "{name} {chain:?}");
                        compared += 1;
                    }
                    assert_eq!(follower.applier.trust(), Trust::Exact, "{name}");
                }
            }
        }
        assert_eq!(follower.applier.refused_blocks(), 0, "{name}");
    }
    println!(
        "{files} recordings, {batches} batches, {compared} chains compared, {predicted} requests \
         predicted, {hits} of them with hits"
    );
    assert!(files >= 15 && batches > 300 && predicted > 200 && hits > 50);
}
