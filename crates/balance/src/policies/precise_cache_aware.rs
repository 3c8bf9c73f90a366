//! `precise_cache_aware`: the longest resident prefix, blended with load as `LoxiLB` does.
//!
//! Let `i` range over the candidates that hold some of the prompt: `o` their overlap in blocks, `L`
//! their requests in flight, `C` their capacity (blocks times weight, at least 1; 1 for all where
//! it is not known of all). All of it is integer arithmetic:
//!
//! | blend | choice |
//! |---|---|
//! | `off` | the largest `o`; ties by load, then by chance |
//! | `hard` | the largest `o` among those with `L < cap`; ties by `L`, then place. Where all are at their cap the least `L`, then the largest `o` |
//! | `soft` | the least `(o_max - o) * 1000 + λ * L / C`; ties by `o`, `L`, place |
//! | `adaptive` | `hard` with `f = clamp(175 + 125 * (L - 16) / 10, 175, 300)`, `L` the sum |
//! | `adaptive_soft` | `soft` with `λ = clamp(50000 + 5000 * (L - 16), 50000, 100000)` |
//!
//! with `cap(i) = max(1, ceil(f * ΣL * C(i) / (100 * ΣC)))`. Afterwards, in this order:
//!
//! * *shallow*: the largest `o` is below `max(1, min(blocks of the prompt, ceil(M / block)))`: the
//!   policy has no say;
//! * *spill relief*: a holder at its cap among all candidates whose cache is known gives way to the
//!   least loaded of those below theirs, whatever it holds; without that, a prefix held by one
//!   endpoint alone can never spill;
//! * *cold seed*: every `n`-th hit goes to the first candidate that holds fewer blocks than
//!   `cold_seed_blocks`.
//!
//! Overlaps are contiguous from the first token. (`LoxiLB` counts any block of the prompt, and breaks
//! ties of `off` by chance.)

mod blend;
mod options;

pub use self::options::{Blend, Capacity, PreciseOptions, Relief};

use self::blend::Holders;
use super::smallest_by;
use crate::choice::{Choice, Reason};
use crate::miss::{Blind, Miss};
use crate::policy::{Moment, Policy};
use crate::query::{Needs, Query};
use crate::view::{Candidate, FleetView};

/// Takes the candidate that holds the most of the prompt, blended with load. Without a holder it has
/// no say; [`Policy::miss`] says why.
#[derive(Clone, Debug, Default)]
pub struct PreciseCacheAware {
    options: PreciseOptions,
    hits: u64,
    /// Requests in a row that found nobody holding anything although caches are known.
    empty_handed: u32,
    /// Whether caches were believed, and not empty, the last time nobody among the candidates held
    /// anything.
    caches_full: bool,
    /// Why it had no say the last time.
    miss: Option<Miss>,
}

/// What was special about a choice, in [`Choice::detail`].
pub mod detail {
    /// Load overrode the longest prefix.
    pub const SPILL: &str = "spill";
    /// The holder was at its cap and gave way to one that may hold nothing.
    pub const RELIEF: &str = "spill_relief";
    /// An endpoint with an empty cache got its turn.
    pub const COLD_SEED: &str = "cold_seed";
}

impl PreciseCacheAware {
    /// With these options, and nothing remembered.
    #[must_use]
    pub fn new(options: PreciseOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Who holds some of the prompt, and the most of it that anyone holds, in blocks; or why this
    /// policy has no say.
    fn holders(&mut self, query: &Query<'_>, all: &[Candidate]) -> Result<(Holders, u64), Miss> {
        if let Some(blind) = query.blind.filter(|blind| *blind != Blind::Hashes) {
            return Err(Miss::Blind(blind));
        }
        let block = u64::from(query.prefix.tokens_per_key.max(1));
        let holders = Holders::of(all, block, self.options.capacity);
        let most = holders.most();
        // What is pending counts without an event.
        if most.is_none() && !all.iter().any(|candidate| candidate.trust.credits()) {
            return Err(Miss::NotReady);
        }
        if let Some(blind) = query.blind {
            return Err(Miss::Blind(blind));
        }
        let blocks = query.prompt_tokens / block;
        if blocks == 0 {
            return Err(Miss::NoFullBlock);
        }
        let Some(most) = most else {
            let holds = |c: &Candidate| c.resident_blocks.is_some_and(|blocks| blocks > 0);
            self.caches_full = all.iter().any(|c| c.trust.credits() && holds(c));
            return Err(Miss::NoHolder);
        };
        self.empty_handed = 0;
        let least = u64::from(self.options.min_match_tokens).div_ceil(block).min(blocks).max(1);
        if most < least { Err(Miss::Shallow) } else { Ok((holders, most)) }
    }

    /// The place of an endpoint to be warmed instead, when its turn has come.
    fn cold_seed(&mut self, candidates: &[Candidate]) -> Option<usize> {
        self.hits += 1;
        let every = u64::from(self.options.cold_seed_every);
        if every == 0 || !self.hits.is_multiple_of(every) {
            return None;
        }
        let cold = self.options.cold_seed_blocks.max(1);
        candidates.iter().position(|c| c.resident_blocks.is_some_and(|blocks| blocks < cold))
    }
}

impl Policy for PreciseCacheAware {
    fn name(&self) -> &'static str {
        "precise_cache_aware"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn needs(&self) -> Needs {
        Needs { blocks: true, ..Needs::default() }
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        let all = view.candidates;
        let found = self.holders(query, all);
        self.miss = found.as_ref().err().copied();
        let (holders, most) = found.ok()?;
        let total = holders.total_load();
        let (mut index, mut detail, scores) = match self.options.blend.at(total, &self.options) {
            blend::At::Off => {
                let best = holders.places().filter(|place| holders.overlap(*place) == most);
                let index = smallest_by(best, |place| all[place].load.key(), moment.rng)?;
                (index, "", holders.overlap_scores())
            }
            blend::At::Hard { percent } => {
                let (index, spilled) = holders.hard(percent)?;
                (index, if spilled { detail::SPILL } else { "" }, holders.overlap_scores())
            }
            blend::At::Soft { lambda } => {
                let index = holders.soft(lambda)?;
                let spilled = holders.overlap(index) < most;
                (index, if spilled { detail::SPILL } else { "" }, holders.soft_scores(lambda))
            }
        };
        if self.options.relieves() && detail.is_empty() {
            let percent = self.options.blend.cap_percent(total, &self.options);
            if let Some(other) = blend::relief(all, index, percent, self.options.capacity) {
                (index, detail) = (other, detail::RELIEF);
            }
        }
        if let Some(cold) = self.cold_seed(all) {
            (index, detail) = (cold, detail::COLD_SEED);
        }
        Some(Choice { index, reason: Reason::LongestPrefix, scores, detail })
    }

    fn miss(&self) -> Option<Miss> {
        self.miss
    }

    /// [`PreciseOptions::zero_hit_requests`] of them in a row, although caches that are believed
    /// are known not to be empty, are a sign that prompts and events are keyed differently: told
    /// once, then counted anew. Prompts that could not be looked up are no such sign.
    fn nobody_holds(&mut self) -> Miss {
        let most = self.options.zero_hit_requests;
        if most == 0 || !self.caches_full {
            return Miss::NoHolder;
        }
        self.empty_handed += 1;
        if self.empty_handed < most {
            return Miss::NoHolder;
        }
        self.empty_handed = 0;
        Miss::ZeroHits
    }
}
