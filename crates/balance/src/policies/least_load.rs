//! `least_load`: the fewest requests in hand, or the least of a blend of the engine's own figures.
//!
//! The lowest wins, what ties by requests in flight, then queued prompt tokens, then chance:
//!
//! ```text
//! in_flight   requests in flight                       LoxiLB's Tier 2, less its queue read late
//! e4          queue + 10 * kv + latency_ms / 100       ExaMLOps E4 (ADR 0039)
//! adr_0143    queue + 0.5 * running + 10 * kv          ExaMLOps ADR 0143
//! ```

use serde::{Deserialize, Serialize};

use super::smallest_by;
use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::{Candidate, FleetView};

/// What `least_load` compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadScore {
    /// Requests in flight, then queued prompt tokens.
    #[default]
    InFlight,
    /// `ExaMLOps` E4 (ADR 0039): `queue + 10 * kv + latency_ms / 100`. One queued request weighs
    /// as much as a tenth of the cache or 100 ms.
    E4,
    /// `ExaMLOps` ADR 0143: `queue + 0.5 * running + 10 * kv`.
    #[serde(rename = "adr_0143")]
    Adr0143,
}

/// Takes the candidate with the least load; what is left of a tie is broken at random.
///
/// A figure that the engine does not give counts as 0, and requests that this gateway sent count as
/// queued where no queue is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeastLoad {
    /// What is compared.
    pub score: LoadScore,
}

impl LoadScore {
    /// The score of one candidate; lower is better.
    #[must_use]
    pub fn of(self, candidate: &Candidate) -> f64 {
        let load = candidate.load;
        let in_flight = f64::from(load.in_flight);
        let queue = load.waiting.map_or(in_flight, f64::from);
        let kv = load.kv_usage.unwrap_or(0.0);
        match self {
            Self::InFlight => in_flight,
            Self::E4 => queue + 10.0 * kv + candidate.ttft_ms.unwrap_or(0.0) / 100.0,
            Self::Adr0143 => {
                let running = load
                    .waiting
                    .map_or(0.0, |waiting| f64::from(load.in_flight.saturating_sub(waiting)));
                queue + 0.5 * running + 10.0 * kv
            }
        }
    }
}

impl Policy for LeastLoad {
    fn name(&self) -> &'static str {
        "least_load"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(
        &mut self,
        _: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        let scores: Vec<f64> = view.candidates.iter().map(|c| self.score.of(c)).collect();
        let key = |place: usize| (scores[place], view.candidates[place].load.key());
        let index = smallest_by(0..scores.len(), key, moment.rng)?;
        Some(Choice { index, reason: Reason::LeastLoad, scores, detail: "" })
    }
}
