//! `cache_aware`: where requests with the same beginning were answered before.
//!
//! For engines that publish nothing, and for comparison: which prefixes an endpoint holds is guessed
//! from what it answered. The guess knows no eviction and no restart; engines that publish events are
//! better served by policies that read them.
//!
//! With `m(e)` the share of the prompt that endpoint `e` has likely seen, `n(e)` its requests in
//! flight and the guard's bound `max(1, ceil(f * (T + 1) / N))` over `N` candidates with `T`
//! requests in flight: the largest `m(e)` above the threshold wins among the candidates below the
//! bound, ties by load, then by chance; where there is none, the policy has no say. So a hot prefix
//! gets as many holders as its load needs, and affinity bends under load but does not vanish.
//!
//! [`Guard::Imbalance`] is SMG's rule instead, for those who come from it: nobody's prefix counts
//! while `max - min > abs` and `max > rel * min` requests are in flight.

mod seen;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::seen::Seen;
use super::{in_flight, load_bound, smallest_by};
use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Outcome, Policy};
use crate::query::{Needs, Query};
use crate::view::{Candidate, EndpointId, FleetView};

/// What keeps one hot prefix from one busy endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Guard {
    /// A candidate with more than this percentage of the mean load does not count as a holder.
    Bound {
        /// Percent of the mean, at least 100.
        load_factor_percent: u32,
    },
    /// Prefixes do not count while the load is out of balance (SMG).
    Imbalance {
        /// Most and least requests in flight differ by more than this, and
        absolute: u32,
        /// the most is more than this many times the least.
        relative: f64,
    },
}

/// How [`CacheAware`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheAwareOptions {
    /// The share of the prompt below which a known prefix does not count, 0 to 1.
    pub threshold: f64,
    /// What keeps the load even.
    pub guard: Guard,
    /// Bytes for what was seen; the longest unused goes first.
    pub bytes: usize,
}

impl Default for CacheAwareOptions {
    fn default() -> Self {
        Self { threshold: 0.1, guard: Guard::Bound { load_factor_percent: 150 }, bytes: 64 << 20 }
    }
}

impl CacheAwareOptions {
    /// SMG 1.13's defaults, as its command line has them.
    #[must_use]
    pub fn smg() -> Self {
        Self {
            threshold: 0.3,
            guard: Guard::Imbalance { absolute: 64, relative: 1.5 },
            ..Self::default()
        }
    }
}

/// Takes the candidate that has likely seen the most of the prompt, within a bound of load; has no say
/// where nobody has.
#[derive(Debug)]
pub struct CacheAware {
    options: CacheAwareOptions,
    /// Shared with forks, which only read and are gone before anything is learned.
    seen: Arc<Seen>,
}

impl CacheAware {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(options: CacheAwareOptions) -> Self {
        Self { options, seen: Arc::new(Seen::new(options.bytes)) }
    }

    /// Bytes that what was seen takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.seen.bytes()
    }

    fn holder(
        &self,
        query: &Query<'_>,
        all: &[Candidate],
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        let seen = self.seen.tokens(query, all);
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let share = |place: usize| seen[place] as f64 / query.prompt_tokens.max(1) as f64;
        let likely = (0..all.len()).filter(|place| share(*place) > self.options.threshold);
        let bound = self.bound(all);
        let holders: Vec<usize> =
            likely.filter(|place| u64::from(all[*place].load.in_flight) < bound).collect();
        let most = holders.iter().map(|place| seen[*place]).max()?;
        let best = holders.into_iter().filter(|place| seen[*place] == most);
        let index = smallest_by(best, |place| all[place].load.key(), moment.rng)?;
        let scores = (0..all.len()).map(|place| -share(place)).collect();
        Some(Choice { index, reason: Reason::LikelyPrefix, scores, detail: "" })
    }

    /// Requests in flight from which on a candidate does not count as a holder; 0 for no holders.
    fn bound(&self, all: &[Candidate]) -> u64 {
        match self.options.guard {
            Guard::Bound { load_factor_percent } => {
                let percent = u64::from(load_factor_percent.max(100));
                load_bound(percent, in_flight(all) + 1, 1, all.len() as u64)
            }
            Guard::Imbalance { absolute, relative } => {
                let loads = || all.iter().map(|candidate| candidate.load.in_flight);
                let (most, least) = (loads().max().unwrap_or(0), loads().min().unwrap_or(0));
                let apart = most - least > absolute;
                let imbalanced = apart && f64::from(most) > relative * f64::from(least);
                if imbalanced { 0 } else { u64::MAX }
            }
        }
    }
}

impl Default for CacheAware {
    fn default() -> Self {
        Self::new(CacheAwareOptions::default())
    }
}

impl Policy for CacheAware {
    fn name(&self) -> &'static str {
        "cache_aware"
    }

    fn needs(&self) -> Needs {
        Needs { keys: true, ..Needs::default() }
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        self.holder(query, view.candidates, moment)
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(Self { options: self.options, seen: Arc::clone(&self.seen) })
    }

    fn observe(&mut self, outcome: &Outcome<'_>) {
        if outcome.answered
            && let Some(seen) = Arc::get_mut(&mut self.seen)
        {
            seen.learn(outcome.query, outcome.endpoint);
        }
    }

    fn forget(&mut self, endpoint: EndpointId) {
        if let Some(seen) = Arc::get_mut(&mut self.seen) {
            seen.forget(endpoint);
        }
    }
}
