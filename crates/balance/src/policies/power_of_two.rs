//! `power_of_two`: the less loaded of two drawn at random.
//!
//! As rolter's, after Mitzenmacher's *power of two choices*: `argmin` of `(requests in flight, queued
//! prompt tokens)` over two different candidates, every pair with the same chance. It comes close to
//! the least load and does not herd where several gateways see the same stale figures.

use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::FleetView;

/// Draws two different candidates and takes the one with fewer requests in flight, then fewer
/// queued prompt tokens; the first drawn of equals.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerOfTwo;

impl Policy for PowerOfTwo {
    fn name(&self) -> &'static str {
        "power_of_two"
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
        let count = view.candidates.len();
        if count == 0 {
            return None;
        }
        let first = moment.rng.below(count);
        // Any but the first, all with the same chance.
        let second = (first + 1 + moment.rng.below(count - 1)) % count;
        let load = |place: usize| view.candidates[place].load.key();
        let index = if load(second) < load(first) { second } else { first };
        Some(Choice::plain(index, Reason::LessOfTwo))
    }
}
