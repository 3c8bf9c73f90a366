//! One test for each rule, in the order of the rules.

use kvasir_kv_hash::{BlockExtra, Scope};

use super::*;
use crate::stored::{Group, GroupKind, Identity};

mod bytes;
mod groups;
mod identity;
mod kinds;
mod orphans;
mod threads;

/// Tokens per block in these tests.
const SIZE: u32 = 2;

/// An inventory and the prompts of these tests: one letter is one block.
pub(super) struct Rig {
    pub(super) inventory: Inventory,
    pub(super) root: BlockKey,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(super) fn with(limits: Limits) -> Self {
        let space = KeySpace::fixed();
        let root = space.root(&Scope { model: "m", ..Scope::default() });
        Self { inventory: Inventory::new(space, limits), root }
    }

    pub(super) fn slot(&self) -> Slot {
        self.inventory.register().unwrap()
    }

    /// Stores the letters of `text` under `hashes` in device memory, group 0.
    pub(super) fn store(
        &self,
        slot: Slot,
        parent: Option<u64>,
        hashes: &[u64],
        text: &str,
    ) -> Applied {
        self.store_as(slot, parent, hashes, text, |_| {})
    }

    /// As [`Self::store`], after `edit`.
    pub(super) fn store_as(
        &self,
        slot: Slot,
        parent: Option<u64>,
        hashes: &[u64],
        text: &str,
        edit: impl FnOnce(&mut StoredBlocks<'_>),
    ) -> Applied {
        self.store_with(slot, parent, hashes, text, &[], edit)
    }

    /// As [`Self::store_as`], with extras.
    pub(super) fn store_with(
        &self,
        slot: Slot,
        parent: Option<u64>,
        hashes: &[u64],
        text: &str,
        extras: &[Vec<BlockExtra<'_>>],
        edit: impl FnOnce(&mut StoredBlocks<'_>),
    ) -> Applied {
        let (hashes, tokens) = (handles(hashes), tokens(text));
        let mut blocks = StoredBlocks {
            parent: parent.map(EngineHash),
            root: self.root,
            hashes: &hashes,
            tokens: &tokens,
            block_size: SIZE,
            extras,
            lookahead: &[],
            identity: Identity::Tokens,
            tier: Tier::Device,
            group: Group { index: 0, kind: GroupKind::FullAttention },
        };
        edit(&mut blocks);
        self.inventory.store(slot, &blocks)
    }

    pub(super) fn remove(&self, slot: Slot, hashes: &[u64], tier: Tier) -> usize {
        self.inventory.remove(slot, &handles(hashes), tier, 0)
    }

    /// Blocks of `text` that `slot` holds per tier, by both queries.
    pub(super) fn held(&self, slot: Slot, text: &str) -> [u32; 4] {
        let keys = self.inventory.space().chain(self.root, &tokens(text), SIZE as usize);
        let all = self.inventory.overlaps(&keys, SIZE).get(slot);
        assert_eq!(self.inventory.overlap_of(slot, &keys, SIZE), all);
        Tier::ALL.map(|tier| all.in_tier(tier) / SIZE)
    }

    /// Blocks of `text` that `slot` holds in device memory, where nothing is elsewhere.
    pub(super) fn on_device(&self, slot: Slot, text: &str) -> u32 {
        let [device, rest @ ..] = self.held(slot, text);
        assert_eq!(rest, [0, 0, 0]);
        device
    }
}

pub(super) fn handles(numbers: &[u64]) -> Vec<EngineHash> {
    numbers.iter().copied().map(EngineHash).collect()
}

pub(super) fn tokens(text: &str) -> Vec<u32> {
    text.bytes().flat_map(|letter| [u32::from(letter); SIZE as usize]).collect()
}

/// What a slot holds; what it is charged for depends on what it remembers.
fn without_bytes(stats: SlotStats) -> SlotStats {
    SlotStats { bytes: 0, ..stats }
}

pub(super) fn stored(stored: usize) -> Applied {
    Applied { stored, ..Applied::default() }
}

pub(super) fn refused(refused: usize) -> Applied {
    Applied { refused, ..Applied::default() }
}

#[test]
fn an_inventory_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Inventory>();
}

#[test]
fn a_prefix_is_counted_from_the_first_block_without_a_hole() {
    let rig = Rig::new();
    let (a, b) = (rig.slot(), rig.slot());
    assert_eq!(rig.store(a, None, &[1, 2, 3], "abc"), stored(3));
    assert_eq!(rig.store(a, Some(3), &[4], "d"), stored(1));
    assert_eq!(rig.store(b, None, &[1], "a"), stored(1));
    assert_eq!(rig.on_device(a, "abcde"), 4);
    assert_eq!(rig.on_device(a, "abx"), 2);
    assert_eq!(rig.on_device(a, "bcd"), 0);
    assert_eq!(rig.on_device(b, "abcd"), 1);
    assert_eq!(rig.remove(a, &[2], Tier::Device), 1);
    assert_eq!(rig.on_device(a, "abcd"), 1);
    assert_eq!(rig.store(a, Some(1), &[2], "b"), stored(1));
    assert_eq!(rig.on_device(a, "abcd"), 4);
    assert_eq!(rig.inventory.overlaps(&[], SIZE).get(a).resident(), 0);
}

#[test]
fn overlaps_are_in_tokens_of_the_block_size_asked_for() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, None, &[1, 2, 3, 4], "abcd");
    let keys = |size| rig.inventory.space().chain(rig.root, &tokens("abcd"), size);
    assert_eq!(rig.inventory.overlaps(&keys(2), 2).get(slot).resident(), 8);
    assert_eq!(rig.inventory.overlaps(&keys(4), 4).get(slot).resident(), 0);
    assert_eq!(rig.inventory.overlaps(&keys(2), 0).get(slot).resident(), 0);
}

#[test]
fn roots_and_extras_separate_blocks() {
    let rig = Rig::new();
    let slot = rig.slot();
    let space = rig.inventory.space();
    let salted = space.root(&Scope { model: "m", salt: Some("s"), ..Scope::default() });
    let image = BlockExtra { identity: b"img", offset: 1 };
    rig.store_as(slot, None, &[1], "a", |blocks| blocks.root = salted);
    assert_eq!(rig.on_device(slot, "a"), 0);
    let extras = [vec![], vec![image]];
    rig.store_with(slot, None, &[2, 3], "ab", &extras, |_| {});
    assert_eq!(rig.on_device(slot, "ab"), 1);
    let first = space.next(rig.root, &tokens("a"), &[]);
    let second = space.next(first, &tokens("b"), &[image]);
    assert_eq!(rig.inventory.overlap_of(slot, &[first, second], SIZE).resident(), 4);
}

#[test]
fn an_event_that_does_not_line_up_is_refused_whole() {
    let rig = Rig::new();
    let slot = rig.slot();
    assert_eq!(rig.store(slot, None, &[1, 2], "abc"), refused(2));
    assert_eq!(rig.store(slot, None, &[1, 2], "a"), refused(2));
    assert_eq!(rig.store(slot, None, &[], "a"), refused(0));
    assert_eq!(rig.store_as(slot, None, &[1], "a", |blocks| blocks.block_size = 0), refused(1));
    let huge = rig.store_as(slot, None, &[1; 9], "a", |blocks| blocks.block_size = u32::MAX);
    assert_eq!(huge, refused(9));
    let extras = [vec![]];
    let short = rig.store_with(slot, None, &[1, 2], "ab", &extras, |_| {});
    assert_eq!(short, refused(2));
    // None of their handles was learned.
    assert_eq!(rig.store(slot, Some(1), &[3], "b").orphaned, 1);
    assert_eq!(rig.on_device(slot, "ab"), 0);
}

#[test]
fn an_event_without_tokens_credits_what_its_handles_stand_for() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, None, &[1, 2], "ab");
    rig.remove(slot, &[2], Tier::Device);
    let applied = rig.store_as(slot, None, &[1, 2, 9], "", |blocks| {
        blocks.block_size = 0;
        blocks.tier = Tier::Host;
    });
    assert_eq!(applied, Applied { stored: 2, orphaned: 1, ..Applied::default() });
    assert_eq!(rig.held(slot, "ab"), [1, 1, 0, 0]);
    assert_eq!(rig.inventory.stats(slot).blocks, [1, 2, 0, 0]);
    // The one that was unknown is credited once it is told, unless it was removed before.
    rig.store_as(slot, None, &[8], "", |blocks| blocks.tier = Tier::Disk);
    assert_eq!(rig.remove(slot, &[8], Tier::Disk), 1);
    assert_eq!(rig.inventory.stats(slot).orphans, 1);
    rig.store(slot, Some(2), &[9, 8], "cd");
    rig.remove(slot, &[9], Tier::Device);
    assert_eq!(rig.inventory.stats(slot).blocks, [2, 3, 0, 0]);
    assert_eq!(rig.inventory.stats(slot).orphans, 0);
}

#[test]
fn stores_are_idempotent_and_the_first_removal_ends_the_credit() {
    let rig = Rig::new();
    let slot = rig.slot();
    for _ in 0..3 {
        assert_eq!(rig.store(slot, None, &[1], "a"), stored(1));
    }
    assert_eq!(rig.inventory.stats(slot).blocks, [1, 0, 0, 0]);
    assert_eq!(rig.remove(slot, &[1, 77], Tier::Device), 1);
    assert_eq!(rig.remove(slot, &[1], Tier::Device), 0);
    assert_eq!(rig.on_device(slot, "a"), 0);
    assert_eq!(without_bytes(rig.inventory.stats(slot)), SlotStats::default());
}

#[test]
fn a_removal_in_one_tier_leaves_the_others() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, None, &[1, 2], "ab");
    rig.store_as(slot, None, &[1], "a", |blocks| blocks.tier = Tier::Remote);
    rig.store_as(slot, None, &[1], "a", |blocks| blocks.tier = Tier::Disk);
    assert_eq!(rig.held(slot, "ab"), [2, 0, 0, 0]);
    assert_eq!(rig.remove(slot, &[1], Tier::Host), 0);
    assert_eq!(rig.remove(slot, &[1], Tier::Device), 1);
    assert_eq!(rig.held(slot, "ab"), [1, 0, 1, 0]);
    rig.remove(slot, &[1], Tier::Disk);
    assert_eq!(rig.held(slot, "ab"), [1, 0, 0, 1]);
    rig.remove(slot, &[1], Tier::Remote);
    assert_eq!(rig.held(slot, "ab"), [0; 4]);
}

#[test]
fn a_handle_used_for_another_block_ends_the_credit_of_the_first() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, None, &[1, 2], "ab");
    rig.store_as(slot, None, &[1], "a", |blocks| blocks.tier = Tier::Host);
    let second = |blocks: &mut StoredBlocks<'_>| {
        blocks.group.index = 0;
        blocks.tier = Tier::Disk;
    };
    assert_eq!(rig.store_as(slot, None, &[1], "x", second), stored(1));
    assert_eq!(rig.held(slot, "ab"), [0; 4]);
    assert_eq!(rig.held(slot, "x"), [0, 0, 1, 0]);
    assert_eq!(rig.inventory.stats(slot).blocks, [1, 0, 1, 0]);
    // Later children follow the new block.
    rig.store_as(slot, Some(1), &[3], "y", second);
    assert_eq!(rig.held(slot, "xy"), [0, 0, 2, 0]);
}

#[test]
fn two_handles_for_one_block_are_evidence_and_either_removal_ends_it() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, None, &[1], "a");
    rig.store_as(slot, None, &[1], "a", |blocks| blocks.tier = Tier::Host);
    assert_eq!(rig.inventory.stats(slot).aliased_keys, 0);
    rig.store(slot, None, &[2], "a");
    assert_eq!(rig.inventory.stats(slot).aliased_keys, 1);
    assert_eq!(rig.inventory.stats(slot).blocks, [1, 1, 0, 0]);
    assert_eq!(rig.remove(slot, &[1], Tier::Device), 1);
    assert_eq!(rig.held(slot, "a"), [0, 1, 0, 0]);
    assert_eq!(rig.remove(slot, &[2], Tier::Device), 0);
    assert_eq!(rig.remove(slot, &[2], Tier::Host), 1);
    assert_eq!(rig.held(slot, "a"), [0; 4]);
    // One after the other is no evidence.
    rig.inventory.clear(slot);
    rig.store(slot, None, &[1], "a");
    rig.remove(slot, &[1], Tier::Device);
    rig.store(slot, None, &[2], "a");
    assert_eq!(rig.inventory.stats(slot).aliased_keys, 0);
}

#[test]
fn handles_of_removed_blocks_stay_known_within_bounds() {
    let rig = Rig::with(Limits { retired_handles: 2, ..Limits::default() });
    let slot = rig.slot();
    rig.store(slot, None, &[1, 2, 3], "abc");
    rig.remove(slot, &[1, 2, 3], Tier::Device);
    assert_eq!(rig.store(slot, Some(3), &[4], "d"), stored(1));
    assert_eq!(rig.store(slot, Some(1), &[5], "x").orphaned, 1);
    rig.store(slot, None, &[1, 2, 3], "abc");
    assert_eq!(rig.on_device(slot, "abcd"), 4);
}

#[test]
fn clear_forgets_all_of_one_endpoint_only() {
    let rig = Rig::new();
    let (slot, other) = (rig.slot(), rig.slot());
    for slot in [slot, other] {
        rig.store(slot, None, &[1, 2], "ab");
        rig.remove(slot, &[2], Tier::Device);
        rig.store(slot, Some(9), &[8], "z");
    }
    rig.inventory.clear(slot);
    assert_eq!(rig.inventory.stats(slot), SlotStats::default());
    assert_eq!((rig.on_device(slot, "a"), rig.on_device(other, "a")), (0, 1));
    let unknown = rig.store_as(slot, None, &[1, 2], "", |blocks| blocks.tier = Tier::Remote);
    assert_eq!(unknown.orphaned, 2);
    // The orphan went as well: its parent's arrival credits nothing else.
    assert_eq!(rig.store(slot, None, &[9], "y"), stored(1));
    assert_eq!(rig.on_device(slot, "yz"), 1);
}

#[test]
fn an_unregistered_slot_is_empty_and_its_next_owner_starts_anew() {
    let rig = Rig::new();
    let slot = rig.slot();
    rig.store(slot, None, &[1, 2], "ab");
    rig.inventory.unregister(slot);
    rig.inventory.unregister(slot);
    assert_eq!(rig.inventory.runs(), 0);
    assert_eq!(rig.store(slot, None, &[1], "a"), refused(1));
    assert_eq!(rig.remove(slot, &[1], Tier::Device), 0);
    assert_eq!(rig.on_device(slot, "ab"), 0);
    let next = rig.slot();
    assert_eq!(next, slot);
    assert_ne!(rig.slot(), next);
    assert_eq!(rig.inventory.stats(next), SlotStats::default());
    assert_eq!(rig.store(next, Some(1), &[2], "b").orphaned, 1);
}

#[test]
fn slots_end_at_65535_and_unknown_ones_do_nothing() {
    let rig = Rig::new();
    let slots: Vec<Slot> = std::iter::from_fn(|| rig.inventory.register()).collect();
    assert_eq!(slots.len(), 65_535);
    rig.store(slots[65_534], None, &[1], "a");
    assert_eq!(rig.on_device(slots[65_534], "a"), 1);
    rig.inventory.unregister(slots[7]);
    assert_eq!(rig.inventory.register(), Some(slots[7]));
    assert_eq!(rig.inventory.register(), None);
    let small = Rig::new();
    assert_eq!(small.store(slots[9], None, &[1], "a"), refused(1));
    small.inventory.clear(slots[9]);
    small.inventory.unregister(slots[9]);
    assert_eq!(small.inventory.stats(slots[9]), SlotStats::default());
}

#[test]
fn many_holders_of_one_prefix_are_found_in_one_walk() {
    let rig = Rig::new();
    let slots: Vec<Slot> = (0..300).map(|_| rig.slot()).collect();
    for (at, slot) in slots.iter().enumerate() {
        rig.store(*slot, None, &[1, 2], "ab");
        if at % 50 == 49 {
            rig.store(*slot, Some(2), &[3], "c");
        }
    }
    for (at, slot) in slots.iter().enumerate() {
        assert_eq!(rig.on_device(*slot, "abc"), if at % 50 == 49 { 3 } else { 2 });
    }
    // Blocks with more holders than the prefix before them.
    for slot in &slots {
        if *slot != slots[150] {
            rig.remove(*slot, &[1], Tier::Device);
        }
    }
    assert_eq!(rig.on_device(slots[150], "ab"), 2);
    assert_eq!(rig.on_device(slots[149], "ab"), 0);
}

#[test]
fn a_prompt_longer_than_one_hold_of_the_lock_is_walked_to_its_end() {
    let rig = Rig::new();
    let slot = rig.slot();
    let text = "q".repeat(1_000);
    let hashes: Vec<u64> = (0..1_000).collect();
    assert_eq!(rig.store(slot, None, &hashes, &text), stored(1_000));
    assert_eq!(rig.on_device(slot, &text), 1_000);
    rig.remove(slot, &[700], Tier::Device);
    assert_eq!(rig.on_device(slot, &text), 700);
}
