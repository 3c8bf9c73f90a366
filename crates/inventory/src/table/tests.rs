use std::collections::BTreeMap;

use super::*;
use crate::budget::Budget;

fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 0x1234_5678_9abc_def1_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

#[test]
fn a_table_is_a_map() {
    let budget = Budget::new(usize::MAX);
    let bytes = &mut budget.reserve();
    let mut next = numbers();
    for spread in [40, 4_000] {
        let (mut table, mut map) = (Table::default(), BTreeMap::new());
        for step in 0..60_000 {
            // Uniform keys, and a few that lie at the very ends.
            let key = match next(20) {
                0 => u64::MAX - next(30),
                1 => next(30),
                _ => next(spread).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            };
            if next(100) < 55 - (step / 20_000) * 10 {
                let value = next(1 << 40) + 1;
                assert_eq!(table.insert(key, value, bytes), Ok(map.insert(key, value)));
            } else {
                assert_eq!(table.remove(key), map.remove(&key));
            }
            if next(500) == 0 {
                table.shrink(bytes);
            }
            assert_eq!((table.len(), table.get(key)), (map.len(), map.get(&key).copied()));
        }
        assert!(table.iter().eq(map.iter().map(|(key, value)| (*key, *value))));
        assert_eq!(budget.used(), table.bytes());
        for key in map.into_keys() {
            table.remove(key);
        }
        table.shrink(bytes);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_large_table_takes_less_than_29_bytes_an_entry() {
    let budget = Budget::new(usize::MAX);
    let mut table = Table::default();
    let (mut next, mut most) = (numbers(), 0.0_f64);
    for n in 0..200_000_u64 {
        let key = next(u64::MAX).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let _ = table.insert(key, n + 1, &mut budget.reserve());
        if n > 5_000 {
            most = most.max(table.bytes() as f64 / table.len() as f64);
        }
    }
    assert!(most < 29.0, "{most}");
}

#[test]
fn a_refused_table_stays_as_it_is() {
    let budget = Budget::new(2_000);
    let mut table = Table::default();
    let mut next = numbers();
    let mut kept = Vec::new();
    loop {
        let key = next(u64::MAX).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match table.insert(key, 7, &mut budget.reserve()) {
            Ok(_) => kept.push(key),
            Err(Full) => break,
        }
        assert!(budget.used() <= 2_000);
    }
    assert!(kept.len() > 10);
    assert!(kept.iter().all(|key| table.get(*key) == Some(7)));
    assert_eq!((table.len(), budget.used()), (kept.len(), table.bytes()));
}

#[test]
fn what_is_given_back() {
    let budget = Budget::new(usize::MAX);
    let bytes = &mut budget.reserve();
    let mut next = numbers();
    for len in [1, 2, 10, 100, 1_000, 20_000_usize] {
        let (mut table, mut keys) = (Table::default(), Vec::new());
        for n in 0..4 * len {
            keys.push(next(u64::MAX).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            table.insert(keys[n], n as u64 + 1, bytes).unwrap();
        }
        let full = table.bytes();
        table.shrink(bytes);
        assert_eq!(table.bytes(), full, "{len}: nothing to spare");
        for key in keys.drain(len..) {
            table.remove(key);
        }
        // Shrunk, an eighth is spare; compact, a thirty-second; a place is 16 bytes, and of 64 at
        // most 50 are taken.
        let most = |spare: usize| 16 * ((len + spare) * 64 / 50 + 2 + 2 * TAIL) + 64;
        if len > 50 {
            table.shrink(bytes);
            assert!(table.bytes() <= most(len / 8 + 4), "{len}: {}", table.bytes());
        }
        table.compact(bytes);
        let compact = table.bytes();
        assert!(compact <= most(len / 32 + 2), "{len}: {compact}");
        assert!(compact >= 16 * len * 64 / 50);
        table.compact(bytes);
        assert_eq!(table.bytes(), compact, "{len}: once is enough");
        assert!((0..len).all(|n| table.get(keys[n]) == Some(n as u64 + 1)), "{len}");
        assert_eq!(budget.used(), compact);
        for key in keys {
            table.remove(key);
        }
        table.compact(bytes);
        assert_eq!(budget.used(), 0);
    }
}
