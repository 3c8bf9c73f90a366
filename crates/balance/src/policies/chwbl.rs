//! `chwbl`: consistent hashing with bounded loads.
//!
//! A key goes to the first candidate in its order of preference (rendezvous hashing) that is below
//! its bound. With `n` candidates of weights `w`, `T` requests in flight among them and the load
//! factor `f`:
//!
//! ```text
//! bound(e) = max(1, ceil(f * (T + 1) * w(e) / W)),  W the sum of all weights
//! ```
//!
//! Since `f` is at least 1, some candidate is below its bound. The bound holds for known prefixes
//! too: one hot prefix spreads over as many candidates as its load needs. (`LoxiLB` skips it there,
//! and always computes with 1.75, whatever is configured.)

use serde::{Deserialize, Serialize};

use crate::choice::{Choice, Reason};
use crate::hashed::{self, KeyParts};
use crate::policy::{Moment, Policy};
use crate::query::{Needs, Query};
use crate::view::{Candidate, FleetView};

/// Takes the candidate that the request's key prefers among those below their bound. Without a key
/// it has no say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chwbl {
    /// What the key is made of.
    pub key: KeyParts,
    /// The bound as a multiple of the mean load, in percent; below 100 counts as 100.
    pub load_factor_percent: u32,
}

impl Default for Chwbl {
    fn default() -> Self {
        Self { key: KeyParts::default(), load_factor_percent: 125 }
    }
}

impl Policy for Chwbl {
    fn name(&self) -> &'static str {
        "chwbl"
    }

    fn needs(&self) -> Needs {
        Needs { session: true, head: true, ..Needs::default() }
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        _: &mut Moment<'_>,
    ) -> Option<Choice> {
        let order = hashed::preferred(self.key.of(query)?, view.candidates);
        let first = *order.first()?;
        let bounds = Bounds::of(view.candidates, self.load_factor_percent);
        let below = |place: &usize| {
            let candidate = &view.candidates[*place];
            u64::from(candidate.load.in_flight) < bounds.of_one(candidate)
        };
        let index = order.into_iter().find(below).unwrap_or(first);
        let reason = if index == first { Reason::Hashed } else { Reason::HashedOverflow };
        Some(Choice::plain(index, reason))
    }
}

struct Bounds {
    load_factor_percent: u64,
    requests: u64,
    weights: u64,
}

impl Bounds {
    fn of(candidates: &[Candidate], load_factor_percent: u32) -> Self {
        Self {
            load_factor_percent: u64::from(load_factor_percent.max(100)),
            requests: candidates.iter().map(|c| u64::from(c.load.in_flight)).sum(),
            weights: candidates.iter().map(|c| u64::from(c.weight.max(1))).sum(),
        }
    }

    fn of_one(&self, candidate: &Candidate) -> u64 {
        let share = u128::from(self.load_factor_percent)
            * u128::from(self.requests + 1)
            * u128::from(candidate.weight.max(1));
        let bound = share.div_ceil(100 * u128::from(self.weights.max(1)));
        u64::try_from(bound).unwrap_or(u64::MAX).max(1)
    }
}
