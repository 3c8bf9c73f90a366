//! `LMetric` (arXiv 2603.15202): the tokens left to prefill, this request's among them, times the
//! batch it would join. No weights.

use kvasir_balance::{Candidate, FleetView, Query, Rng};

pub(super) fn choose(query: &Query<'_>, view: &FleetView<'_>, rng: &mut Rng) -> Option<usize> {
    let cost = |candidate: &Candidate| {
        let resident = u64::from(candidate.overlap.resident());
        let uncached = query.prompt_tokens.saturating_sub(resident);
        let prefill = uncached + candidate.load.queued_prefill_tokens;
        prefill as f64 * (f64::from(candidate.load.in_flight) + 1.0)
    };
    let costs: Vec<f64> = view.candidates.iter().map(cost).collect();
    super::cheapest(&costs, rng)
}
