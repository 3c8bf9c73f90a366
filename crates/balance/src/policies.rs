//! One policy a file.
//!
//! A new one also needs: its name in `kind.rs`, its options and how it is built in `spec.rs`, its type in
//! `lib.rs`, the bounds of its options in `config/src/bounds.rs`, its formula in `docs/policies.md`, and
//! tests in `tests/` (formulas, properties).

mod cache_aware;
mod chwbl;
mod consistent_hash;
mod latency;
mod least_load;
mod lmcache_aware;
mod pipeline;
mod power_of_two;
mod precise_cache_aware;
mod random;
mod round_robin;
mod session;
mod weighted;

pub use self::cache_aware::{CacheAware, CacheAwareOptions, Guard};
pub use self::chwbl::Chwbl;
pub use self::consistent_hash::ConsistentHash;
pub(crate) use self::latency::{
    Estimate, crowd_of, expected_ttft, latency_cost, mean_work, tie_limit,
};
pub use self::latency::{Latency, Ttft};
pub use self::least_load::{LeastLoad, LoadScore};
pub use self::lmcache_aware::LmcacheAware;
pub use self::pipeline::PrecisePipeline;
pub use self::power_of_two::PowerOfTwo;
pub use self::precise_cache_aware::{
    Blend, Capacity, PreciseCacheAware, PreciseOptions, Relief, detail,
};
pub use self::random::Random;
pub use self::round_robin::RoundRobin;
pub use self::session::Session;
pub use self::weighted::Weighted;

use crate::rng::Rng;
use crate::view::Candidate;

/// The places whose key is smallest, one of them picked at random.
pub(crate) fn smallest_by<K: PartialOrd + Copy>(
    places: impl Iterator<Item = usize>,
    key: impl Fn(usize) -> K,
    rng: &mut Rng,
) -> Option<usize> {
    let mut best: Vec<usize> = Vec::new();
    let mut best_key: Option<K> = None;
    for place in places {
        let this = key(place);
        match best_key {
            Some(known) if this > known => {}
            Some(known) if this == known => best.push(place),
            _ => {
                best.clear();
                best.push(place);
                best_key = Some(this);
            }
        }
    }
    let at = if best.len() > 1 { rng.below(best.len()) } else { 0 };
    best.get(at).copied()
}

/// The load at which a candidate is full, `max(1, ceil(percent * load * share / (100 * all)))`:
/// `percent` of what it would have if `load` requests were spread by their shares of `all`.
fn load_bound(percent: u64, load: u64, share: u64, all: u64) -> u64 {
    let parts = u128::from(percent) * u128::from(load) * u128::from(share);
    let bound = parts.div_ceil(100 * u128::from(all.max(1)));
    u64::try_from(bound).unwrap_or(u64::MAX).max(1)
}

/// Requests in flight at all of them.
fn in_flight(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|candidate| u64::from(candidate.load.in_flight)).sum()
}

/// rolter's least-load score: `1 - load / max(1, the largest load)`, 1 for an idle candidate, with
/// the load as requests in flight and waiting.
fn least_load_scores(candidates: &[Candidate]) -> Vec<f64> {
    let load = |c: &Candidate| f64::from(c.load.in_flight) + f64::from(c.load.waiting.unwrap_or(0));
    let most = candidates.iter().map(load).fold(1.0, f64::max);
    candidates.iter().map(|candidate| 1.0 - load(candidate) / most).collect()
}

/// The place with the highest score, one of equals at random.
fn highest(scores: &[f64], rng: &mut Rng) -> Option<usize> {
    smallest_by(0..scores.len(), |place| -scores[place], rng)
}
