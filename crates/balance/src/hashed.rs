//! Which endpoints a key belongs to, in order of preference.
//!
//! Rendezvous hashing: every endpoint draws a number from the key and its own id, and the highest
//! wins. That spreads keys evenly over any number of endpoints without virtual nodes, moves only the
//! keys of an endpoint that leaves, is the same in every gateway, and remembers nothing.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::query::Query;
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

/// Which differences besides the prompt make a key another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyParts {
    /// What is hashed.
    pub by: HashKey,
    /// At most so many tokens.
    pub tokens: usize,
    /// At most so many bytes of text.
    pub text: usize,
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
    /// The first 256 tokens or 511 bytes, adapter and salt.
    fn default() -> Self {
        Self {
            by: HashKey::Tokens,
            tokens: 256,
            text: 511,
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
        let mut key = Key::default();
        let prefix = &query.prefix;
        let tokens = &prefix.tokens[..prefix.tokens.len().min(self.tokens)];
        let text = &prefix.text[..prefix.text.len().min(self.text)];
        let orders: [Part<'_>; 3] = match self.by {
            HashKey::Session => {
                [Part::Session(query.session), Part::Tokens(tokens), Part::Text(text)]
            }
            HashKey::Tokens => [Part::Tokens(tokens), Part::Text(text), Part::Session(None)],
            HashKey::Text => [Part::Text(text), Part::Tokens(tokens), Part::Session(None)],
        };
        key.add(orders.iter().find(|part| part.is_there())?);
        if self.adapter {
            key.text(prefix.adapter);
        }
        if self.salt {
            key.text(prefix.salt);
        }
        if self.session {
            key.text(query.session);
        }
        key.flag(self.tools && prefix.tools);
        key.flag(self.images && prefix.images);
        Some(key.0)
    }
}

enum Part<'a> {
    Session(Option<&'a str>),
    Tokens(&'a [u32]),
    Text(&'a [u8]),
}

impl Part<'_> {
    fn is_there(&self) -> bool {
        match self {
            Self::Session(session) => session.is_some(),
            Self::Tokens(tokens) => !tokens.is_empty(),
            Self::Text(text) => !text.is_empty(),
        }
    }
}

/// A running hash: each addition is hashed under what came before.
#[derive(Default)]
struct Key(u64);

impl Key {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 = XxHash3_64::oneshot_with_seed(self.0, bytes);
    }

    fn text(&mut self, text: Option<&str>) {
        self.flag(text.is_some());
        self.bytes(text.unwrap_or_default().as_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.bytes(&[u8::from(flag)]);
    }

    fn add(&mut self, part: &Part<'_>) {
        match part {
            Part::Session(session) => self.text(*session),
            Part::Text(text) => self.bytes(text),
            Part::Tokens(tokens) => {
                let bytes: Vec<u8> = tokens.iter().flat_map(|id| id.to_le_bytes()).collect();
                self.bytes(&bytes);
            }
        }
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
