//! The decode endpoint with the least load.

use super::{PairSelect, Pairing, Sides};
use crate::policies::{LoadScore, smallest_by};
use crate::rng::Rng;
use crate::view::Candidate;

/// By requests in flight and waiting, or E4's load score; what ties by requests in flight, queued
/// prompt tokens, then chance. Where the prompt is computed at `prefill`, of those that can fetch from there.
pub(crate) fn least_loaded(
    sides: &Sides<'_>,
    pairing: &Pairing,
    prefill: Option<usize>,
    rng: &mut Rng,
) -> Option<usize> {
    let key = |place: usize| {
        let candidate = &sides.candidates[place];
        (load_score(candidate, pairing.select), candidate.load.key())
    };
    match prefill {
        Some(prefill) => smallest_by(sides.fetching_from(prefill).iter().copied(), key, rng),
        None => smallest_by(sides.decode.iter().copied(), key, rng),
    }
}

/// What decode endpoints are compared by.
pub(crate) fn load_score(candidate: &Candidate, select: PairSelect) -> f64 {
    let load = candidate.load;
    match select {
        PairSelect::E4 => LoadScore::E4.of(candidate),
        PairSelect::Cost | PairSelect::LeastLoad => {
            f64::from(load.in_flight) + f64::from(load.waiting.unwrap_or(0))
        }
    }
}
