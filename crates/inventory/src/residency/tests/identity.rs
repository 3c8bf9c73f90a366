//! What a block is known by, besides its tokens.

use super::*;

#[test]
fn what_follows_a_block_can_be_part_of_it() {
    let rig = Rig::new();
    let slot = rig.slot();
    let ahead: &'static [Vec<u32>] = vec![vec![7], vec![u32::from(b'c')]].leak();
    let applied = rig.store_as(slot, None, &[1, 2], "ab", |blocks| blocks.lookahead = ahead);
    assert_eq!(applied, stored(2));
    let held = |text: &[u32], lookahead| {
        let keys = rig.inventory.keys(rig.root, text, SIZE as usize, lookahead);
        rig.inventory.overlap_of(slot, &keys, SIZE).resident()
    };
    let (a, b, c) = (u32::from(b'a'), u32::from(b'b'), u32::from(b'c'));
    assert_eq!(held(&[a, a, 7], 1), 2);
    assert_eq!(held(&[a, a, b, b, c], 1), 0);
    assert_eq!(held(&[a, a], 1), 0);
    assert_eq!(held(&[a, a, 7], 0), 0);
    let short: &'static [Vec<u32>] = vec![vec![7]].leak();
    let applied = rig.store_as(slot, None, &[3, 4], "ab", |blocks| blocks.lookahead = short);
    assert_eq!(applied, refused(2));
}

#[test]
fn blocks_known_by_the_engines_hashes_need_no_tokens() {
    let rig = Rig::new();
    let slot = rig.slot();
    let by_engine = |blocks: &mut StoredBlocks<'_>| blocks.identity = Identity::Engine;
    let on_host = |blocks: &mut StoredBlocks<'_>| {
        by_engine(blocks);
        blocks.tier = Tier::Host;
    };
    assert_eq!(rig.store_as(slot, None, &[11, 12], "", by_engine), stored(2));
    assert_eq!(rig.store_as(slot, Some(13), &[14], "", by_engine).orphaned, 1);
    assert_eq!(rig.store_as(slot, Some(12), &[13], "", by_engine), stored(2));
    // An offload event has no parent: its handles tell where its blocks are.
    assert_eq!(rig.store_as(slot, None, &[12], "", on_host), stored(1));
    rig.remove(slot, &[12], Tier::Device);
    let held = |hashes: &[u64]| {
        let keys = rig.inventory.engine_keys(rig.root, &handles(hashes));
        let overlap = rig.inventory.overlap_of(slot, &keys, SIZE);
        Tier::ALL.map(|tier| overlap.in_tier(tier) / SIZE)
    };
    assert_eq!(held(&[11, 12, 13, 14, 15]), [3, 1, 0, 0]);
    assert_eq!(held(&[12]), [0; 4]);
    assert_eq!(rig.on_device(slot, "ab"), 0);
}
