//! The model against recordings of real vLLM servers: fed the same prompts and made to generate
//! the same tokens, it publishes the same batches, byte for byte, in the same order.
//!
//! What the recordings leave open is the interleaving of prompts that arrive together: the engine
//! may find one or several of them when it begins a step. The recording decides: where every
//! prompt got a batch of its own, one step runs between arrivals, otherwise all arrive at once.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

#[path = "fidelity/nixl.rs"]
mod nixl;
#[path = "fidelity/recording.rs"]
mod recording;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use kvasir_engine_sim::{
    Engine, Hashing, NextToken, Request, RequestId, StepOutcome, TokenRequest,
};
use kvasir_kv_events::{Batch, Event, decode};

use recording::{Recording, Step};

/// What was compared.
#[derive(Debug, Default)]
struct Compared {
    batches: usize,
    stored: usize,
    removed: usize,
    requests: usize,
}

/// The recordings of single servers.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".jsonl") && name.starts_with("0.") && !name.contains("-dp2")
    });
    paths.sort();
    assert_eq!(paths.len(), 16);
    paths
}

/// Runs a recording through the model; `same` compares a recorded batch with the model's events.
fn replay(recording: &Recording, mut same: impl FnMut(&str, &[u8], &[u8])) -> Compared {
    let mut outputs: HashMap<RequestId, Vec<u32>> = HashMap::new();
    let mut requests = Vec::new();
    for step in &recording.steps {
        let made = step.prompts.iter().map(|prompt| {
            let id = RequestId(outputs.len() as u64);
            outputs.insert(id, prompt.output.clone());
            Request {
                ignore_eos: true,
                lora: step.lora.clone(),
                cache_salt: step.salt.clone(),
                session_id: step.session.clone(),
                ..Request::new(id, prompt.tokens.clone(), step.max_tokens)
            }
        });
        requests.push(made.collect::<Vec<_>>());
    }
    let source = move |request: &TokenRequest<'_>| {
        NextToken::Token(outputs[&request.id][request.output.len()])
    };
    let mut engine = Engine::with_source(recording.config.clone(), Box::new(source)).unwrap();

    let mut compared = Compared::default();
    for (step, requests) in recording.steps.iter().zip(requests) {
        if step.reset {
            assert!(engine.reset_prefix_cache(), "{}", step.name);
        }
        compared.requests += requests.len();
        let outcomes = run(&mut engine, step, requests);
        let cached = outcomes.iter().flat_map(|o| &o.outputs).map(|o| o.cached_tokens).next_back();
        assert_eq!(cached.unwrap_or_default(), step.cached_tokens, "{}", step.name);

        let batches: Vec<_> = outcomes.iter().filter(|o| !o.events.is_empty()).collect();
        for (recorded, outcome) in step.batches.iter().zip(&batches) {
            let ts = f64::from_be_bytes(recorded[2..10].try_into().unwrap());
            let made = recording.format.encode(ts, &outcome.events, Some(0));
            same(&step.name, recorded, &made);
            compared.batches += 1;
            for event in &outcome.events {
                match event {
                    kvasir_engine_sim::Event::Stored(stored) => {
                        compared.stored += stored.block_hashes.len();
                    }
                    kvasir_engine_sim::Event::Removed(_) => compared.removed += 1,
                    kvasir_engine_sim::Event::Cleared => {}
                }
            }
        }
        assert_eq!(batches.len(), step.batches.len(), "batches of {}", step.name);
    }
    let stats = engine.stats();
    assert_eq!((stats.prefix_queries, stats.prefix_hits), recording.prefix_totals);
    assert_eq!((stats.running, stats.waiting, stats.used_blocks), (0, 0, 0));
    compared
}

/// Submits the prompts of one HTTP request and runs the engine until it is idle.
fn run(engine: &mut Engine, step: &Step, requests: Vec<Request>) -> Vec<StepOutcome> {
    let one_by_one = step.prompts.len() > 1 && step.batches.len() == step.prompts.len();
    let mut outcomes = Vec::new();
    for request in requests {
        engine.submit(request).unwrap();
        if one_by_one {
            outcomes.extend(engine.step());
        }
    }
    outcomes.extend(std::iter::from_fn(|| engine.step()));
    outcomes
}

#[test]
fn batches_equal_the_recorded_ones_byte_for_byte() {
    let mut total = 0;
    for path in captures() {
        let name = path.file_name().unwrap().display();
        let recording = Recording::read(&path);
        assert!(matches!(recording.config.hashing, Hashing::Contract(_)), "{name}");
        let compared = replay(&recording, |step, recorded, made| {
            // The decoded form first: it says what differs.
            assert_eq!(decode(recorded).unwrap(), decode(made).unwrap(), "{step} of {name}");
            assert_eq!(recorded, made, "{step} of {name}");
        });
        println!("{name}: {compared:?}, all equal");
        assert!(compared.batches >= 21 && compared.removed > 100, "{compared:?}");
        total += compared.batches;
    }
    println!("{total} batches, all equal");
}

/// Under opaque hashes all but the names of blocks is the same, and one recorded name is one of
/// the model's throughout.
#[test]
fn batches_equal_the_recorded_ones_up_to_the_names_of_blocks() {
    for path in captures() {
        let name = path.file_name().unwrap().display();
        let mut recording = Recording::read(&path);
        recording.config.hashing = Hashing::default();
        let mut names = Names::default();
        let compared = replay(&recording, |step, recorded, made| {
            let (recorded, mut made) = (decode(recorded).unwrap(), decode(made).unwrap());
            names.translate(&recorded, &mut made);
            assert_eq!(recorded, made, "{step} of {name}");
        });
        assert!(compared.batches >= 21 && compared.removed > 100, "{compared:?}");
    }
}

/// Which recorded hash a hash of the model stands for.
#[derive(Default)]
struct Names {
    recorded: HashMap<u64, u64>,
    taken: HashMap<u64, u64>,
}

impl Names {
    /// Rewrites the model's hashes as recorded ones; new pairs are learned by their place.
    fn translate(&mut self, recorded: &Batch, made: &mut Batch) {
        for (recorded, made) in recorded.events.iter().zip(&mut made.events) {
            match (recorded, made) {
                (Event::Stored(recorded), Event::Stored(made)) => {
                    for (r, m) in recorded.block_hashes.iter().zip(&mut made.block_hashes) {
                        m.0 = self.name(r.0, m.0);
                    }
                    if let (Some(r), Some(m)) = (recorded.parent, &mut made.parent) {
                        m.0 = self.name(r.0, m.0);
                    }
                }
                (Event::Removed(recorded), Event::Removed(made)) => {
                    for (r, m) in recorded.block_hashes.iter().zip(&mut made.block_hashes) {
                        m.0 = self.name(r.0, m.0);
                    }
                }
                _ => {}
            }
        }
    }

    fn name(&mut self, recorded: u64, made: u64) -> u64 {
        let name = *self.recorded.entry(made).or_insert(recorded);
        assert_eq!(*self.taken.entry(name).or_insert(made), made, "one name for two blocks");
        name
    }
}

#[test]
fn formats_of_all_releases_equal_the_engines_own_encoder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/vllm-events");
    let mut batches = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("events-vllm-") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        batches += golden::compare(&serde_json::from_str(&text).unwrap());
    }
    println!("{batches} golden batches, all equal");
    assert!(batches > 200, "{batches}");
}

#[path = "fidelity/golden.rs"]
mod golden;
