//! Blocks whose parent is unknown.

use super::*;

fn orphaned(orphaned: usize) -> Applied {
    Applied { orphaned, ..Applied::default() }
}

#[test]
fn orphans_wait_without_credit_and_join_down_to_the_last_child() {
    let rig = Rig::new();
    let slot = rig.slot();
    assert_eq!(rig.store(slot, Some(3), &[4], "d"), orphaned(1));
    assert_eq!(rig.store(slot, Some(1), &[2, 3], "bc"), orphaned(2));
    assert_eq!(rig.store(slot, Some(2), &[9], "x"), orphaned(1));
    assert_eq!(rig.inventory.stats(slot).orphans, 4);
    assert_eq!(rig.inventory.stats(slot).blocks, [0; 4]);
    assert_eq!(rig.inventory.runs(), 0);
    assert_eq!(rig.store(slot, None, &[1], "a"), stored(5));
    assert_eq!(rig.inventory.stats(slot).orphans, 0);
    assert_eq!((rig.on_device(slot, "abcd"), rig.on_device(slot, "abx")), (4, 3));
}

#[test]
fn orphans_join_within_a_run_before_its_next_block() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store_as(slot, Some(1), &[2], "b", |blocks| blocks.tier = Tier::Host);
    rig.store(slot, None, &[1, 2], "ab");
    assert_eq!(rig.inventory.stats(slot).blocks, [2, 1, 0, 0]);
    assert_eq!(rig.inventory.stats(slot).aliased_keys, 0);
}

#[test]
fn orphans_keep_their_tiers_groups_and_extras() {
    let rig = Rig::new();
    let slot = rig.slot();
    let image = BlockExtra { identity: b"img", offset: -4 };
    let extras = [vec![image]];
    for tier in [Tier::Host, Tier::Disk] {
        rig.store_with(slot, Some(1), &[2], "b", &extras, |blocks| {
            blocks.tier = tier;
            blocks.group.index = 4;
        });
    }
    rig.store_as(slot, None, &[1], "a", |blocks| blocks.group.index = 4);
    let space = rig.inventory.space();
    let first = space.next(rig.root, &tokens("a"), &[]);
    let second = space.next(first, &tokens("b"), &[image]);
    let overlap = rig.inventory.overlap_of(slot, &[first, second], SIZE);
    assert_eq!((overlap.in_tier(Tier::Device), overlap.in_tier(Tier::Host)), (SIZE, SIZE));
    assert_eq!(rig.inventory.stats(slot).blocks, [1, 1, 1, 0]);
}

#[test]
fn a_removed_orphan_leaves_its_place_to_those_behind_it() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, Some(1), &[2, 3, 4], "bcd");
    assert_eq!(rig.remove(slot, &[3], Tier::Host), 0);
    assert_eq!(rig.remove(slot, &[3], Tier::Device), 1);
    assert_eq!(rig.remove(slot, &[3], Tier::Device), 0);
    assert_eq!(rig.store(slot, None, &[1], "a"), stored(3));
    assert_eq!(rig.on_device(slot, "abcd"), 2);
    assert_eq!(rig.inventory.stats(slot).blocks, [3, 0, 0, 0]);
    // The removed one is known like any other removed block.
    assert_eq!(rig.store_as(slot, None, &[3], "", |_| {}), stored(1));
    assert_eq!(rig.on_device(slot, "abcd"), 4);
}

#[test]
fn a_very_long_chain_of_orphans_joins() {
    let rig = Rig::with(Limits { orphans: 50_000, ..Limits::default() });
    let slot = rig.slot();
    let n = 30_000;
    let text = "q".repeat(n);
    // Last block first, one by one: the longest possible way back.
    for hash in (1..n as u64).rev() {
        assert_eq!(rig.store(slot, Some(hash - 1), &[hash], "q"), orphaned(1));
    }
    assert_eq!(rig.store(slot, None, &[0], "q"), stored(n));
    assert_eq!(rig.on_device(slot, &text), n as u32);
}

#[test]
fn the_oldest_orphans_are_dropped() {
    let rig = Rig::with(Limits { orphans: 2, ..Limits::default() });
    let slot = rig.slot();
    rig.store(slot, Some(1), &[2], "b");
    rig.store(slot, Some(1), &[3], "c");
    rig.store(slot, Some(1), &[4], "d");
    assert_eq!(rig.inventory.stats(slot).orphans, 2);
    assert_eq!(rig.store(slot, None, &[1], "a"), stored(3));
    assert_eq!((rig.on_device(slot, "ab"), rig.on_device(slot, "ad")), (1, 2));
}

#[test]
fn orphans_in_a_circle_do_no_harm() {
    let rig = Rig::new();
    let slot = rig.slot();
    assert_eq!(rig.store(slot, Some(1), &[1], "a"), orphaned(1));
    assert_eq!(rig.store(slot, Some(3), &[2], "b"), orphaned(1));
    assert_eq!(rig.store(slot, Some(2), &[3], "c"), orphaned(1));
    assert_eq!(rig.store(slot, None, &[1], "x"), stored(1));
    assert_eq!(rig.store(slot, None, &[2], "b"), stored(2));
    assert_eq!((rig.on_device(slot, "xa"), rig.on_device(slot, "bcb")), (1, 2));
    assert_eq!(rig.inventory.stats(slot).orphans, 0);
}

#[test]
fn a_known_handle_under_an_unknown_parent_is_in_doubt() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, None, &[1, 2], "ab");
    rig.store_as(slot, None, &[2], "", |blocks| blocks.tier = Tier::Host);
    assert_eq!(rig.store(slot, Some(9), &[2], "b"), orphaned(1));
    assert_eq!(rig.held(slot, "ab"), [1, 0, 0, 0]);
    // Its children cannot be placed either, until its parent is known.
    assert_eq!(rig.store(slot, Some(2), &[3], "c"), orphaned(1));
    assert_eq!(rig.store(slot, Some(1), &[9], "y"), stored(3));
    assert_eq!((rig.on_device(slot, "abc"), rig.on_device(slot, "aybc")), (1, 4));
}

#[test]
fn a_stored_handle_is_no_orphan_any_more() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, Some(9), &[2, 3], "bc");
    rig.store(slot, None, &[2], "x");
    // What hangs on the handle follows it; the other place it was said to have is forgotten.
    assert_eq!(rig.on_device(slot, "xc"), 2);
    assert_eq!(rig.inventory.stats(slot).orphans, 0);
    rig.store(slot, None, &[9], "y");
    assert_eq!(rig.on_device(slot, "yb"), 1);
}
