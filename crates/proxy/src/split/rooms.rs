//! Numbers under which two engines meet: 63 bits that look random, and are never given twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::request_id;

const BITS: u32 = 63;
const MASK: u64 = (1 << BITS) - 1;
/// Odd, so that multiplying by it modulo a power of two is one to one.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Gives out numbers. A counter from a random start, spread one to one over all 63-bit numbers: no two
/// of one gateway are the same, and those of several gateways meet by chance only.
#[derive(Clone, Debug)]
pub(crate) struct Rooms(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    next: AtomicU64,
    /// Given out and not yet over.
    live: AtomicU64,
}

/// A number, as long as its request goes on.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) number: u64,
    counts: Arc<Counts>,
}

impl Default for Rooms {
    fn default() -> Self {
        let start = (request_id::bits() >> 64) as u64;
        Self(Arc::new(Counts { next: AtomicU64::new(start), live: AtomicU64::new(0) }))
    }
}

impl Rooms {
    /// The next one.
    pub(crate) fn take(&self) -> Room {
        let place = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.live.fetch_add(1, Ordering::Relaxed);
        Room { number: spread(place), counts: Arc::clone(&self.0) }
    }

    /// How many are in use.
    pub(crate) fn live(&self) -> u64 {
        self.0.live.load(Ordering::Relaxed)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.counts.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One to one on 63-bit numbers: each step can be undone.
fn spread(place: u64) -> u64 {
    let place = place.wrapping_mul(SPREAD) & MASK;
    let place = place ^ (place >> 31);
    place.wrapping_mul(SPREAD) & MASK
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_given_twice() {
        let rooms = Rooms::default();
        let clones = [rooms.clone(), rooms.clone()];
        let threads: Vec<_> = clones
            .into_iter()
            .map(|rooms| {
                std::thread::spawn(move || {
                    (0..50_000).map(|_| rooms.take().number).collect::<Vec<_>>()
                })
            })
            .collect();
        let numbers: Vec<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let distinct: HashSet<u64> = numbers.iter().copied().collect();
        assert_eq!((numbers.len(), distinct.len()), (100_000, 100_000));
        assert!(numbers.iter().all(|number| *number <= MASK));
        // Ranks are often chosen by the remainder.
        let even = numbers.iter().filter(|number| *number % 2 == 0).count();
        assert!((40_000..60_000).contains(&even), "{even}");
        assert_eq!(rooms.live(), 0);
        let held = rooms.take();
        assert_eq!(rooms.live(), 1);
        drop(held);
        assert_eq!(rooms.live(), 0);
    }

    #[test]
    fn the_counter_may_run_over() {
        let counts = Counts { next: AtomicU64::new(u64::MAX), live: AtomicU64::new(0) };
        let rooms = Rooms(Arc::new(counts));
        assert_ne!(rooms.take().number, rooms.take().number);
    }
}
