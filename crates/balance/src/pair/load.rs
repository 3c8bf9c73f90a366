//! The decode endpoint with the least load.

use super::{PairSelect, Pairing, Sides};
use crate::policies::{LoadScore, smallest_by};
use crate::rng::Rng;

/// By requests in flight and waiting, or E4's load score; what ties by requests in flight, queued
/// prompt tokens, then chance.
pub(crate) fn least_loaded(sides: &Sides<'_>, pairing: &Pairing, rng: &mut Rng) -> Option<usize> {
    let key = |place: usize| {
        let candidate = &sides.candidates[place];
        let load = candidate.load;
        let score = match pairing.select {
            PairSelect::E4 => LoadScore::E4.of(candidate),
            PairSelect::Cost | PairSelect::LeastLoad => {
                f64::from(load.in_flight) + f64::from(load.waiting.unwrap_or(0))
            }
        };
        (score, load.key())
    };
    smallest_by(sides.decode.iter().copied(), key, rng)
}
