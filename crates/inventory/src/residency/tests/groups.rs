//! Cache groups.

use super::*;

fn in_group(rig: &Rig, slot: Slot, group: u8, tier: Tier, text: &str) -> Applied {
    let hashes: Vec<u64> = (1..=text.len() as u64).collect();
    rig.store_as(slot, None, &hashes, text, |blocks| {
        blocks.group.index = group;
        blocks.tier = tier;
    })
}

#[test]
fn every_group_seen_has_to_hold_a_block() {
    let rig = Rig::new();
    let (slot, other) = (rig.slot(), rig.slot());
    in_group(&rig, slot, 0, Tier::Device, "abc");
    in_group(&rig, other, 0, Tier::Device, "abc");
    assert_eq!(rig.on_device(slot, "abc"), 3);
    in_group(&rig, slot, 200, Tier::Device, "ab");
    assert_eq!(rig.on_device(slot, "abc"), 2);
    assert_eq!(rig.on_device(other, "abc"), 3);
    assert_eq!(rig.inventory.stats(slot).blocks, [3, 0, 0, 0]);
    // One hash, removed once per group.
    assert_eq!(rig.inventory.remove(slot, &handles(&[2]), Tier::Device, 200), 1);
    assert_eq!(rig.on_device(slot, "abc"), 1);
    assert_eq!(rig.inventory.stats(slot).blocks, [3, 0, 0, 0]);
    assert_eq!(rig.inventory.remove(slot, &handles(&[2]), Tier::Device, 0), 1);
    assert_eq!(rig.inventory.stats(slot).blocks, [2, 0, 0, 0]);
}

#[test]
fn a_group_is_seen_whatever_became_of_its_blocks() {
    for text in ["ab", "abc"] {
        let rig = Rig::new();
        let slot = rig.slot();
        rig.store(slot, None, &[1], "a");
        let applied = rig.store_as(slot, Some(99), &[7, 8], text, |blocks| blocks.group.index = 1);
        assert_eq!(applied.stored, 0);
        assert_eq!(rig.on_device(slot, "a"), 0);
        rig.inventory.clear(slot);
        rig.store(slot, None, &[1], "a");
        assert_eq!(rig.on_device(slot, "a"), 1);
    }
}

#[test]
fn the_slowest_group_sets_the_tier() {
    let rig = Rig::new();
    let slot = rig.slot();
    in_group(&rig, slot, 0, Tier::Device, "ab");
    in_group(&rig, slot, 1, Tier::Disk, "ab");
    in_group(&rig, slot, 1, Tier::Host, "a");
    assert_eq!(rig.held(slot, "ab"), [0, 1, 1, 0]);
    in_group(&rig, slot, 1, Tier::Device, "a");
    assert_eq!(rig.held(slot, "ab"), [1, 0, 1, 0]);
    assert_eq!(rig.inventory.stats(slot).blocks, [2, 1, 2, 0]);
}

#[test]
fn an_unsupported_group_ends_all_credit_until_clear() {
    let rig = Rig::new();
    let slot = rig.slot();
    in_group(&rig, slot, 0, Tier::Device, "ab");
    let applied = rig.store_as(slot, None, &[5], "e", |blocks| {
        blocks.group = Group { index: 1, kind: GroupKind::Unsupported };
    });
    assert_eq!(applied, refused(1));
    assert!(rig.inventory.stats(slot).unsupported_group);
    assert_eq!(rig.on_device(slot, "ab"), 0);
    in_group(&rig, slot, 0, Tier::Device, "ab");
    assert_eq!(rig.on_device(slot, "ab"), 0);
    rig.inventory.clear(slot);
    assert!(!rig.inventory.stats(slot).unsupported_group);
    in_group(&rig, slot, 0, Tier::Device, "ab");
    assert_eq!(rig.on_device(slot, "ab"), 2);
}
