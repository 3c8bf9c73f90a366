//! `least_load`: the fewest requests in hand.

use super::smallest_by;
use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::FleetView;

/// Takes the candidate with the fewest requests in flight, then the fewest queued prompt tokens;
/// what is left of a tie is broken at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoad;

impl Policy for LeastLoad {
    fn name(&self) -> &'static str {
        "least_load"
    }

    fn choose(
        &mut self,
        _: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        let load = |place: usize| view.candidates[place].load.key();
        let index = smallest_by(0..view.candidates.len(), load, moment.rng)?;
        let scores = view.candidates.iter().map(|c| f64::from(c.load.in_flight)).collect();
        Some(Choice { index, reason: Reason::LeastLoad, scores })
    }
}
