//! Groups that do not need every block of a prefix.

use super::*;

const WINDOW: GroupKind = GroupKind::SlidingWindow { tokens: 4 };

/// Stores letters of `text` that `keep` names in group 1 of `kind`: its event carries all tokens.
fn sparse(rig: &Rig, slot: Slot, kind: GroupKind, text: &str, keep: &[u64]) -> Applied {
    rig.store_as(slot, None, keep, text, |blocks| blocks.group = Group { index: 1, kind })
}

fn full(rig: &Rig, slot: Slot, text: &str) {
    let hashes: Vec<u64> = (1..=text.len() as u64).collect();
    rig.store(slot, None, &hashes, text);
}

#[test]
fn a_window_needs_only_the_blocks_before_the_boundary() {
    let rig = Rig::new();
    let slot = rig.slot();
    full(&rig, slot, "abcdef");
    // Four tokens look back at three: two blocks of two.
    assert_eq!(sparse(&rig, slot, WINDOW, "abcdef", &[4, 5]), stored(2));
    assert_eq!(rig.on_device(slot, "abcdef"), 5);
    assert_eq!(rig.on_device(slot, "abcde"), 5);
    assert_eq!(rig.on_device(slot, "abcd"), 0);
    // One block will do where the prompt begins.
    sparse(&rig, slot, WINDOW, "abcdef", &[1]);
    assert_eq!(rig.on_device(slot, "abcd"), 1);
    // The full group still needs all.
    rig.remove(slot, &[3], Tier::Device);
    assert_eq!(rig.on_device(slot, "abcdef"), 1);
}

#[test]
fn a_state_is_there_only_where_it_was_kept() {
    let rig = Rig::new();
    let slot = rig.slot();
    full(&rig, slot, "abcdef");
    assert_eq!(sparse(&rig, slot, GroupKind::State, "abcdef", &[4, 6]), stored(2));
    assert_eq!(rig.on_device(slot, "abcdefg"), 6);
    assert_eq!(rig.on_device(slot, "abcdex"), 4);
    assert_eq!(rig.on_device(slot, "abc"), 0);
    assert_eq!(rig.inventory.remove(slot, &handles(&[6]), Tier::Device, 1), 1);
    assert_eq!(rig.on_device(slot, "abcdefg"), 4);
}

#[test]
fn the_boundary_is_the_longest_that_all_groups_hold() {
    let rig = Rig::new();
    let slot = rig.slot();
    full(&rig, slot, "abcdef");
    sparse(&rig, slot, WINDOW, "abcdef", &[1, 2, 3, 5, 6]);
    assert_eq!(rig.on_device(slot, "abcdef"), 6);
    rig.store_as(slot, None, &[3, 5], "", |blocks| {
        blocks.group = Group { index: 2, kind: GroupKind::State };
    });
    // The window holds 6 and 3, the states 5 and 3.
    assert_eq!(rig.on_device(slot, "abcdef"), 3);
}

#[test]
fn only_blocks_that_a_group_needs_set_the_tier() {
    let rig = Rig::new();
    let slot = rig.slot();
    full(&rig, slot, "abcd");
    rig.store_as(slot, None, &[1, 3, 4], "", |blocks| {
        blocks.group = Group { index: 1, kind: WINDOW };
        blocks.tier = Tier::Host;
    });
    assert_eq!(rig.held(slot, "abcd"), [2, 2, 0, 0]);
}

#[test]
fn without_a_full_group_the_first_blocks_may_be_gone() {
    let rig = Rig::new();
    let (slot, other) = (rig.slot(), rig.slot());
    let state = |blocks: &mut StoredBlocks<'_>| blocks.group.kind = GroupKind::State;
    let text = "a".repeat(3000);
    let hashes: Vec<u64> = (1..=3000).collect();
    rig.store_as(slot, None, &hashes, &text, state);
    rig.remove(slot, &hashes[..2999], Tier::Device);
    assert_eq!(rig.on_device(slot, &text), 3000);
    assert_eq!(rig.on_device(other, &text), 0);
    rig.remove(slot, &hashes[2999..], Tier::Device);
    assert_eq!(rig.on_device(slot, &text), 0);
}

#[test]
fn skipped_blocks_wait_until_another_group_tells_what_they_are() {
    let rig = Rig::new();
    let slot = rig.slot();
    assert_eq!(sparse(&rig, slot, WINDOW, "abc", &[2, 3]).orphaned, 2);
    assert_eq!(rig.on_device(slot, "abc"), 0);
    full(&rig, slot, "abc");
    assert_eq!(rig.on_device(slot, "abc"), 3);
    assert_eq!(rig.inventory.stats(slot).orphans, 0);
}

#[test]
fn one_group_of_two_kinds_ends_all_credit() {
    let rig = Rig::new();
    let slot = rig.slot();
    full(&rig, slot, "ab");
    rig.store_as(slot, None, &[1], "a", |blocks| blocks.group.kind = WINDOW);
    assert_eq!(rig.on_device(slot, "ab"), 0);
    assert!(rig.inventory.stats(slot).unsupported_group);
}
