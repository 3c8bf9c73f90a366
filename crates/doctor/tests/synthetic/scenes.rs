//! The recordings: what happens in each, and what the engine reports.
//!
//! `warm-divisible`, `prompt-logprobs` and `reset` come from the engine model of `engine-sim`, which
//! is checked against real servers. The others are written out by hand, by the rules of vLLM's
//! sources: what they report is what those rules say, never what Kvasir computes.

use kvasir_engine_sim::{
    BlockHash, BlockRemoved, BlockStored, Engine, EngineConfig, Event, Request, RequestId,
};
use serde_json::json;

use crate::recorder::Recorder;

/// Tokens per block in all of them.
const BLOCK: u32 = 16;

/// A recording's name and how it is made.
type Scene = (&'static str, fn() -> String);

pub(crate) const SCENES: [Scene; 8] = [
    ("warm-divisible", warm_divisible),
    ("prompt-logprobs", prompt_logprobs),
    ("reset", reset),
    ("tiers", tiers),
    ("sliding-window", sliding_window),
    ("mamba", mamba),
    ("eagle", eagle),
    ("lookahead", lookahead),
];

/// An engine of the model, and its recorder.
struct Modelled {
    engine: Engine,
    recorder: Recorder,
    requests: u64,
}

impl Modelled {
    fn new(about: &str) -> Self {
        let config = EngineConfig {
            block_size: BLOCK as usize,
            num_blocks: 65,
            max_model_len: 1024,
            ..EngineConfig::default()
        };
        let recorder = Recorder::new(&config.version.to_string(), BLOCK, about);
        Self { engine: Engine::new(config).unwrap(), recorder, requests: 0 }
    }

    /// Runs one request to its end.
    fn request(&mut self, step: &str, prompt: &[u32], more: &serde_json::Value) {
        self.requests += 1;
        let mut request = Request::new(RequestId(self.requests), prompt.to_vec(), 1);
        request.skip_cache_read = *more != json!({});
        self.engine.submit(request).unwrap();
        let mut batches = Vec::new();
        let mut cached = 0;
        while let Some(outcome) = self.engine.step() {
            cached = outcome.outputs.first().map_or(cached, |output| output.cached_tokens);
            batches.extend(Some(outcome.events).filter(|events| !events.is_empty()));
        }
        self.recorder.request(step, prompt, cached, more);
        batches.iter().for_each(|events| self.recorder.batch(events));
    }
}

/// Prompts whose tokens fill their last block: one block fewer is hit than is held.
fn warm_divisible() -> String {
    let mut modelled = Modelled::new("prompts whose length the block size divides");
    for (name, length) in [("one_block", 16), ("six_blocks", 96), ("six_and_one", 97)] {
        let prompt: Vec<u32> = (1000 * length..1000 * length + length).collect();
        modelled.request(&format!("{name}_cold"), &prompt, &json!({}));
        modelled.request(&format!("{name}_warm"), &prompt, &json!({}));
    }
    let six: Vec<u32> = (96_000..96_096).collect();
    modelled.request("five_of_six", &six[..80], &json!({}));
    modelled.request("six_and_more", &[&six[..], &[7; 16]].concat(), &json!({}));
    modelled.recorder.finish()
}

/// Log-probabilities of the prompt make the engine compute all of it.
fn prompt_logprobs() -> String {
    let mut modelled = Modelled::new("requests for log-probabilities of a cached prompt");
    let prompt: Vec<u32> = (0..100).collect();
    modelled.request("cold", &prompt, &json!({}));
    modelled.request("prompt_logprobs", &prompt, &json!({"prompt_logprobs": 0}));
    modelled.request("echo_logprobs", &prompt, &json!({"echo": true, "logprobs": 1}));
    modelled.request("warm", &prompt, &json!({}));
    modelled.recorder.finish()
}

/// A reset of the cache is announced with the next step only.
fn reset() -> String {
    let mut modelled = Modelled::new("a reset of the cache while the prompt is in it");
    let prompt: Vec<u32> = (0..100).collect();
    modelled.request("cold", &prompt, &json!({}));
    modelled.recorder.reset("reset_prefix_cache");
    assert!(modelled.engine.reset_prefix_cache());
    modelled.request("after_reset", &prompt, &json!({}));
    modelled.request("warm", &prompt, &json!({}));
    modelled.recorder.finish()
}

/// Blocks move to host memory, a disk, another machine. Events of offload connectors carry no
/// tokens, only the hashes that the device's events made known; `cached_tokens` counts what is
/// loaded back.
fn tiers() -> String {
    let mut recorder = Recorder::new("0.32.0", BLOCK, "offload to host, disk and elsewhere");
    let prompt: Vec<u32> = (0..100).collect();
    let all = hashes(1, 6);
    recorder.request("cold", &prompt, 0, &json!({}));
    recorder.batch(&[on_device(&prompt, None, &all, 0, "full_attention")]);
    recorder.step("offloaded");
    recorder.batch(&[elsewhere(&all, "CPU")]);
    recorder.step("device_evicted");
    recorder.batch(&all.iter().map(|hash| removed(&[*hash], "GPU", 0)).collect::<Vec<_>>());
    // Loaded back from the host: on the device again.
    recorder.request("warm_from_host", &prompt, 96, &json!({}));
    recorder.batch(&[on_device(&prompt, None, &all, 0, "full_attention")]);
    recorder.step("to_disk");
    recorder.batch(&[elsewhere(&all[2..], "DISK"), removed(&all[2..], "CPU", 0)]);
    recorder.request("warm_on_device", &prompt, 96, &json!({}));
    recorder.step("only_colder");
    recorder.batch(&[elsewhere(&all[4..], "EXTERNAL"), removed(&all, "GPU", 0)]);
    // Two blocks from the host, four from the disk; nothing of them is said to be on the device
    // again, as the load failed to be cached there.
    recorder.request("warm_from_host_and_disk", &prompt, 96, &json!({}));
    recorder.request("four_blocks", &prompt[..65], 64, &json!({}));
    recorder.request("three_of_four_blocks", &prompt[..64], 48, &json!({}));
    recorder.step("host_gone");
    recorder.batch(&[removed(&all[..2], "CPU", 0)]);
    // The first block is nowhere.
    recorder.request("hole_at_the_start", &prompt, 0, &json!({}));
    recorder.batch(&[on_device(&prompt, None, &all, 0, "full_attention")]);
    recorder.finish()
}

/// A group with full attention and one with a window of 32 tokens, which holds a prefix if the two
/// blocks before its end are there (the token after it looks back at 31 others).
fn sliding_window() -> String {
    let mut recorder = Recorder::new("0.32.0", BLOCK, "full attention and a window of 32 tokens");
    let prompt: Vec<u32> = (0..100).collect();
    let all = hashes(1, 6);
    let full = |from: usize| follows(&prompt, &all, from, 0, "full_attention", None);
    let window = |from: usize| follows(&prompt, &all, from, 1, "sliding_window", Some(32));
    recorder.request("cold", &prompt, 0, &json!({}));
    recorder.batch(&[full(0), window(0)]);
    recorder.request("warm", &prompt, 96, &json!({}));
    recorder.step("window_head_evicted");
    recorder.batch(&[removed(&all[..3], "GPU", 1)]);
    recorder.request("warm_without_head", &prompt, 96, &json!({}));
    recorder.step("window_tail_evicted");
    recorder.batch(&[removed(&all[5..], "GPU", 1)]);
    // Blocks 3 and 4 end a prefix of five.
    recorder.request("warm_without_tail", &prompt, 80, &json!({}));
    recorder.batch(&[window(5)]);
    // Block 3 alone ends none.
    recorder.request("four_blocks", &prompt[..70], 0, &json!({}));
    recorder.batch(&[follows(&prompt[..70], &all[..4], 0, 1, "sliding_window", Some(32))]);
    recorder.request("four_blocks_again", &prompt[..70], 64, &json!({}));
    recorder.step("full_hole");
    recorder.batch(&[removed(&all[4..5], "GPU", 0)]);
    recorder.request("warm_with_hole", &prompt, 64, &json!({}));
    recorder.batch(&[full(4)]);
    recorder.request("warm_again", &prompt, 96, &json!({}));
    recorder.finish()
}

/// A group with full attention and one of Mamba layers, which keeps the state after the last full
/// block of a prompt and nothing else: its events carry more tokens than blocks.
fn mamba() -> String {
    let mut recorder = Recorder::new("0.32.0", BLOCK, "full attention and Mamba layers");
    let prompt: Vec<u32> = (0..100).collect();
    let all = hashes(1, 6);
    let state = |prompt: &[u32], hash: BlockHash| {
        let tokens = prompt.len() / BLOCK as usize * BLOCK as usize;
        Event::Stored(Box::new(BlockStored {
            block_hashes: vec![hash],
            token_ids: prompt[..tokens].to_vec(),
            ..stored(1, 1, "mamba")
        }))
    };
    recorder.request("cold", &prompt, 0, &json!({}));
    recorder.batch(&[on_device(&prompt, None, &all, 0, "full_attention"), state(&prompt, all[5])]);
    recorder.request("warm", &prompt, 96, &json!({}));
    // Five blocks in common, but no state after the fifth.
    let other: Vec<u32> = prompt[..80].iter().copied().chain(500..520).collect();
    let sixth = hashes(100, 1);
    recorder.request("common_beginning", &other, 0, &json!({}));
    let tail = on_device(&other[80..], Some(all[4]), &sixth, 0, "full_attention");
    recorder.batch(&[tail, state(&other, sixth[0])]);
    recorder.request("warm_other", &other, 96, &json!({}));
    recorder.step("state_evicted");
    recorder.batch(&[removed(&all[5..], "GPU", 1)]);
    recorder.request("warm_without_state", &prompt, 0, &json!({}));
    recorder.batch(&[state(&prompt, all[5])]);
    recorder.request("warm_again", &prompt, 96, &json!({}));
    recorder.finish()
}

/// Speculative decoding with EAGLE: of the blocks that match, the last is computed anew. Nothing in
/// the events says so; it shows in what is reported, time and again.
fn eagle() -> String {
    let mut recorder = Recorder::new("0.32.0", BLOCK, "EAGLE drops the last matching block");
    for at in 0..12_u32 {
        let length = 90 + 3 * at;
        let prompt: Vec<u32> = (1000 * at..1000 * at + length).collect();
        let all = hashes(100 * u64::from(at) + 1, (length / BLOCK) as usize);
        recorder.request(&format!("cold_{at}"), &prompt, 0, &json!({}));
        recorder.batch(&[on_device(&prompt, None, &all, 0, "full_attention")]);
        let matching = (length - 1) / BLOCK;
        let cached = (matching - 1) * BLOCK;
        recorder.request(&format!("warm_{at}"), &prompt, cached as usize, &json!({}));
    }
    recorder.finish()
}

/// vLLM 0.33 with EAGLE: the token after a block is part of its identity, and the last full block
/// has an identity only when a token follows it.
fn lookahead() -> String {
    let mut recorder = Recorder::new("0.33.0", BLOCK, "the token after a block is hashed with it");
    let prompt: Vec<u32> = (0..100).collect();
    let all = hashes(1, 6);
    let with_next = |prompt: &[u32], from: usize, hashes: &[BlockHash], parent| {
        let size = BLOCK as usize;
        let ends = (1..=hashes.len()).map(|at| (from + at) * size);
        Event::Stored(Box::new(BlockStored {
            block_hashes: hashes.to_vec(),
            parent_block_hash: parent,
            token_ids: prompt[from * size..(from + hashes.len()) * size].to_vec(),
            lookahead_token_ids: Some(ends.map(|end| vec![prompt[end]]).collect()),
            ..stored(hashes.len(), 0, "full_attention")
        }))
    };
    recorder.request("cold", &prompt, 0, &json!({}));
    recorder.batch(&[with_next(&prompt, 0, &all, None)]);
    recorder.request("warm", &prompt, 96, &json!({}));
    // Four blocks of equal tokens; the token after the fourth differs.
    let other: Vec<u32> = prompt[..64].iter().copied().chain(500..536).collect();
    recorder.request("other_after_four", &other, 48, &json!({}));
    recorder.batch(&[with_next(&other, 3, &hashes(100, 3), Some(all[2]))]);
    recorder.request("warm_other", &other, 96, &json!({}));
    // Six full blocks and nothing after: the sixth has no identity.
    recorder.request("six_blocks", &prompt[..96], 80, &json!({}));
    recorder.finish()
}

/// Hashes of a prompt's blocks: any will do, if they differ.
fn hashes(first: u64, count: usize) -> Vec<BlockHash> {
    (first..first + count as u64)
        .map(|n| BlockHash::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect()
}

/// All blocks of `hashes`, which begin at the first of `tokens`.
fn on_device(
    tokens: &[u32],
    parent: Option<BlockHash>,
    hashes: &[BlockHash],
    group: u32,
    kind: &'static str,
) -> Event {
    Event::Stored(Box::new(BlockStored {
        block_hashes: hashes.to_vec(),
        parent_block_hash: parent,
        token_ids: tokens[..hashes.len() * BLOCK as usize].to_vec(),
        ..stored(hashes.len(), group, kind)
    }))
}

/// The blocks of a prompt from one of them on.
fn follows(
    prompt: &[u32],
    hashes: &[BlockHash],
    from: usize,
    group: u32,
    kind: &'static str,
    window: Option<u64>,
) -> Event {
    let end = if group == 0 && from > 0 { from + 1 } else { hashes.len() };
    Event::Stored(Box::new(BlockStored {
        block_hashes: hashes[from..end].to_vec(),
        parent_block_hash: from.checked_sub(1).map(|before| hashes[before]),
        token_ids: prompt[from * BLOCK as usize..end * BLOCK as usize].to_vec(),
        kv_cache_spec_sliding_window: window,
        ..stored(end - from, group, kind)
    }))
}

fn stored(blocks: usize, group: u32, kind: &'static str) -> BlockStored {
    BlockStored {
        // Nothing but tokens was hashed, and vLLM says so for every block.
        extra_keys: Some(vec![Vec::new(); blocks]),
        block_size: BLOCK,
        medium: Some("GPU"),
        group_idx: Some(group),
        kv_cache_spec_kind: Some(kind),
        ..BlockStored::default()
    }
}

/// As offload connectors tell it: no tokens, no parent.
fn elsewhere(hashes: &[BlockHash], medium: &'static str) -> Event {
    Event::Stored(Box::new(BlockStored {
        block_hashes: hashes.to_vec(),
        medium: Some(medium),
        group_idx: Some(0),
        kv_cache_spec_kind: Some("full_attention"),
        ..BlockStored::default()
    }))
}

fn removed(hashes: &[BlockHash], medium: &'static str, group: u32) -> Event {
    Event::Removed(BlockRemoved {
        block_hashes: hashes.to_vec(),
        medium: Some(medium),
        group_idx: Some(group),
        ..BlockRemoved::default()
    })
}
