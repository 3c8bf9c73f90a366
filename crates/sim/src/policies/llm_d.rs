//! llm-d's inference scheduler in its precise profile: the highest sum of twice the cached part of
//! the prompt, the free part of the cache, and how short the queue is among the candidates' queues.

use kvasir_balance::{FleetView, Query, Rng};

use crate::gateway::Extra;

const PREFIX_WEIGHT: f64 = 2.0;

pub(super) fn choose(
    query: &Query<'_>,
    view: &FleetView<'_>,
    extras: &[Extra],
    rng: &mut Rng,
) -> Option<usize> {
    let queues = || extras.iter().map(|extra| extra.waiting);
    let (shortest, longest) = (queues().fold(f64::MAX, f64::min), queues().fold(0.0, f64::max));
    let score = |(place, extra): (usize, &Extra)| {
        let resident = view.candidates.get(place).map_or(0, |c| c.overlap.resident());
        let prefix = f64::from(resident) / (query.prompt_tokens.max(1) as f64);
        let queue =
            if longest > shortest { (longest - extra.waiting) / (longest - shortest) } else { 1.0 };
        -(PREFIX_WEIGHT * prefix + queue + (1.0 - extra.kv_usage))
    };
    let costs: Vec<f64> = extras.iter().enumerate().map(score).collect();
    super::cheapest(&costs, rng)
}
