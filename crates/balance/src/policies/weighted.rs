//! `weighted`: each candidate as often as its weight says, spread evenly over time.
//!
//! nginx's smooth weighted round robin. For each request, of weights `w(e)` with the sum `W`:
//!
//! ```text
//! g(e) += w(e) for all;  take the first e with the largest g(e);  g(e) -= W
//! ```

use std::collections::HashMap;

use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::{Candidate, EndpointId, FleetView};

/// Smooth weighted round robin, as nginx does it: every candidate gains its weight, the one with the
/// most is taken (the first of equals) and pays the sum of all weights. Of weights 5, 1, 1 that makes
/// the order a a b a c a a.
///
/// A weight of 0 counts as 1: to take an endpoint out is a state, not a weight.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    gained: HashMap<EndpointId, i64>,
}

impl Policy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn choose(
        &mut self,
        _: &Query<'_>,
        view: &FleetView<'_>,
        _: &mut Moment<'_>,
    ) -> Option<Choice> {
        let weight = |candidate: &Candidate| i64::from(candidate.weight.max(1));
        let total: i64 = view.candidates.iter().map(weight).sum();
        let mut best: Option<(usize, i64)> = None;
        for (place, candidate) in view.candidates.iter().enumerate() {
            let gained = self.gained.entry(candidate.id).or_insert(0);
            *gained += weight(candidate);
            if best.is_none_or(|(_, most)| *gained > most) {
                best = Some((place, *gained));
            }
        }
        let (index, _) = best?;
        if let Some(gained) = self.gained.get_mut(&view.candidates[index].id) {
            *gained -= total;
        }
        Some(Choice::plain(index, Reason::Turn))
    }

    fn forget(&mut self, endpoint: EndpointId) {
        self.gained.remove(&endpoint);
    }
}
