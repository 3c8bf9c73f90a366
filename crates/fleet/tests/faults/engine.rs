//! An engine's cache as it truly is, and the events it publishes of it.

use std::collections::{HashMap, HashSet};

use kvasir_testkit::publisher::payload::{self, EventSpec, Form};

/// Tokens per block.
pub(crate) const BLOCK: usize = 4;

/// Blocks an engine has room for.
const ROOM: usize = 40;

/// A small, repeatable source of choices.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Whole prompts in a set; no keys, no sharing.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Of blocks ever stored: the prompt up to and with the block. One handle a prompt and life.
    named: HashMap<u64, Vec<u32>>,
    by_prompt: HashMap<Vec<u32>, u64>,
    resident: HashSet<Vec<u32>>,
    life: u64,
    batches: u64,
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self {
            named: HashMap::new(),
            by_prompt: HashMap::new(),
            resident: HashSet::new(),
            life: 1,
            batches: 0,
        }
    }

    /// When its process started.
    pub(crate) fn process_start(&self) -> f64 {
        self.life as f64
    }

    /// Another process in its place: an empty cache.
    pub(crate) fn restart(&mut self) {
        self.life += 1;
        self.resident.clear();
        self.by_prompt.clear();
    }

    /// Every prompt of full blocks it ever held.
    pub(crate) fn prompts(&self) -> impl Iterator<Item = &Vec<u32>> {
        self.named.values()
    }

    /// Tokens of a prompt it holds, from the first on without a hole.
    pub(crate) fn resident(&self, prompt: &[u32]) -> usize {
        let ends = (1..=prompt.len() / BLOCK).map(|count| count * BLOCK);
        ends.take_while(|end| self.resident.contains(&prompt[..*end])).last().unwrap_or(0)
    }

    /// Serves a prompt and evicts what is too much; the batch that says so.
    pub(crate) fn step(&mut self, dice: &mut Dice) -> Vec<u8> {
        let mut events = Vec::new();
        while self.resident.len() > ROOM {
            events.push(self.evict(dice));
        }
        if dice.below(3) == 0 && !self.resident.is_empty() {
            events.push(self.evict(dice));
        }
        let prompt = prompt(dice);
        let held = self.resident(&prompt);
        let (mut parent, mut hashes) = (self.by_prompt.get(&prompt[..held]).copied(), Vec::new());
        if held == 0 {
            parent = None;
        }
        for end in (held + BLOCK..=prompt.len()).step_by(BLOCK) {
            let block = prompt[..end].to_vec();
            // What follows a hole is there already, and is stored once more.
            let next = self.life << 32 | self.named.len() as u64;
            let hash = *self.by_prompt.entry(block.clone()).or_insert(next);
            self.named.insert(hash, block.clone());
            self.resident.insert(block);
            hashes.push(hash);
        }
        if !hashes.is_empty() {
            events.push(payload::stored(&hashes, parent, &prompt[held..]));
        }
        self.batch(&events)
    }

    /// Empties the cache.
    pub(crate) fn clear(&mut self) -> Vec<u8> {
        self.resident.clear();
        self.batch(&[payload::cleared()])
    }

    fn evict(&mut self, dice: &mut Dice) -> EventSpec {
        let mut blocks: Vec<&Vec<u32>> = self.resident.iter().collect();
        blocks.sort();
        let block = blocks[dice.below(blocks.len())].clone();
        self.resident.remove(&block);
        payload::removed(&[self.by_prompt[&block]])
    }

    /// Batches differ by their time, as those of engines do.
    fn batch(&mut self, events: &[EventSpec]) -> Vec<u8> {
        self.batches += 1;
        let form = if self.life.is_multiple_of(2) { Form::Array } else { Form::Map };
        payload::batch(form, self.batches as f64, events)
    }
}

/// One of a few beginnings, and something after it.
fn prompt(dice: &mut Dice) -> Vec<u32> {
    let mut prompt: Vec<u32> = vec![u32::try_from(dice.below(3)).unwrap(); 2 * BLOCK];
    for _ in 0..dice.below(4) {
        let token = u32::try_from(10 + dice.below(4)).unwrap();
        prompt.extend([token; BLOCK]);
    }
    prompt
}
