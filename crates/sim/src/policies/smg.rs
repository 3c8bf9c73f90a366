//! SMG's `cache_aware` where it has events: the longest overlap, whatever the load, until the
//! counts of requests in flight are too far apart; then the fewest in flight.

use kvasir_balance::{FleetView, Rng};

/// The command line's defaults: out of balance when the spread exceeds both.
const BALANCE_ABS: u32 = 64;
const BALANCE_REL: f64 = 1.5;

pub(super) fn choose(view: &FleetView<'_>, rng: &mut Rng) -> Option<usize> {
    let loads = || view.candidates.iter().map(|candidate| candidate.load.in_flight);
    let (least, most) = (loads().min()?, loads().max()?);
    let imbalanced = most.saturating_sub(least) > BALANCE_ABS
        && f64::from(most) > f64::from(least) * BALANCE_REL;
    let overlaps = || view.candidates.iter().map(|candidate| candidate.overlap.resident());
    let longest = overlaps().max()?;
    let by_load = imbalanced || longest == 0;
    let costs: Vec<f64> = loads()
        .zip(overlaps())
        .map(
            |(load, overlap)| {
                if by_load || overlap == longest { f64::from(load) } else { f64::INFINITY }
            },
        )
        .collect();
    super::cheapest(&costs, rng)
}
