//! The work of the benchmarks: which endpoint stores which blocks, and what is asked.
//!
//! `KVASIR_TRACE` names a trace in the Mooncake format (one request a line; `hash_ids` are blocks
//! of 512 tokens, `input_length` the prompt's tokens); without it, conversations are made up.
//! Requests go round to the endpoints; an endpoint stores what it has not stored before, as an
//! engine with a large cache does.

use std::collections::{HashMap, HashSet};

/// One prompt, as the content of its blocks: equal numbers are equal blocks.
pub type Prompt = Vec<u64>;

/// Blocks that an endpoint stores in one event.
#[derive(Clone, Debug)]
pub struct Store {
    /// Which endpoint.
    pub endpoint: usize,
    /// Which prompt, and which of its blocks.
    pub prompt: usize,
    /// The first of the blocks.
    pub start: usize,
    /// Behind the last of them.
    pub end: usize,
}

/// A fleet's history.
#[derive(Debug)]
pub struct Workload {
    /// The prompts, in the order of their arrival.
    pub prompts: Vec<Prompt>,
    /// For each prompt the chained identity of each of its blocks.
    pub chains: Vec<Vec<u64>>,
    /// What is stored.
    pub stores: Vec<Store>,
    /// Stored (block, endpoint) pairs.
    pub pairs: usize,
}

/// A mix of two numbers.
#[must_use]
pub fn mix(a: u64, b: u64) -> u64 {
    let mut x = (a ^ 0x9e37_79b9_7f4a_7c15).wrapping_add(b).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 29;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 32
}

impl Workload {
    /// The trace's, or made up; `per_event` blocks are told in one event at most.
    #[must_use]
    pub fn new(block_size: usize, endpoints: usize, per_event: usize) -> Self {
        let prompts = match std::env::var("KVASIR_TRACE") {
            Ok(path) => read_trace(&path, block_size),
            Err(_) => made_up(block_size),
        };
        let chains: Vec<Vec<u64>> = prompts.iter().map(|prompt| chain(prompt)).collect();
        let mut stores = Vec::new();
        let mut known: Vec<HashSet<u64>> = vec![HashSet::new(); endpoints];
        for (prompt, chain) in chains.iter().enumerate() {
            let endpoint = prompt % endpoints;
            let new = chain.iter().position(|block| !known[endpoint].contains(block));
            let Some(first) = new else { continue };
            known[endpoint].extend(&chain[first..]);
            for start in (first..chain.len()).step_by(per_event) {
                let end = chain.len().min(start + per_event);
                stores.push(Store { endpoint, prompt, start, end });
            }
        }
        let pairs = known.iter().map(HashSet::len).sum();
        Self { prompts, chains, stores, pairs }
    }

    /// The tokens of some blocks of a prompt.
    pub fn tokens(&self, prompt: usize, blocks: std::ops::Range<usize>, size: usize) -> Vec<u32> {
        let blocks = &self.prompts[prompt][blocks];
        blocks.iter().flat_map(|block| (0..size).map(|at| mix(*block, at as u64) as u32)).collect()
    }
}

fn chain(prompt: &[u64]) -> Vec<u64> {
    let mut parent = 1;
    let next = |block: &u64| {
        parent = mix(parent, *block);
        parent
    };
    prompt.iter().map(next).collect()
}

fn read_trace(path: &str, block_size: usize) -> Vec<Prompt> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(|line| prompt_of(line, block_size)).collect()
}

/// The fields are numbers and one list of numbers: found by their names.
fn prompt_of(line: &str, block_size: usize) -> Prompt {
    let after = |name: &str| {
        let at = line.find(name).unwrap_or_else(|| panic!("no {name} in {line}"));
        line[at + name.len()..].trim_start_matches(['"', ':', ' '])
    };
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u64>().unwrap_or_else(|e| panic!("{e} in {line}"))
    };
    let length = digits(after("\"input_length\"")) as usize;
    let list = after("\"hash_ids\"").trim_start_matches('[');
    let list = &list[..list.find(']').unwrap_or(list.len())];
    let ids = list.split(',').map(|id| digits(id.trim()));
    let blocks = ids.flat_map(|id| (0..512 / block_size as u64).map(move |part| mix(id, part)));
    blocks.take(length / block_size).collect()
}

/// Conversations: 16 system prompts of 2,048 tokens, six turns of some 1,500 tokens each.
fn made_up(block_size: usize) -> Vec<Prompt> {
    let blocks = |seed: u64, tokens: usize| {
        (0..(tokens / block_size) as u64).map(move |at| mix(seed, at)).collect::<Vec<u64>>()
    };
    let mut conversations: HashMap<u64, Prompt> = HashMap::new();
    let mut prompts = Vec::new();
    for round in 0..6_u64 {
        for user in 0..600_u64 {
            let system = || blocks(user % 16, 2_048);
            let prompt = conversations.entry(user).or_insert_with(system);
            let tokens = 700 + (mix(user, round) % 1_600) as usize;
            prompt.extend(blocks(1_000 + user * 100 + round, tokens));
            prompts.push(prompt.clone());
        }
    }
    prompts
}
