//! One policy a file.

mod latency;
mod least_load;
mod precise_cache_aware;
mod round_robin;

pub use self::latency::Latency;
pub(crate) use self::latency::latency_cost;
pub use self::least_load::LeastLoad;
pub use self::precise_cache_aware::PreciseCacheAware;
pub use self::round_robin::RoundRobin;

use crate::rng::Rng;

/// The places whose key is smallest, one of them picked at random.
fn smallest_by<K: PartialOrd + Copy>(
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
