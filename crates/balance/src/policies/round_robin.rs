//! `round_robin`: each candidate in turn.
//!
//! The candidate at place `t mod n`, of `n` candidates, for the `t`-th request from 0, as rolter's
//! (its default) and `LoxiLB`'s. The turn is one for all requests: where candidates come and go,
//! nobody is made up for.

use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::FleetView;

/// Takes the candidates in turn, whatever they hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    turn: u64,
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(
        &mut self,
        _: &Query<'_>,
        view: &FleetView<'_>,
        _: &mut Moment<'_>,
    ) -> Option<Choice> {
        let count = view.candidates.len() as u64;
        let index = usize::try_from(self.turn.checked_rem(count)?).ok()?;
        self.turn = self.turn.wrapping_add(1);
        Some(Choice::plain(index, Reason::Turn))
    }
}
