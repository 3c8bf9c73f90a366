//! Continuous parity: what the gateway predicts of an engine's cache, held against what the engine
//! says, and what follows from a difference.
//!
//! Three oracles, all off the way of a request's bytes:
//!
//! 1. [`hits`]: `usage`'s `cached_tokens` of an answer, per endpoint. Too much predicted in 8 of the
//!    last 20 comparable requests makes the endpoint `suspect(hit_mismatch)`: no credit, until 13 of
//!    at most 20 further ones agree. Predictions go on meanwhile as if it were credited.
//! 2. [`counters`]: the engine's own counters of looked up and hit tokens, where answers say nothing
//!    of cached tokens.
//! 3. [`tokens`]: `usage`'s `prompt_tokens` against our count, per model and API: a property of the
//!    template and the tokenizer, never of an endpoint.
//!
//! Token ids themselves are compared with the engines' `/tokenize` in [`crate::token_oracle`].

pub(crate) mod counters;
pub(crate) mod families;
pub(crate) mod hits;
pub(crate) mod report;
pub(crate) mod tokens;
pub(crate) mod window;

use kvasir_inventory::{Overlap, Tier};

/// What a picture of a cache rests on. Two equal stamps: nothing happened in between that could
/// have made what was believed at the first wrong at the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Grows when everything known of the publisher is forgotten: a new life, or one in doubt.
    pub(crate) life: u64,
    /// Grows when all blocks are forgotten: that, or the engine emptied its cache.
    pub(crate) picture: u64,
    /// Grows when the stream stops being sound: what it had announced may have been lost.
    pub(crate) breaks: u64,
}

impl Stamp {
    /// The later of two, whichever was read first.
    pub(crate) fn later(self, other: Self) -> Self {
        Self {
            life: self.life.max(other.life),
            picture: self.picture.max(other.picture),
            breaks: self.breaks.max(other.breaks),
        }
    }

    /// Of several streams together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            life: self.life.wrapping_add(other.life),
            picture: self.picture.wrapping_add(other.picture),
            breaks: self.breaks.wrapping_add(other.breaks),
        }
    }
}

/// How many tokens of one prompt an endpoint was expected to hit when it was chosen, by a stream
/// that was sound then. It is made as if the endpoint were credited, also while it is not for having
/// predicted too much: that is how the suspicion can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Tokens expected to be hit.
    pub(crate) tokens: u32,
    /// Tokens held without a hole, before what the engine is known to drop ([`hits`]).
    pub(crate) held: u32,
    /// Tokens per block.
    pub(crate) block: u32,
    /// Tokens of the prompt.
    pub(crate) prompt: u64,
    /// Whether the engine needs no slower tier for it: engines count what they load from elsewhere
    /// as cached, or not, or elsewhere.
    pub(crate) on_device: bool,
    pub(crate) stamp: Stamp,
    /// Blocks that the engine had removed by then, ever.
    pub(crate) removed: u64,
}

/// Why an answer's cached tokens are not held against the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjudged {
    /// The prompt's tokens are not known exactly, there are several prompts, or the engine hits less
    /// of such a request than it holds (`prompt_logprobs`, pooling).
    Prompt,
    /// The event stream is not sound.
    Trust,
    /// The request did not end with a whole answer, or another attempt came before.
    Attempt,
    /// The answer does not say how much was cached.
    NoReport,
    /// The engine counts the prompt's tokens otherwise: it is another prompt than the one predicted.
    TokenCount,
    /// Blocks outside the device were expected to help.
    Tier,
    /// Blocks were forgotten, or the stream broke, between the choice and the judgement; or less was
    /// hit than predicted, and the engine removed that many blocks meanwhile.
    Moved,
    /// There are more answers than are judged.
    Surplus,
    /// It is a decode leg: the prompt was computed elsewhere, and is judged there.
    Split,
}

impl Unjudged {
    /// Every reason.
    pub(crate) const ALL: [Self; 9] = [
        Self::Prompt,
        Self::Trust,
        Self::Attempt,
        Self::NoReport,
        Self::TokenCount,
        Self::Tier,
        Self::Moved,
        Self::Surplus,
        Self::Split,
    ];

    /// The word used in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Trust => "trust",
            Self::Attempt => "attempt",
            Self::NoReport => "no_report",
            Self::TokenCount => "token_count",
            Self::Tier => "tier",
            Self::Moved => "moved",
            Self::Surplus => "surplus",
            Self::Split => "split",
        }
    }
}

/// What is left of an overlap without its last `tokens`, of which nobody knows the tier: they are
/// taken from the fastest.
pub(crate) fn without_last(overlap: Overlap, tokens: u32) -> Overlap {
    let mut left = Overlap::default();
    let mut drop = tokens;
    for tier in Tier::ALL {
        let held = overlap.in_tier(tier);
        let dropped = held.min(drop);
        drop -= dropped;
        left.add(tier, held - dropped);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_dropped_once_and_never_below_nothing() {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, 16);
        overlap.add(Tier::Host, 32);
        for (tokens, left) in [(0, [16, 32]), (16, [0, 32]), (32, [0, 16]), (64, [0, 0])] {
            let found = without_last(overlap, tokens);
            assert_eq!([found.in_tier(Tier::Device), found.in_tier(Tier::Host)], left, "{tokens}");
        }
    }
}
