//! `precise_cache_aware`: the longest resident prefix, whatever the load.

use super::least_load::LeastLoad;
use super::smallest_by;
use crate::view::{Choice, FleetView, Policy, PolicyState, Query, Reason};

/// Takes the candidate that holds the most of the prompt; of several the one that will hold the
/// most when it has computed what is pending; ties go to the least loaded, and with nothing held or
/// pending anywhere it is [`LeastLoad`].
///
/// What is resident comes first, as it is certain. The scores count resident tokens only.
///
/// It is blind to load while any candidate holds more than another: one hot prefix keeps one
/// endpoint busy. [`crate::Latency`] is the policy that weighs the two.
#[derive(Clone, Copy, Debug)]
pub struct PreciseCacheAware;

impl Policy for PreciseCacheAware {
    fn name(&self) -> &'static str {
        "precise_cache_aware"
    }

    fn choose(
        &self,
        query: &Query,
        view: &FleetView<'_>,
        state: &mut PolicyState,
    ) -> Option<Choice> {
        let held = |place: usize| {
            let candidate = &view.candidates[place];
            (candidate.overlap.resident(), candidate.pending)
        };
        let most = (0..view.candidates.len()).map(held).max()?;
        if most == (0, 0) {
            let choice = LeastLoad.choose(query, view, state)?;
            return Some(Choice { reason: Reason::NoOverlap, ..choice });
        }
        let holders = (0..view.candidates.len()).filter(|place| held(*place) == most);
        let load = |place: usize| view.candidates[place].load.key();
        let index = smallest_by(holders, load, &mut state.rng)?;
        let scores = view.candidates.iter().map(|c| -f64::from(c.overlap.resident())).collect();
        Some(Choice { index, reason: Reason::LongestPrefix, scores })
    }
}
