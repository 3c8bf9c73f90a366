//! Requests to simulate: when they come, what their prompts are made of, how long their answers are.
//!
//! A prompt is a list of [`Segment`]s. Equal segments are equal tokens, so two prompts share a
//! prefix exactly as far as their segments do; the tokens themselves are made when they are needed.

mod answers;
mod synthetic;
mod trace;

use std::fmt;

pub use self::synthetic::{Synthetic, UnknownWorkload};
pub use self::trace::{TraceError, TraceProblem};

pub(crate) use self::answers::Answers;

/// Most requests of a workload.
pub(crate) const MAX_REQUESTS: usize = 4_000_000;
/// Tokens are below this number.
const VOCABULARY_BITS: u32 = 15;

/// Tokens that come one after another, in one prompt or in many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Which tokens: segments of one number start alike.
    pub id: u64,
    /// How many of them.
    pub tokens: u32,
}

/// When a request comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Release {
    /// So many seconds after the beginning.
    At(f64),
    /// A while after an earlier request was answered, or failed.
    After {
        /// That request's place in the workload.
        request: usize,
        /// Seconds between.
        pause: f64,
    },
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// When it comes, before time is scaled.
    pub release: Release,
    /// Its prompt.
    pub prompt: Vec<Segment>,
    /// Tokens of the answer, at least one.
    pub output_tokens: u32,
}

/// Requests in the order they are numbered; none waits for a later one.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it is called in reports.
    pub name: String,
    /// Tokens per block up to which it says what prompts share: what engines are best given as
    /// their block size.
    pub block_size: usize,
    /// The requests.
    pub requests: Vec<Asked>,
}

impl Segment {
    /// The answer to a request, as a part of later prompts.
    #[must_use]
    pub fn answer_to(request: usize, tokens: u32) -> Self {
        Self { id: answer_id(request as u64), tokens }
    }

    /// The request whose answer it is.
    pub(crate) fn answered(self) -> Option<usize> {
        (self.id & ANSWER != 0).then(|| usize::try_from(self.id & !ANSWER).unwrap_or(usize::MAX))
    }

    /// Appends its tokens.
    pub(crate) fn append(self, tokens: &mut Vec<u32>) {
        let end = tokens.len() + self.tokens as usize;
        for index in 0..u64::from(self.tokens.div_ceil(4)) {
            let noise = noise(self.id, index);
            tokens.extend((0..4).map(|lane| token_of(noise, lane)));
        }
        tokens.truncate(end);
    }

    /// One of its tokens.
    pub(crate) fn token(id: u64, index: u64) -> u32 {
        token_of(noise(id, index / 4), (index % 4) as u32)
    }
}

/// Answers have a range of numbers of their own.
const ANSWER: u64 = 1 << 63;

pub(crate) fn answer_id(request: u64) -> u64 {
    ANSWER | request
}

fn noise(id: u64, index: u64) -> u64 {
    mix(mix(id) ^ index)
}

/// One token of four that one number is good for.
fn token_of(noise: u64, lane: u32) -> u32 {
    (noise >> (16 * lane)) as u32 & ((1 << VOCABULARY_BITS) - 1)
}

/// The finaliser of `SplitMix64`.
fn mix(value: u64) -> u64 {
    let x = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Asked {
    /// Length of its prompt.
    #[must_use]
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt.iter().map(|segment| u64::from(segment.tokens)).sum()
    }

    /// The prompt itself.
    #[must_use]
    pub fn tokens(&self) -> Vec<u32> {
        let length = usize::try_from(self.prompt_tokens()).unwrap_or(0);
        let mut tokens = Vec::with_capacity(length + 4);
        self.prompt.iter().for_each(|segment| segment.append(&mut tokens));
        tokens
    }
}

impl Workload {
    /// Seconds from the first to the last request that comes by itself, before time is scaled.
    #[must_use]
    pub(crate) fn span(&self) -> f64 {
        let times = self.requests.iter().filter_map(|asked| match asked.release {
            Release::At(seconds) => Some(seconds),
            Release::After { .. } => None,
        });
        let (first, last) = times.fold((f64::MAX, f64::MIN), |(a, b), t| (a.min(t), b.max(t)));
        (last - first).max(0.0)
    }

    /// Keeps the first `count` requests. Those that wait for others wait for earlier ones, so
    /// nothing waits for a request that is gone.
    pub fn truncate(&mut self, count: usize) {
        self.requests.truncate(count);
    }

    /// Tokens of the longest prompt and answer together.
    #[must_use]
    pub(crate) fn longest(&self) -> u64 {
        let total = |asked: &Asked| asked.prompt_tokens() + u64::from(asked.output_tokens);
        self.requests.iter().map(total).max().unwrap_or(0)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} requests in {:.0} s)", self.name, self.requests.len(), self.span())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_segments_are_equal_tokens_and_others_differ() {
        let tokens = |prompt: &[(u64, u32)]| {
            let prompt = prompt.iter().map(|&(id, tokens)| Segment { id, tokens }).collect();
            Asked { release: Release::At(0.0), prompt, output_tokens: 1 }.tokens()
        };
        let long = tokens(&[(7, 512), (8, 3)]);
        assert_eq!(long.len(), 515);
        assert_eq!(long[..500], tokens(&[(7, 500)])[..]);
        assert_ne!(long[..512], tokens(&[(9, 512)])[..]);
        assert_eq!(long[514], Segment::token(8, 2));
        assert_eq!(long[511], Segment::token(7, 511));
        assert!(long.iter().all(|token| *token < 1 << VOCABULARY_BITS));
    }
}
