//! `round_robin`: each candidate in turn.

use crate::view::{Choice, FleetView, Policy, PolicyState, Query, Reason};

/// Takes the candidates in turn, whatever they hold.
#[derive(Clone, Copy, Debug)]
pub struct RoundRobin;

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn choose(&self, _: &Query, view: &FleetView<'_>, state: &mut PolicyState) -> Option<Choice> {
        let count = view.candidates.len() as u64;
        let index = usize::try_from(state.turn.checked_rem(count)?).ok()?;
        state.turn = state.turn.wrapping_add(1);
        Some(Choice { index, reason: Reason::Turn, scores: Vec::new() })
    }
}
