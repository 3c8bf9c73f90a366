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

use super::{in_flight, load_bound};
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

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn needs(&self) -> Needs {
        Needs { session: true, head: true, images: self.key.images, ..Needs::default() }
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        _: &mut Moment<'_>,
    ) -> Option<Choice> {
        let order = hashed::preferred(self.key.of(query)?, view.candidates);
        let first = *order.first()?;
        let percent = u64::from(self.load_factor_percent.max(100));
        let requests = in_flight(view.candidates) + 1;
        let weight = |candidate: &Candidate| u64::from(candidate.weight.max(1));
        let weights = view.candidates.iter().map(weight).sum();
        let below = |place: &usize| {
            let candidate = &view.candidates[*place];
            let bound = load_bound(percent, requests, weight(candidate), weights);
            u64::from(candidate.load.in_flight) < bound
        };
        let index = order.into_iter().find(below).unwrap_or(first);
        let reason = if index == first { Reason::Hashed } else { Reason::HashedOverflow };
        Some(Choice::plain(index, reason))
    }
}
