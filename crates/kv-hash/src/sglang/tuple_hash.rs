//! `CPython`'s `hash()` of tuples of integers, 64-bit builds from 3.8 on.
//!
//! Unlike the hash of strings it depends on no process: SGLang 0.5.1 to 0.5.5 publishes it.

const PRIME_1: u64 = 11_400_714_785_074_694_791;
const PRIME_2: u64 = 14_029_467_366_897_019_727;
const PRIME_5: u64 = 2_870_177_450_012_600_261;

/// The hash of a tuple whose items have these hashes.
pub(super) fn tuple_hash(items: impl ExactSizeIterator<Item = u64>) -> u64 {
    let len = items.len() as u64;
    let mixed = items.fold(PRIME_5, |acc, item| {
        acc.wrapping_add(item.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
    });
    match mixed.wrapping_add(len ^ (PRIME_5 ^ 3_527_539)) {
        // -1 means an error inside CPython.
        u64::MAX => 1_546_275_796,
        hash => hash,
    }
}

/// The hash of a non-negative integer: its remainder by 2^61 - 1.
pub(super) fn int_hash(value: u64) -> u64 {
    value % ((1 << 61) - 1)
}
