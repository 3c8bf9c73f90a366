//! What prompts cost: cold, in conversations, warm at 128k tokens, and what the cache holds under
//! traffic: `cargo bench -p kvasir-prompt`.
//!
//! Text is this repository's own sources. `KVASIR_TOKENIZERS` may name a directory of real models,
//! else the tests' small one is used. CPU time of the measuring thread counts where a measurement
//! takes long, the best of several runs where it is short; compared subjects alternate.
//! `KVASIR_BENCH` picks parts by name: `cold`, `turns`, `long`, `traffic`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a program for the terminal"
)]

mod setup;

use std::fmt::Write as _;
use std::time::Duration;

use kvasir_inventory::{EngineHash, Group, GroupKind, Inventory, StoredBlocks, Tier};
use kvasir_kv_hash::{KeySpace, Scope};
use kvasir_prompt::{Api, Envelope, Limits, Renderer};

use self::setup::{Conversation, corpus, cpu, load, models, resident_bytes};

fn main() {
    let parts = std::env::var("KVASIR_BENCH").unwrap_or_default();
    let wants = |part: &str| parts.is_empty() || parts.split(',').any(|p| p == part);
    let text = corpus();
    println!("{} bytes of text", text.len());
    for (name, dir) in models() {
        let uncached = load(&dir, Limits { cache_bytes: 0, ..Limits::default() });
        let library = Limits { cache_bytes: 0, library_only: true, ..Limits::default() };
        let library = load(&dir, library);
        let cached = load(&dir, Limits::default());
        let engine = format!("{:?}", cached.engine());
        println!("\n{name}: {} boundary tokens, {engine:.90}", cached.cache().0);
        if wants("cold") {
            cold(&uncached, &library, &text);
        }
        if cached.chat_state().is_err() {
            continue;
        }
        if wants("turns") {
            turns(&cached, &[&uncached, &library], &text);
        }
        if wants("long") {
            long(&cached, &[&uncached, &library], &text);
        }
    }
    if wants("traffic") {
        traffic(&text);
    }
}

/// Different slices of text, once each, by the engine in use and by the library.
fn cold(fastest: &Renderer, library: &Renderer, text: &str) {
    let (mut tokens, mut bytes) = (0, 0);
    let mut spent = [Duration::ZERO; 2];
    for slice in setup::slices(text, 32 << 10).take(40) {
        let body = serde_json::json!({ "prompt": slice }).to_string();
        let mut ids = Vec::new();
        for (renderer, spent) in [fastest, library].into_iter().zip(&mut spent) {
            let before = cpu();
            let prompts = renderer.prompts(Api::Completions, body.as_bytes()).unwrap();
            *spent += cpu() - before;
            ids.push(prompts.prompts);
        }
        assert_eq!(ids[0], ids[1]);
        tokens += ids[0][0].len();
        bytes += slice.len();
    }
    let rate = |amount: usize, spent: Duration| amount as f64 / spent.as_secs_f64() / 1e6;
    println!(
        "  cold: {:.2} M tokens, {:.1} MB a CPU second; the library {:.2} M, {:.1} MB: {:.1} times",
        rate(tokens, spent[0]),
        rate(bytes, spent[0]),
        rate(tokens, spent[1]),
        rate(bytes, spent[1]),
        spent[1].as_secs_f64() / spent[0].as_secs_f64(),
    );
}

/// A conversation of 20 turns that ends at about 32k tokens.
fn turns(cached: &Renderer, cold: &[&Renderer; 2], text: &str) {
    const ROUNDS: u32 = 3;
    let mut warm = [Duration::ZERO; 2];
    let mut spent = [[Duration::ZERO; 2]; 2];
    let mut tokens = 0;
    let per_turn = setup::bytes_for(cold[0], text, 32_000) / 20;
    for round in 0..ROUNDS as usize {
        let mut talk = Conversation::new(text, round * 97_000);
        for turn in 0..20 {
            talk.user(per_turn * 2 / 3);
            let body = talk.body();
            let (got, took) = run(cached, &body);
            // The first turn is cold for all.
            if turn > 0 {
                add(&mut warm, took);
            }
            for (renderer, spent) in cold.iter().zip(&mut spent) {
                let (want, took) = run(renderer, &body);
                assert_eq!(got, want);
                if turn > 0 {
                    add(spent, took);
                }
            }
            tokens = got.len();
            talk.assistant(per_turn / 3);
        }
    }
    let per = |total: Duration| total / (19 * ROUNDS);
    println!(
        "  20 turns to {tokens} tokens, each: {} µs warm, of it tokenizing {}",
        per(warm[0]).as_micros(),
        per(warm[1]).as_micros()
    );
    for (name, spent) in ["uncached", "library"].iter().zip(spent) {
        println!(
            "    {name}: {:.1?}, {:.1} times; tokenizing {:.1?}, {:.1} times",
            per(spent[0]),
            ratio(spent[0], warm[0]),
            per(spent[1]),
            ratio(spent[1], warm[1]),
        );
    }
}

/// The ids of a chat, what they took (CPU), and of it what tokenizing took (wall).
fn run(renderer: &Renderer, body: &[u8]) -> (Vec<u32>, [Duration; 2]) {
    let (work, before) = (renderer.work(), cpu());
    let mut prompts = renderer.prompts(Api::Chat, body).unwrap();
    let all = cpu() - before;
    (prompts.prompts.remove(0), [all, renderer.work().tokenize - work.tokenize])
}

fn add(total: &mut [Duration; 2], one: [Duration; 2]) {
    for (total, one) in total.iter_mut().zip(one) {
        *total += one;
    }
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// One more turn at 128k tokens, stage by stage.
fn long(cached: &Renderer, cold: &[&Renderer; 2], text: &str) {
    const ROUNDS: u32 = 20;
    const BLOCK: usize = 16;
    let bytes = setup::bytes_for(cold[0], text, 128_000);
    let mut talk = Conversation::new(text, 0);
    while talk.len() < bytes {
        talk.user(6000);
        talk.assistant(2000);
    }
    talk.user(800);
    let first = cached.prompts(Api::Chat, &talk.body()).unwrap();
    let space = KeySpace::fixed();
    let root = space.root(&Scope { model: "m", ..Scope::default() });
    let inventory = Inventory::new(space, kvasir_inventory::Limits::default());
    hold(&inventory, root, &first.prompts[0], BLOCK);
    let mut best = [Duration::MAX; 7];
    let mut note = |stage: usize, spent: Duration| best[stage] = best[stage].min(spent);
    let (mut tokens, mut body_bytes) = (0, 0);
    for round in 0..ROUNDS {
        talk.assistant(300 + round as usize);
        talk.user(300 + round as usize);
        let body = talk.body();
        let start = std::time::Instant::now();
        let envelope = Envelope::parse(&body).unwrap();
        note(0, start.elapsed());
        let before = cached.work();
        let salt = envelope.cache_salt.as_deref();
        let got = cached.prompts_salted(Api::Chat, &body, salt).unwrap();
        let work = cached.work();
        note(1, work.parse - before.parse);
        note(2, work.render - before.render);
        note(3, work.tokenize - before.tokenize);
        let at = std::time::Instant::now();
        let ids = &got.prompts[0];
        let keys = inventory.space().chain(root, ids, BLOCK);
        note(4, at.elapsed());
        let at = std::time::Instant::now();
        std::hint::black_box(inventory.overlaps(&keys, BLOCK as u32));
        note(5, at.elapsed());
        note(6, start.elapsed());
        tokens = ids.len();
        body_bytes = body.len();
    }
    let mut line = String::new();
    for (name, spent) in
        ["envelope", "parse", "render", "tokenize", "chain", "lookup", "all"].iter().zip(best)
    {
        let _ = write!(line, " {name} {}", spent.as_micros());
    }
    println!("  warm turn at {tokens} tokens, {body_bytes} bytes, in µs:{line}");
    let body = talk.body();
    for (name, renderer) in ["uncached", "library"].iter().zip(cold) {
        let mut took = [Duration::MAX; 2];
        for _ in 0..5 {
            let (work, start) = (renderer.work(), std::time::Instant::now());
            renderer.prompts(Api::Chat, &body).unwrap();
            took[0] = took[0].min(start.elapsed());
            took[1] = took[1].min(renderer.work().tokenize - work.tokenize);
        }
        println!(
            "    {name}: {:.1?}, {:.1} times; tokenizing {:.1?}, {:.1} times",
            took[0],
            ratio(took[0], best[6]),
            took[1],
            ratio(took[1], best[3]),
        );
    }
}

/// Lets one endpoint hold a whole prompt.
fn hold(inventory: &Inventory, root: kvasir_kv_hash::BlockKey, ids: &[u32], block: usize) {
    let slot = inventory.register().unwrap();
    let full = ids.len() / block * block;
    let hashes: Vec<EngineHash> = (0..full / block).map(|n| EngineHash(n as u64)).collect();
    inventory.store(
        slot,
        &StoredBlocks {
            hashes: &hashes,
            tokens: &ids[..full],
            block_size: block as u32,
            root,
            parent: None,
            tier: Tier::Device,
            group: Group { index: 0, kind: GroupKind::FullAttention },
            extras: &[],
            lookahead: &[],
            identity: kvasir_inventory::Identity::Tokens,
        },
    );
}

/// A million requests of many conversations through a small cache.
fn traffic(text: &str) {
    const BUDGET: usize = 32 << 20;
    let (_, dir) = models().remove(0);
    let renderer = load(&dir, Limits { cache_bytes: BUDGET, ..Limits::default() });
    let requests: u64 = std::env::var("KVASIR_BENCH_REQUESTS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut talks: Vec<String> = vec![String::new(); 4000];
    let (mut most, before) = (0, resident_bytes());
    let start = cpu();
    for request in 0..requests {
        // Some users talk more than others.
        let talk = next(4000).min(next(4000)).min(next(4000)) as usize;
        if talks[talk].len() > 20_000 || next(40) == 0 {
            talks[talk].clear();
        }
        let at = next(text.len() as u64 - 1000) as usize;
        let words = setup::slice(text, at, 120);
        let _ = write!(talks[talk], "<|im_start|>user\n{words}<|im_end|>\n");
        let body = serde_json::json!({ "prompt": talks[talk] }).to_string();
        renderer.prompts(Api::Completions, body.as_bytes()).unwrap();
        if request % 1000 == 0 {
            most = most.max(renderer.cache().1.bytes);
        }
    }
    let (_, stats) = renderer.cache();
    let talks: usize = talks.iter().map(String::capacity).sum();
    let grown = resident_bytes().saturating_sub(before).saturating_sub(talks);
    println!(
        "\n{requests} requests in {:.0?}: at most {most} of {} bytes accounted, resident memory \
         grew by {grown}; {:.1} % of text found; {} entries, {} evicted",
        cpu() - start,
        stats.budget,
        100.0 * stats.hit_bytes as f64 / (stats.hit_bytes + stats.miss_bytes) as f64,
        stats.entries,
        stats.evictions,
    );
    assert!(most <= stats.budget, "over the budget");
}
