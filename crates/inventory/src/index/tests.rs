use std::collections::BTreeMap;

use super::holder::{KNOWN, Place, change, marks_at};
use super::*;
use crate::terms::Tier;

fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 0x1234_5678_9abc_def1_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    }
}

fn put(slot: u16, tier: Tier) -> Put {
    Put { slot: Slot::new(slot), group: 0, tiers: TierSet::of(tier) }
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> Vec<BlockKey> {
    numbers.into_iter().map(|n| BlockKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

/// Adds and returns the places of the blocks.
fn add(index: &Index, parent: Option<At>, keys: &[BlockKey], put: Put) -> Vec<At> {
    let mut places = Vec::new();
    let done = index.add(parent, keys, put, |at, len, _| {
        places.extend((at.offset..).take(len).map(|offset| At { offset, ..at }));
    });
    assert_eq!(done, places.len());
    places
}

#[test]
fn pieces_equal_a_plain_map_of_marks() {
    let mut next = numbers();
    let budget = Budget::new(usize::MAX);
    let mut list = Vec::new();
    let mut naive: BTreeMap<(u16, u8, u16), u8> = BTreeMap::new();
    for _ in 0..4_000 {
        let (slot, group) = ([0, 1, 65_534][next(3) as usize], [0, 1, 255][next(3) as usize]);
        let place = Place { slot: Slot::new(slot), group };
        let start = next(40) as u16;
        let range = start..start + 1 + next(12) as u16;
        let mark = [1, 2, KNOWN][next(3) as usize];
        let add = next(2) == 0;
        let to = |marks: u8| if add { marks | mark } else { marks & !mark };
        assert!(change(&mut list, place, range.clone(), to, &mut budget.reserve()));
        for at in range.clone() {
            let marks = naive.entry((slot, group, at)).or_default();
            *marks = to(*marks);
        }
        for at in 0..55 {
            let expected = naive.get(&(slot, group, at)).copied().unwrap_or(0);
            assert_eq!(marks_at(&list, place, at), expected, "{slot} {group} {at}");
        }
        assert!(list.is_sorted());
        // As few pieces as possible: neighbours that touch differ.
        let wasted = list.windows(2).any(|pair| {
            let same = (pair[0].slot(), pair[0].group()) == (pair[1].slot(), pair[1].group());
            let marks =
                |h: Holder| marks_at(&list, Place { slot: h.slot(), group: h.group() }, h.start());
            same && pair[0].end() == pair[1].start() && marks(pair[0]) == marks(pair[1])
        });
        assert!(!wasted);
    }
}

#[test]
fn chains_that_part_share_what_comes_before() {
    let index = Index::new(usize::MAX);
    let (long, other) = (keys(0..10), keys([0, 1, 2, 20, 21]));
    let a = add(&index, None, &long, put(1, Tier::Device));
    let b = add(&index, None, &other, put(2, Tier::Device));
    assert_eq!((index.runs(), &a[..3]), (2, &b[..3]));
    // The same again, and what follows it, finds the same places.
    assert_eq!(add(&index, None, &other, put(1, Tier::Host)), b);
    assert_eq!(add(&index, Some(b[2]), &long[3..], put(2, Tier::Device)), a[3..]);
    assert_eq!(index.block(b[4]), Some((other[4], 4)));
    // Once nobody has a handle for the end of the first chain, it goes.
    for at in a.iter().rev().take(7) {
        index.forget(*at, Slot::new(1));
        index.forget(*at, Slot::new(2));
    }
    assert_eq!(index.block(a[3]), None);
    assert_eq!(index.block(a[2]), Some((long[2], 2)));
    // The branch is still found behind it, though there would be room in the parent's run now.
    assert_eq!(add(&index, Some(a[2]), &other[3..], put(3, Tier::Device)), b[3..]);
}

#[test]
fn a_chain_whose_middle_was_forgotten_is_found_again_behind_it() {
    let index = Index::new(usize::MAX);
    let all = keys(0..24_000);
    let places = add(&index, None, &all, put(0, Tier::Device));
    assert_eq!(index.runs(), 3);
    for at in &places[..12_000] {
        index.forget(*at, Slot::new(0));
    }
    // They stay for the sake of what follows them.
    assert_eq!(index.runs(), 3);
    let again = add(&index, None, &all, put(1, Tier::Device));
    assert_eq!(again, places);
    for at in places[12_000..].iter().rev() {
        index.forget(*at, Slot::new(0));
    }
    for at in again.iter().rev() {
        index.forget(*at, Slot::new(1));
    }
    assert_eq!(index.runs(), 0);
    let empty = Index::new(usize::MAX);
    assert_eq!(index.budget().used(), empty.budget().used());
}

#[test]
fn bytes_are_never_exceeded_and_all_come_back() {
    let base = Index::new(usize::MAX).budget().used();
    let index = Index::new(base + 40_000);
    let mut next = numbers();
    let (mut places, mut refused) = (Vec::new(), 0);
    for round in 0..4_000_u64 {
        let slot = next(20) as u16;
        let from = next(40) * 100;
        let chain = keys((from..from + 1 + next(30)).chain([1_000_000 + round]));
        let new = add_some(&index, &chain, put(slot, Tier::Device));
        refused += chain.len() - new.len();
        places.extend(new.into_iter().map(|at| (at, slot)));
        assert!(index.budget().used() <= base + 40_000);
        while next(4) != 0 && !places.is_empty() {
            let (at, slot) = places.swap_remove(next(places.len() as u64) as usize);
            index.forget(at, Slot::new(slot));
            assert!(index.budget().used() <= base + 40_000);
        }
    }
    assert!(refused > 100);
    for (at, slot) in places {
        index.forget(at, Slot::new(slot));
    }
    // Marks that there was no room to take are left.
    for run in 0..SHARDS * 8 {
        (0..20).for_each(|slot| index.forget_run(RunId(run), Slot::new(slot)));
    }
    assert_eq!((index.runs(), index.budget().used()), (0, base));
}

fn add_some(index: &Index, keys: &[BlockKey], put: Put) -> Vec<At> {
    let mut places = Vec::new();
    index.add(None, keys, put, |at, len, _| {
        places.extend((at.offset..).take(len).map(|offset| At { offset, ..at }));
    });
    places
}

#[test]
fn what_does_not_fit_apart_goes_together() {
    let base = Index::new(usize::MAX).budget().used();
    let index = Index::new(base + base / 60 + 3_000);
    let chain = keys(0..20);
    let places = add(&index, None, &chain, put(0, Tier::Device));
    // Nothing is left to tell the middle from its neighbours.
    while index.budget.reserve().take(1) {}
    let change = index.reduce(places[9], Slot::new(0), Some(0), TierSet::default());
    assert_eq!((change.gone, change.cut), ([20, 0, 0, 0], 19));
    assert_eq!(index.block(places[19]), Some((chain[19], 19)));
}

#[test]
fn sizes_are_what_the_budget_counts_on() {
    assert_eq!(size_of::<Holder>(), 8);
    assert!(size_of::<Node>() <= 72);
    let at = At { run: RunId(u32::MAX - 1), offset: u16::MAX };
    assert_eq!(At::unpack(at.pack(7)), (at, 7));
    assert_ne!(At { run: RunId(0), offset: 0 }.pack(0), 0);
}
