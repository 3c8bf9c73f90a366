//! Which prompts a probe sends.

use std::hash::{BuildHasher, RandomState};

use crate::facts::Facts;

/// Adapters that are probed.
const MAX_ADAPTERS: usize = 2;

/// Blocks of the first prompt, where the context is long enough.
const BLOCKS: usize = 3;

/// Tokens after the last full block.
const TAIL: usize = 3;

/// Longest prompt, in tokens: engines may have blocks of thousands.
const MAX_PROMPT: usize = 1 << 15;

/// Token ids to draw from: ones that any vocabulary has, and that rarely mean anything special.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ids {
    /// 10 to 200.
    Small,
    /// 4 to 30, for vocabularies of toys.
    Tiny,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    /// What it is, in words.
    pub(super) what: String,
    pub(super) tokens: Vec<u32>,
    pub(super) adapter: Option<String>,
    pub(super) salt: Option<String>,
}

/// The prompts of one run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    short: Vec<u32>,
    /// The same and at least one block more; as long where there is no room.
    long: Vec<u32>,
    salt: String,
}

impl Plan {
    /// `None` if the context does not hold a block and an answer.
    pub(super) fn new(size: usize, longest: u64, ids: Ids) -> Option<Self> {
        // One token is for the answer.
        let room = usize::try_from(longest).map_or(MAX_PROMPT, |longest| longest.min(MAX_PROMPT));
        let room = room.checked_sub(1)?;
        let blocks = (room.checked_sub(TAIL)? / size).min(BLOCKS);
        if blocks == 0 {
            return None;
        }
        let length = blocks * size + TAIL;
        let long = draw(ids, (length + size + 1).min(room));
        let short = long.get(..length)?.to_vec();
        let salt = format!("kvasir-probe-{:016x}", random());
        Some(Self { short, long, salt })
    }

    /// The prompts in order; with `extras`, those with a salt and with adapters, too.
    pub(super) fn prompt(&self, number: usize, facts: &Facts, extras: bool) -> Option<Prompt> {
        let plain = [
            ("a new prompt", &self.short),
            ("the same again", &self.short),
            ("a longer one", &self.long),
        ];
        if let Some((what, tokens)) = plain.get(number) {
            return Some(Prompt {
                what: (*what).to_owned(),
                tokens: (*tokens).clone(),
                adapter: None,
                salt: None,
            });
        }
        let number = number.checked_sub(plain.len()).filter(|_| extras)?;
        let short = |what: String, adapter: Option<&str>, salted: bool| Prompt {
            what,
            tokens: self.short.clone(),
            adapter: adapter.map(str::to_owned),
            salt: salted.then(|| self.salt.clone()),
        };
        let mut prompts = vec![
            short("with a cache salt".to_owned(), None, true),
            short("with the salt again".to_owned(), None, true),
        ];
        for adapter in facts.card.adapters.iter().take(MAX_ADAPTERS) {
            let name = &adapter.name;
            prompts.push(short(format!("with adapter {name}"), Some(name), false));
            prompts.push(short(format!("with adapter {name} again"), Some(name), false));
            prompts.push(short(format!("with adapter {name} and the salt"), Some(name), true));
        }
        (number < prompts.len()).then(|| prompts.swap_remove(number))
    }
}

/// Random ids: a prompt that begins as no other did.
fn draw(ids: Ids, count: usize) -> Vec<u32> {
    let (first, span) = match ids {
        Ids::Small => (10, 191),
        Ids::Tiny => (4, 27),
    };
    let mut bytes = vec![0; count * 2];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = (0..count).flat_map(|_| random().to_le_bytes().into_iter().take(2)).collect();
    }
    bytes
        .chunks_exact(2)
        .map(|two| first + two.iter().fold(0, |n, b| n << 8 | u32::from(*b)) % span)
        .collect()
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests;
