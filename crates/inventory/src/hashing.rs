//! Mixing of numbers that an engine chooses.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A seeded one-to-one mix of 64-bit numbers: what comes out can stand for what went in.
#[derive(Clone, Debug)]
pub(crate) struct Mixer {
    seeds: [u64; 2],
}

impl Default for Mixer {
    /// Seeds of its own for every endpoint.
    fn default() -> Self {
        let random = RandomState::new();
        Self { seeds: [random.hash_one(1_u64), random.hash_one(2_u64) | 1] }
    }
}

impl Mixer {
    /// Every step can be undone: odd factors and shifted sums lose nothing.
    pub(crate) fn mix(&self, number: u64) -> u64 {
        let mut x = (number ^ self.seeds[0]).wrapping_mul(self.seeds[1]);
        x ^= x >> 32;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^= x >> 32;
        x = x.wrapping_mul(self.seeds[1]);
        x ^ x >> 32
    }

    /// The number that was mixed.
    pub(crate) fn unmix(&self, mixed: u64) -> u64 {
        let seed = inverse(self.seeds[1]);
        // A shift by half of the bits undoes itself.
        let mut x = (mixed ^ mixed >> 32).wrapping_mul(seed);
        x ^= x >> 32;
        x = x.wrapping_mul(inverse(0xd6e8_feb8_6659_fd93));
        x ^= x >> 32;
        x.wrapping_mul(seed) ^ self.seeds[0]
    }
}

/// What an odd factor is undone by: each step doubles the bits that are right.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// A seeded mix of one number: an engine (or whoever drives its prompts) that picks its handles
/// cannot tell which of them fall together.
#[derive(Clone, Debug)]
pub(crate) struct SeededState {
    seeds: [u64; 2],
}

impl Default for SeededState {
    /// Seeds of its own for every map, so that copying one map into another stays linear.
    fn default() -> Self {
        let random = RandomState::new();
        Self { seeds: [random.hash_one(1_u64), random.hash_one(2_u64) | 1] }
    }
}

impl BuildHasher for SeededState {
    type Hasher = Seeded;

    fn build_hasher(&self) -> Seeded {
        Seeded { seeds: self.seeds, state: 0 }
    }
}

/// The hasher of [`SeededState`].
#[derive(Clone, Debug)]
pub(crate) struct Seeded {
    seeds: [u64; 2],
    state: u64,
}

impl Hasher for Seeded {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let once = fold(self.state ^ number ^ self.seeds[0], self.seeds[1]);
        // A second round: after one alone, differences in the top bits still show.
        self.state = fold(once ^ self.seeds[1], self.seeds[0] | 1);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

/// The two halves of the full product, folded.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_was_mixed_is_found_again() {
        let mixer = Mixer::default();
        for number in [0, 1, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef] {
            assert_eq!(mixer.unmix(mixer.mix(number)), number);
        }
    }

    #[test]
    fn mixed_numbers_stay_apart_and_spread() {
        let (a, b) = (Mixer::default(), Mixer::default());
        assert_ne!(a.mix(7), b.mix(7));
        for shift in [0, 16, 32, 48, 54] {
            let mixed: HashSet<u64> = (0..1024_u64).map(|n| a.mix(n << shift)).collect();
            let high: HashSet<u64> = mixed.iter().map(|n| n >> 48).collect();
            let low: HashSet<u64> = mixed.iter().map(|n| n & 0xffff).collect();
            assert_eq!(mixed.len(), 1024);
            assert!(low.len() > 950 && high.len() > 950, "{shift} {} {}", low.len(), high.len());
        }
    }

    #[test]
    fn seeded_hashes_differ_between_maps_and_spread_structured_numbers() {
        let (a, b) = (SeededState::default(), SeededState::default());
        assert_ne!(a.hash_one(7_u64), b.hash_one(7_u64));
        for shift in [0, 16, 32, 48, 54] {
            let low: HashSet<u64> =
                (0..1024_u64).map(|n| a.hash_one(n << shift) & 0xffff).collect();
            let high: HashSet<u64> = (0..1024_u64).map(|n| a.hash_one(n << shift) >> 48).collect();
            // About 1016 of 1024 stay apart among 65536 places.
            assert!(low.len() > 950 && high.len() > 950, "{shift} {} {}", low.len(), high.len());
        }
    }
}
