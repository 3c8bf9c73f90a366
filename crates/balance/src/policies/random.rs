//! `random`: any candidate, whatever it holds or does.
//!
//! Each of `n` candidates with probability `1 / n`, as rolter's. The chance is the decision's seed,
//! so that a logged choice can be made again.

use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::FleetView;

/// Takes a candidate at random, all with the same chance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
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
        let index = moment.rng.below(view.candidates.len());
        (index < view.candidates.len()).then(|| Choice::plain(index, Reason::Random))
    }
}
