use std::collections::BTreeMap;

use super::*;

/// Tiers by (key, slot, group), as a plain map.
type Naive = BTreeMap<(u64, u16, u8), u8>;

fn naive_union(naive: &Naive, key: u64, slot: u16) -> TierSet {
    let all = naive.range((key, slot, 0)..=(key, slot, u8::MAX));
    TierSet(all.fold(0, |set, (_, tiers)| set | tiers))
}

fn check(index: &Index, naive: &Naive, key: u64) {
    let expected: Vec<Holder> = naive
        .range((key, 0, 0)..=(key, u16::MAX, u8::MAX))
        .map(|((_, slot, group), tiers)| Holder::new(Slot::new(*slot), *group, TierSet(*tiers)))
        .collect();
    assert!(index.holders(BlockKey(key)) == expected, "holders of {key:x}");
}

#[test]
fn updates_and_changes_equal_a_plain_map() {
    let mut index = Index::new();
    let mut naive = Naive::new();
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    for _ in 0..40_000 {
        // Two keys in one part and one in another; few enough that lists come and go.
        let key = [1, 2, 1 << 40][next(3) as usize];
        let slot = [0, 1, 2, 900, 65_534][next(5) as usize];
        let group = [0, 1, 255][next(3) as usize];
        let tier = Tier::ALL[next(4) as usize];
        let before = naive_union(&naive, key, slot);
        let old = naive.clone();
        let change = match next(8) {
            0..3 => {
                *naive.entry((key, slot, group)).or_default() |= TierSet::of(tier).0;
                let holder = Holder::new(Slot::new(slot), group, TierSet::of(tier));
                index.add(BlockKey(key), holder)
            }
            3..7 => {
                naive.entry((key, slot, group)).and_modify(|set| *set &= !TierSet::of(tier).0);
                index.remove(BlockKey(key), Slot::new(slot), group, tier)
            }
            _ => {
                naive.retain(|(k, s, _), _| (*k, *s) != (key, slot));
                index.evict(BlockKey(key), Slot::new(slot))
            }
        };
        naive.retain(|_, tiers| *tiers != 0);
        let after = naive_union(&naive, key, slot);
        assert_eq!(change, Change { before, after, changed: old != naive });
        check(&index, &naive, key);
    }
    let part = &index.parts[part_of(BlockKey(1))];
    assert!(part.lists.len() <= 2, "lists are used again");
}

#[test]
fn a_block_counts_by_the_slowest_of_the_groups_fastest_tiers() {
    let mut index = Index::new();
    let slot = Slot::new(3);
    let fast = Holder::new(slot, 0, TierSet::of(Tier::Device).with(Tier::Disk));
    let slow = Holder::new(slot, 7, TierSet::of(Tier::Disk).with(Tier::Host));
    assert_eq!(index.credit(slot, &[fast]), None);
    index.require(slot, 1);
    assert_eq!(index.credit(slot, &[fast]), Some(Tier::Device));
    assert_eq!(index.credit(slot, &[]), None);
    index.require(slot, 2);
    assert_eq!(index.credit(slot, &[fast]), None);
    assert_eq!(index.credit(slot, &[fast, slow]), Some(Tier::Host));
    index.require(slot, 0);
    assert_eq!(index.credit(slot, &[]), None);
}

#[test]
fn an_entry_for_one_holder_is_sixteen_bytes() {
    assert_eq!(size_of::<(BlockKey, Holders)>(), 16);
    assert_eq!(size_of::<(crate::EngineHash, BlockKey)>(), 16);
}
