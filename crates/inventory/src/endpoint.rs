//! One endpoint's own part: what its handles stand for, what waits for a parent, which cache
//! groups it has. All rules about what an event means are here.

use kvasir_kv_hash::{BlockKey, KeySpace};

use crate::budget::Own;
use crate::gates::{Gate, Gates, Groups};
use crate::handles::Handles;
use crate::index::{Added, At, Change, Index, Put};
use crate::keying::Keyer;
use crate::orphans::Orphans;
use crate::residency::{Limits, Slot, SlotStats};
use crate::stored::{Applied, Group, Shape, StoredBlocks};
use crate::terms::{EngineHash, Tier};
use crate::tiers::TierSet;

mod learn;
mod sample;
mod tails;

/// The state of one slot.
///
/// A handle is known (live or retired) or names an orphan or is unknown, never two of these. Where
/// a block is resident there is a handle that stands for it; its inverse does not hold: of two
/// handles for one block, one can outlive the residency that the other's removal ended.
#[derive(Debug)]
pub(crate) struct Endpoint {
    registered: bool,
    handles: Handles,
    orphans: Orphans,
    groups: Groups,
    own: Own,
    blocks: [usize; 4],
    aliased_keys: u64,
    given_up: u64,
    /// Those before the last clear.
    given_up_before: u64,
    /// Places that handles have left during this event.
    leaving: Vec<At>,
    scratch: Scratch,
}

/// Events of more blocks than this leave no buffers behind.
const KEPT_BLOCKS: usize = 64;

/// Buffers that every event uses.
#[derive(Debug, Default)]
struct Scratch {
    bytes: Vec<u8>,
    keys: Vec<BlockKey>,
    names: Vec<u64>,
    stretches: Vec<(At, usize, Added)>,
}

/// What all endpoints share, and which of them this is about.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub(crate) space: &'a KeySpace,
    pub(crate) index: &'a Index,
    pub(crate) gates: &'a Gates,
    pub(crate) slot: Slot,
}

/// Where a chain goes on: behind a block, or at a prompt's start.
#[derive(Clone, Copy)]
struct Link {
    at: Option<At>,
    key: BlockKey,
    /// The next block's distance from the start of its prompt.
    depth: u32,
}

/// A handle, the key of the block it stands for, and that block's copies, one entry a group.
#[derive(Clone, Copy)]
struct Lesson<'a> {
    hash: EngineHash,
    key: BlockKey,
    copies: &'a [(u8, TierSet)],
}

impl Endpoint {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            registered: true,
            handles: Handles::new(limits.retired_handles),
            orphans: Orphans::new(limits.orphans),
            groups: Groups::default(),
            own: Own { used: 0, limit: limits.endpoint_bytes },
            blocks: [0; 4],
            aliased_keys: 0,
            given_up: 0,
            given_up_before: 0,
            leaving: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered
    }

    pub(crate) fn unregister(&mut self, shared: Shared<'_>) {
        self.registered = false;
        self.clear(shared);
    }

    /// The bytes it is charged for.
    pub(crate) fn bytes(&self) -> usize {
        self.own.used
    }

    /// Applies a store event.
    pub(crate) fn store(&mut self, blocks: &StoredBlocks<'_>, shared: Shared<'_>) -> Applied {
        self.see(blocks.group, shared);
        let mut applied = Applied::default();
        match blocks.shape() {
            Shape::Broken => applied.refused = blocks.hashes.len(),
            Shape::Handles => self.store_by_handles(blocks, &mut applied, shared),
            Shape::Chain => {
                self.keep_room(blocks.hashes.len(), shared);
                match self.link(blocks, shared) {
                    Some(link) => self.store_chain(blocks, link, &mut applied, shared),
                    None => self.park(blocks, &mut applied, shared),
                }
            }
        }
        self.given_up += applied.given_up as u64;
        self.settle(shared);
        applied
    }

    /// Ends the residency of `hashes` in one tier of one group; how many were there.
    pub(crate) fn remove(
        &mut self,
        hashes: &[EngineHash],
        tier: Tier,
        group: u8,
        shared: Shared<'_>,
    ) -> usize {
        let keep = TierSet::ALL.without(tier);
        let share = shared.index.budget().reserve();
        let mut removed = 0;
        for hash in hashes {
            removed += usize::from(match self.handles.get(*hash) {
                Some(known) => {
                    let change = shared.index.reduce(known.at, shared.slot, Some(group), keep);
                    self.count(change);
                    if change.after.is_empty() {
                        self.retire(*hash, shared);
                    }
                    change.changed
                }
                None => self.orphans.remove_copy(*hash, (group, tier), &mut self.own, share),
            });
        }
        self.settle(shared);
        removed
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, shared: Shared<'_>) {
        // Readers that look in between see nothing rather than what is left so far.
        shared.gates.set(shared.slot, Gate::Closed);
        for (_, at, _) in self.handles.iter() {
            shared.index.forget_run(at.run, shared.slot);
        }
        let share = shared.index.budget().reserve();
        self.handles.clear(&mut self.own, share);
        self.orphans.clear(&mut self.own, share);
        debug_assert_eq!(self.own.used, 0, "bytes given back");
        self.groups = Groups::default();
        self.blocks = [0; 4];
        self.aliased_keys = 0;
        self.given_up_before += std::mem::take(&mut self.given_up);
    }

    pub(crate) fn stats(&self) -> SlotStats {
        SlotStats {
            blocks: self.blocks,
            orphans: self.orphans.len(),
            unsupported_group: self.groups.unsupported,
            aliased_keys: self.aliased_keys,
            given_up: self.given_up,
            given_up_ever: self.given_up_before + self.given_up,
            bytes: self.own.used,
        }
    }

    /// Notes that the endpoint has this cache group: from now on it has to hold a prefix, too.
    fn see(&mut self, group: Group, shared: Shared<'_>) {
        if let Some(gate) = self.groups.see(group) {
            shared.gates.set(shared.slot, gate);
        }
    }

    /// Where the blocks belong; `None` while their parent is unknown.
    fn link(&self, blocks: &StoredBlocks<'_>, shared: Shared<'_>) -> Option<Link> {
        let Some(parent) = blocks.parent else {
            return Some(Link { at: None, key: blocks.root, depth: 0 });
        };
        let at = self.handles.get(parent)?.at;
        let (key, depth) = shared.index.block(at)?;
        Some(Link { at: Some(at), key, depth: depth.saturating_add(1) })
    }

    fn store_by_handles(
        &mut self,
        blocks: &StoredBlocks<'_>,
        applied: &mut Applied,
        shared: Shared<'_>,
    ) {
        let (group, tiers) = (blocks.group.index, TierSet::of(blocks.tier));
        let put = Put { slot: shared.slot, group, tiers };
        let share = shared.index.budget().ordinary();
        for hash in blocks.hashes {
            match self.handles.get(*hash) {
                Some(known) if self.credit(*hash, known, put, shared) => applied.stored += 1,
                Some(_) => applied.given_up += 1,
                None => {
                    let copy = (group, blocks.tier);
                    let kept = self.orphans.park_bare(*hash, copy, &mut self.own, share);
                    *(if kept { &mut applied.orphaned } else { &mut applied.given_up }) += 1;
                }
            }
        }
    }

    fn store_chain(
        &mut self,
        blocks: &StoredBlocks<'_>,
        link: Link,
        applied: &mut Applied,
        shared: Shared<'_>,
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut keyer = Keyer::with(shared.space, std::mem::take(&mut scratch.bytes));
        let mut key = link.key;
        let next = |block| {
            key = keyer.next(key, &block);
            key
        };
        scratch.keys.clear();
        scratch.keys.extend(blocks.contents().map(next));
        let copy = (blocks.group.index, TierSet::of(blocks.tier));
        if self.orphans.len() == 0 && self.handles.unknown(blocks.hashes, &mut scratch.names) {
            applied.stored = self.learn_all(&mut scratch, link, copy, shared);
            applied.given_up = blocks.hashes.len() - applied.stored;
        } else {
            self.learn_each(blocks, &scratch.keys, link, &mut keyer, applied, shared);
        }
        scratch.bytes = keyer.into_scratch();
        // What one large event needed is not kept: nobody counts it.
        if blocks.hashes.len() <= KEPT_BLOCKS {
            self.scratch = scratch;
        }
    }

    /// [Learns](Self::learn) handles one by one, and what waits for them.
    fn learn_each(
        &mut self,
        blocks: &StoredBlocks<'_>,
        keys: &[BlockKey],
        mut link: Link,
        keyer: &mut Keyer<'_>,
        applied: &mut Applied,
        shared: Shared<'_>,
    ) {
        let copy = (blocks.group.index, TierSet::of(blocks.tier));
        for (at, (hash, key)) in blocks.hashes.iter().zip(keys).enumerate() {
            let lesson = Lesson { hash: *hash, key: *key, copies: &[copy] };
            let Some(next) = self.learn(lesson, link, shared) else {
                applied.given_up = blocks.hashes.len() - at;
                return;
            };
            applied.stored += 1;
            applied.stored += self.join(*hash, next, keyer, shared);
            link = next;
        }
    }

    /// Keeps blocks aside. A handle that was known until now may have been used again for another
    /// block: what it stood for loses its credit, and its later children wait as well.
    fn park(&mut self, blocks: &StoredBlocks<'_>, applied: &mut Applied, shared: Shared<'_>) {
        let Some(mut parent) = blocks.parent else { return };
        let share = shared.index.budget().ordinary();
        for block in blocks.contents() {
            if let Some(old) = self.handles.forget(block.hash, &mut self.own) {
                self.leave(old, shared);
            }
            let copy = (blocks.group.index, blocks.tier);
            let kept = self.orphans.park(parent, &block, copy, &mut self.own, share);
            *(if kept { &mut applied.orphaned } else { &mut applied.given_up }) += 1;
            parent = block.hash;
        }
    }

    fn count_added(&mut self, added: &Added) {
        for (blocks, new) in self.blocks.iter_mut().zip(added.new) {
            *blocks += new;
        }
    }

    fn count(&mut self, change: Change) {
        for (blocks, gone) in self.blocks.iter_mut().zip(change.gone) {
            *blocks -= gone;
        }
        self.given_up += change.cut as u64;
    }
}
