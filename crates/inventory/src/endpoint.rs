//! One endpoint's own part: what its handles stand for, what waits for a parent, which cache
//! groups it has. All rules about what an event means are here.

use kvasir_kv_hash::{BlockKey, KeySpace};

use crate::handles::{Handles, Was};
use crate::index::{Change, TierSet};
use crate::orphans::Orphans;
use crate::residency::{Limits, SlotStats};
use crate::stored::{Applied, Group, GroupKind, StoredBlocks};
use crate::terms::{EngineHash, Tier};
use crate::writer::Writer;

/// The state of one slot.
///
/// A handle is known (live or retired) or names an orphan or is unknown, never two of these. Where
/// a block is resident there is a live handle that stands for it; its inverse does not hold: of
/// two handles for one block, one can outlive the residency that the other's removal ended.
#[derive(Debug)]
pub(crate) struct Endpoint {
    registered: bool,
    handles: Handles,
    orphans: Orphans,
    groups: Groups,
    unsupported_group: bool,
    blocks: [usize; 4],
    aliased_keys: u64,
}

/// How the blocks of a store event are to be understood. Made before readers are locked out.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Not at all.
    Refuse,
    /// By their handles alone.
    Resolve,
    /// As blocks with these keys.
    Chain(Vec<BlockKey>),
    /// As blocks that follow an unknown one.
    Orphans(EngineHash),
}

impl Endpoint {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            registered: true,
            handles: Handles::new(limits.retired_handles),
            orphans: Orphans::new(limits.orphans),
            groups: Groups::default(),
            unsupported_group: false,
            blocks: [0; 4],
            aliased_keys: 0,
        }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered
    }

    pub(crate) fn unregister(&mut self, writer: &mut Writer<'_>) {
        self.registered = false;
        self.clear(writer);
    }

    pub(crate) fn plan(&self, space: &KeySpace, blocks: &StoredBlocks<'_>) -> Plan {
        if blocks.group.kind == GroupKind::Unsupported {
            return Plan::Refuse;
        }
        if blocks.tokens.is_empty() {
            return Plan::Resolve;
        }
        let Some(contents) = blocks.contents() else { return Plan::Refuse };
        let mut parent = match blocks.parent {
            None => blocks.root,
            Some(hash) => match self.handles.get(hash) {
                Some(key) => key,
                None => return Plan::Orphans(hash),
            },
        };
        let mut scratch = Vec::new();
        let keys = contents.map(|block| {
            parent = space.next_with(&mut scratch, parent, block.tokens, block.extras);
            parent
        });
        Plan::Chain(keys.collect())
    }

    /// Applies a store event that was planned under the same lock.
    pub(crate) fn store(
        &mut self,
        space: &KeySpace,
        blocks: &StoredBlocks<'_>,
        plan: Plan,
        writer: &mut Writer<'_>,
    ) -> Applied {
        let mut applied = Applied::default();
        self.see(blocks.group, writer);
        let copies = [(blocks.group.index, TierSet::of(blocks.tier))];
        match plan {
            Plan::Refuse => applied.refused = blocks.hashes.len(),
            Plan::Resolve => {
                for hash in blocks.hashes {
                    match self.handles.get(*hash) {
                        Some(key) => applied.stored += self.learn(*hash, key, &copies, writer),
                        None => applied.refused += 1,
                    }
                }
            }
            Plan::Chain(keys) => {
                for (hash, key) in blocks.hashes.iter().zip(keys) {
                    applied.stored += self.learn(*hash, key, &copies, writer);
                    applied.stored += self.join(space, *hash, key, writer);
                }
            }
            Plan::Orphans(parent) => applied.orphaned = self.park(parent, blocks, writer),
        }
        applied
    }

    /// Ends the residency of `hashes` in one tier of one group; how many were there.
    pub(crate) fn remove(
        &mut self,
        hashes: &[EngineHash],
        tier: Tier,
        group: u8,
        writer: &mut Writer<'_>,
    ) -> usize {
        let mut removed = 0;
        for hash in hashes {
            removed += usize::from(match self.handles.get(*hash) {
                Some(key) => {
                    let change = writer.remove(key, group, tier);
                    self.count(change);
                    if change.after.is_empty() {
                        self.handles.retire(*hash, key);
                    }
                    change.changed
                }
                None => self.orphans.remove_copy(*hash, group, tier),
            });
        }
        removed
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, writer: &mut Writer<'_>) {
        // Readers that look in between see nothing rather than what is left so far.
        writer.require(0);
        for key in self.handles.take() {
            let change = writer.evict(key);
            self.count(change);
        }
        debug_assert_eq!(self.blocks, [0; 4], "residency without a live handle");
        self.orphans.clear();
        self.groups = Groups::default();
        self.unsupported_group = false;
        self.aliased_keys = 0;
    }

    pub(crate) fn stats(&self) -> SlotStats {
        SlotStats {
            blocks: self.blocks,
            orphans: self.orphans.len(),
            unsupported_group: self.unsupported_group,
            aliased_keys: self.aliased_keys,
        }
    }

    /// Notes that the endpoint has this cache group: from now on it has to hold a block, too.
    fn see(&mut self, group: Group, writer: &mut Writer<'_>) {
        match group.kind {
            GroupKind::FullAttention => self.groups.insert(group.index),
            GroupKind::Unsupported => self.unsupported_group = true,
        }
        writer.require(if self.unsupported_group { 0 } else { self.groups.len() });
    }

    /// Makes `hash` stand for `key` and credits its copies; a block without any leaves only its
    /// place in the chain. Returns the number of credited blocks.
    fn learn(
        &mut self,
        hash: EngineHash,
        key: BlockKey,
        copies: &[(u8, TierSet)],
        writer: &mut Writer<'_>,
    ) -> usize {
        if self.orphans.len() > 0 {
            self.orphans.remove(hash);
        }
        if copies.is_empty() {
            self.handles.retire(hash, key);
            return 0;
        }
        let was = self.handles.learn(hash, key);
        if let Some(old) = was.key().filter(|old| *old != key) {
            self.evict(old, writer);
        }
        let mut held = false;
        for (at, (group, tiers)) in copies.iter().enumerate() {
            let change = writer.add(key, *group, *tiers);
            held |= at == 0 && !change.before.is_empty();
            self.count(change);
        }
        if held && was != Was::Live(key) {
            self.aliased_keys += 1;
        }
        1
    }

    /// Joins the orphans that wait for `hash`, those that wait for them, and so on.
    fn join(
        &mut self,
        space: &KeySpace,
        hash: EngineHash,
        key: BlockKey,
        writer: &mut Writer<'_>,
    ) -> usize {
        let mut credited = 0;
        if self.orphans.len() == 0 {
            return credited;
        }
        let mut parents = vec![(hash, key)];
        while let Some((parent, parent_key)) = parents.pop() {
            while let Some((hash, orphan)) = self.orphans.take_child(parent) {
                let key = orphan.key(space, parent_key);
                credited += self.learn(hash, key, orphan.copies(), writer);
                parents.push((hash, key));
            }
        }
        credited
    }

    /// Keeps blocks aside. A handle that was known until now may have been used again for another
    /// block: what it stood for loses its credit, and its later children wait as well.
    fn park(
        &mut self,
        mut parent: EngineHash,
        blocks: &StoredBlocks<'_>,
        writer: &mut Writer<'_>,
    ) -> usize {
        let mut parked = 0;
        for block in blocks.contents().into_iter().flatten() {
            if let Some(old) = self.handles.forget(block.hash) {
                self.evict(old, writer);
            }
            self.orphans.park(parent, &block, blocks.group.index, blocks.tier);
            parent = block.hash;
            parked += 1;
        }
        parked
    }

    fn evict(&mut self, key: BlockKey, writer: &mut Writer<'_>) {
        let change = writer.evict(key);
        self.count(change);
    }

    fn count(&mut self, change: Change) {
        for (tier, blocks) in Tier::ALL.into_iter().zip(&mut self.blocks) {
            match (change.before.contains(tier), change.after.contains(tier)) {
                (false, true) => *blocks += 1,
                (true, false) => *blocks -= 1,
                _ => {}
            }
        }
    }
}

/// The full-attention groups seen since the last clear.
#[derive(Debug, Default)]
struct Groups([u64; 4]);

impl Groups {
    fn insert(&mut self, group: u8) {
        self.0[usize::from(group / 64)] |= 1 << (group % 64);
    }

    fn len(&self) -> u16 {
        self.0.iter().map(|word| word.count_ones() as u16).sum()
    }
}
