//! Dynamo's KV router: blocks left to prefill, this request's uncached ones among them, plus the
//! blocks that the requests in flight use; the lowest sum.

use kvasir_balance::{FleetView, Query, Rng};

use crate::gateway::Extra;

/// Any block size gives the same order.
const BLOCK: f64 = 16.0;

pub(super) fn choose(
    query: &Query<'_>,
    view: &FleetView<'_>,
    extras: &[Extra],
    rng: &mut Rng,
) -> Option<usize> {
    let costs: Vec<f64> = view
        .candidates
        .iter()
        .zip(extras)
        .map(|(candidate, extra)| {
            let all = candidate.load.queued_prefill_tokens + query.prompt_tokens;
            let uncached = all.saturating_sub(u64::from(candidate.overlap.resident()));
            (uncached as f64 + extra.prompt_tokens as f64) / BLOCK
        })
        .collect();
    super::cheapest(&costs, rng)
}
