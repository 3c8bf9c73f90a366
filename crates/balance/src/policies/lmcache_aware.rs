//! `lmcache_aware`: room in the endpoints' `LMCache` servers, and load.
//!
//! As rolter's: `1.0 * (1 - occupancy) + 0.25 * least_load`, the highest wins, ties by chance. An
//! endpoint whose server says nothing has the neutral 0.5; where none says anything, load alone
//! decides. Least load is `1 - load / max(1, the largest load)`.

use super::{highest, least_load_scores};
use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::FleetView;

/// Takes the candidate with the most room in its `LMCache` server and the least load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LmcacheAware;

/// The score of an endpoint whose server says nothing.
const NEUTRAL: f64 = 0.5;
const LOAD_WEIGHT: f64 = 0.25;

impl Policy for LmcacheAware {
    fn name(&self) -> &'static str {
        "lmcache_aware"
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
        let all = view.candidates;
        let known = all.iter().any(|candidate| candidate.lmcache_occupancy.is_some());
        let room = all.iter().map(|candidate| {
            candidate.lmcache_occupancy.map_or(NEUTRAL, |used| 1.0 - used.clamp(0.0, 1.0))
        });
        let load = least_load_scores(all);
        let scores: Vec<f64> =
            room.zip(load).map(|(room, load)| room + LOAD_WEIGHT * load).collect();
        let index = highest(&scores, moment.rng)?;
        let reason = if known { Reason::BestScore } else { Reason::LeastLoad };
        let scores = scores.into_iter().map(|score| -score).collect();
        Some(Choice { index, reason, scores, detail: "" })
    }
}
