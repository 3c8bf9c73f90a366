//! The byte budget.

use super::*;

fn base() -> usize {
    Rig::new().inventory.bytes()
}

/// Prompts of `len` blocks that begin alike: the same first block, then each its own.
fn prompt(n: u64, len: u64) -> (Vec<u64>, Vec<u32>) {
    let hashes = (0..len).map(|at| if at == 0 { 1 } else { (n << 32) + at });
    let tokens = hashes.clone().flat_map(|hash| [(hash >> 32) as u32, hash as u32]);
    (hashes.collect(), tokens.collect())
}

fn store(rig: &Rig, slot: Slot, n: u64, len: u64) -> Applied {
    let (hashes, tokens) = prompt(n, len);
    rig.store_as(slot, None, &hashes, "", |blocks| {
        let tokens: &'static [u32] = tokens.leak();
        blocks.tokens = tokens;
    })
}

fn held(rig: &Rig, slot: Slot, n: u64, len: u64) -> u32 {
    let keys = rig.inventory.space().chain(rig.root, &prompt(n, len).1, SIZE as usize);
    rig.inventory.overlap_of(slot, &keys, SIZE).resident() / SIZE
}

#[test]
fn an_endpoint_beyond_its_limit_gives_up_the_ends_of_its_prompts() {
    let rig = Rig::with(Limits { endpoint_bytes: 200_000, ..Limits::default() });
    let (slot, other) = (rig.slot(), rig.slot());
    store(&rig, other, 1_000, 50);
    for n in 1..=200 {
        store(&rig, slot, n, 50);
        assert!(rig.inventory.stats(slot).bytes <= 200_000);
    }
    let stats = rig.inventory.stats(slot);
    assert!(stats.given_up > 1_000, "{stats:?}");
    assert_eq!(stats.blocks[0] + stats.given_up as usize, 200 * 49 + 1);
    // All beginnings are there, and what is there has no hole.
    let lengths: Vec<u32> = (1..=200).map(|n| held(&rig, slot, n, 50)).collect();
    assert!(lengths.iter().all(|len| *len > 5), "{lengths:?}");
    assert_eq!(lengths.iter().map(|len| *len as usize - 1).sum::<usize>() + 1, stats.blocks[0]);
    // Nobody else pays.
    assert_eq!((held(&rig, other, 1_000, 50), rig.inventory.stats(other).given_up), (50, 0));
    assert_eq!(stats.given_up_ever, stats.given_up);
    rig.inventory.clear(slot);
    let cleared = SlotStats { given_up_ever: stats.given_up, ..SlotStats::default() };
    assert_eq!(rig.inventory.stats(slot), cleared);
}

#[test]
fn the_inventory_is_cut_back_where_it_is_largest_and_never_exceeded() {
    let limit = base() * 2 + 300_000;
    let rig = Rig::with(Limits { bytes: limit, ..Limits::default() });
    let slots = [rig.slot(), rig.slot(), rig.slot()];
    for n in 1..=300 {
        store(&rig, slots[0], n, 40);
        assert!(rig.inventory.bytes() <= limit);
    }
    assert!(rig.inventory.stats(slots[0]).given_up > 1_000);
    // Those who come later find room.
    for n in 1..=40 {
        store(&rig, slots[1], n, 40);
        assert!(rig.inventory.bytes() <= limit);
    }
    let stats = slots.map(|slot| rig.inventory.stats(slot));
    assert_eq!(stats[1].given_up, 0, "{stats:?}");
    assert!((1..=40).all(|n| held(&rig, slots[1], n, 40) == 40));
    for slot in slots {
        rig.inventory.unregister(slot);
    }
    assert_eq!((rig.inventory.bytes(), rig.inventory.runs()), (base(), 0));
}

#[test]
fn without_any_room_everything_is_given_up_and_nothing_breaks() {
    let rig = Rig::with(Limits { bytes: 0, ..Limits::default() });
    let slot = rig.slot();
    let given_up = |given_up| Applied { given_up, ..Applied::default() };
    assert_eq!(rig.store(slot, None, &[1, 2], "ab"), given_up(2));
    assert_eq!(rig.store(slot, Some(2), &[3], "c"), given_up(1));
    assert_eq!(rig.store_as(slot, None, &[1], "", |_| {}), given_up(1));
    assert_eq!(rig.on_device(slot, "abc"), 0);
    assert_eq!(rig.inventory.stats(slot).given_up, 4);
    rig.inventory.unregister(slot);
}

#[test]
fn what_is_kept_aside_is_counted_and_goes_first() {
    let rig = Rig::with(Limits { endpoint_bytes: 30_000, ..Limits::default() });
    let slot = rig.slot();
    store(&rig, slot, 1, 20);
    for hash in 0..200 {
        rig.store(slot, Some(1 << 60), &[(1 << 50) + hash], "z");
        assert!(rig.inventory.stats(slot).bytes <= 30_000);
    }
    assert!(rig.inventory.stats(slot).given_up > 0);
    assert_eq!(held(&rig, slot, 1, 20), 20);
}
