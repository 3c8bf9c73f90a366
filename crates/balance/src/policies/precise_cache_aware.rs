//! `precise_cache_aware`: the longest resident prefix, whatever the load.

use super::least_load::LeastLoad;
use super::smallest_by;
use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::FleetView;

/// Takes the candidate that holds the most of the prompt; ties go to the least loaded, and with
/// nothing held anywhere it is [`LeastLoad`].
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
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        let held = |place: usize| view.candidates[place].overlap.resident();
        let most = (0..view.candidates.len()).map(held).max()?;
        if most == 0 {
            let choice = LeastLoad.choose(query, view, moment)?;
            return Some(Choice { reason: Reason::NoOverlap, ..choice });
        }
        let holders = (0..view.candidates.len()).filter(|place| held(*place) == most);
        let load = |place: usize| view.candidates[place].load.key();
        let index = smallest_by(holders, load, moment.rng)?;
        let scores = view.candidates.iter().map(|c| -f64::from(c.overlap.resident())).collect();
        Some(Choice { index, reason: Reason::LongestPrefix, scores })
    }
}
