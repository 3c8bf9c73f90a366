//! Which endpoints a key belongs to, in order of preference.
//!
//! Rendezvous hashing: every endpoint draws a number from the key and its own id, and the lowest
//! wins: `-ln(u) / weight`, with `u` in (0, 1] from the hash of both. That spreads keys evenly over any number of endpoints without virtual nodes, moves only the
//! keys of an endpoint that leaves, is the same in every gateway, and remembers nothing.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::query::{Query, digest};
use crate::view::Candidate;

/// What a request is hashed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HashKey {
    /// The conversation; without one the first tokens, without those the first text.
    #[default]
    Session,
    /// The first tokens; where they are not known, the first text.
    Tokens,
    /// The first text; without it the first tokens.
    Text,
}

/// What a key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyParts {
    /// What is hashed.
    pub by: HashKey,
    /// The adapter counts.
    pub adapter: bool,
    /// The cache salt counts.
    pub salt: bool,
    /// Whether tools are declared counts.
    pub tools: bool,
    /// Whether there are images counts.
    pub images: bool,
    /// The conversation counts beside the prompt.
    pub session: bool,
}

impl Default for KeyParts {
    /// The first tokens, adapter and salt.
    fn default() -> Self {
        Self {
            by: HashKey::Tokens,
            adapter: true,
            salt: true,
            tools: false,
            images: false,
            session: false,
        }
    }
}

impl KeyParts {
    /// The key of a request; `None` where nothing is known of what it is hashed by.
    #[must_use]
    pub fn of(&self, query: &Query<'_>) -> Option<u64> {
        let prefix = &query.prefix;
        let (tokens, text) = (prefix.token_head, prefix.text_head);
        let main = match self.by {
            HashKey::Session => query.session.or(tokens).or(text),
            HashKey::Tokens => tokens.or(text),
            HashKey::Text => text.or(tokens),
        };
        let adapter = prefix.adapter.filter(|_| self.adapter);
        let parts = [
            Some(main?),
            adapter.map(|name| digest(name.as_bytes())),
            prefix.salt.filter(|_| self.salt),
            query.session.filter(|_| self.session),
            (self.tools && prefix.tools).then_some(0),
            (self.images && prefix.images).then_some(0),
        ];
        // Each part is told from the others by its place.
        let key = parts.iter().fold(0, |key, part| {
            let mut bytes = [0; 9];
            bytes[0] = u8::from(part.is_some());
            bytes[1..].copy_from_slice(&part.unwrap_or(0).to_le_bytes());
            XxHash3_64::oneshot_with_seed(key, &bytes)
        });
        Some(key)
    }
}

/// The places of `candidates` a key prefers, the most preferred first.
///
/// A candidate is first for a share of all keys that is proportional to its weight (0 counts as 1).
pub(crate) fn preferred(key: u64, candidates: &[Candidate]) -> Vec<usize> {
    let mut draws: Vec<(f64, usize)> = candidates
        .iter()
        .enumerate()
        .map(|(place, candidate)| (draw(key, candidate), place))
        .collect();
    draws.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    draws.into_iter().map(|(_, place)| place).collect()
}

/// The place a key prefers.
pub(crate) fn first(key: u64, candidates: &[Candidate]) -> Option<usize> {
    let draws = candidates.iter().map(|candidate| draw(key, candidate)).enumerate();
    draws.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place)
}

/// The lower the better: an exponentially distributed time with the weight as its rate.
#[expect(clippy::cast_precision_loss, reason = "53 bits of chance are enough")]
fn draw(key: u64, candidate: &Candidate) -> f64 {
    let bits = XxHash3_64::oneshot_with_seed(key, &candidate.id.0.to_le_bytes()) >> 11;
    let uniform = (bits as f64 + 1.0) / (1_u64 << 53) as f64;
    -uniform.ln() / f64::from(candidate.weight.max(1))
}
