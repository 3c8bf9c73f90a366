//! Hashers for keys of eight bytes: none for keys that are uniform already, a seeded one for
//! numbers that an engine chooses.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// Takes the key as its own hash: for [`kvasir_kv_hash::BlockKey`], which is a digest under a
/// secret.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity(u64);

/// Builds [`Identity`] hashers.
pub(crate) type IdentityState = BuildHasherDefault<Identity>;

impl Hasher for Identity {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
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
    fn a_block_key_is_its_own_hash() {
        let key = kvasir_kv_hash::BlockKey(0x0123_4567_89ab_cdef);
        assert_eq!(IdentityState::default().hash_one(key), key.0);
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
