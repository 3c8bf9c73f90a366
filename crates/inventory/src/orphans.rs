//! Blocks whose parent is unknown: kept aside, never credited, until the parent's handle is
//! learned.
//!
//! They are kept block by block and not as runs: what is removed from the middle of a run takes
//! only that block's residency with it, while the blocks after it still know their place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kvasir_kv_hash::{BlockExtra, BlockKey, KeySpace};

use crate::hashing::SeededState;
use crate::index::TierSet;
use crate::stored::Content;
use crate::terms::{EngineHash, Tier};

/// Content that one block may carry before it counts as two against the limit. A block of 1,024
/// tokens still counts as one.
const UNIT_BYTES: usize = 8 * 1024;

/// The orphans of one endpoint, at most one per handle.
#[derive(Debug)]
pub(crate) struct Orphans {
    blocks: HashMap<EngineHash, Orphan, SeededState>,
    /// (parent, block): an ordered set, so that no pattern of parents makes an update slow.
    children: BTreeSet<(EngineHash, EngineHash)>,
    by_age: BTreeMap<u64, EngineHash>,
    next_age: u64,
    weight: usize,
    limit: usize,
}

/// One block whose parent is not known yet.
#[derive(Debug)]
pub(crate) struct Orphan {
    parent: EngineHash,
    tokens: Box<[u32]>,
    extras: Box<[(Box<[u8]>, i64)]>,
    /// Where it is resident, one entry a group; nowhere once all of it was removed.
    copies: Vec<(u8, TierSet)>,
    age: u64,
}

impl Orphan {
    /// The block's key, now that its parent's is known.
    pub(crate) fn key(&self, space: &KeySpace, parent: BlockKey) -> BlockKey {
        let extras: Vec<BlockExtra<'_>> = self
            .extras
            .iter()
            .map(|(identity, offset)| BlockExtra { identity, offset: *offset })
            .collect();
        space.next(parent, &self.tokens, &extras)
    }

    /// Where it is resident, one entry a group.
    pub(crate) fn copies(&self) -> &[(u8, TierSet)] {
        &self.copies
    }

    fn is(&self, parent: EngineHash, block: &Content<'_>) -> bool {
        let kept = self.extras.iter().map(|(identity, offset)| (&**identity, *offset));
        self.parent == parent
            && *self.tokens == *block.tokens
            && kept.eq(block.extras.iter().map(|extra| (extra.identity, extra.offset)))
    }

    fn weight(&self) -> usize {
        let identities: usize = self.extras.iter().map(|(identity, _)| identity.len() + 32).sum();
        1 + (self.tokens.len() * 4 + identities) / UNIT_BYTES
    }
}

impl Orphans {
    /// Keeps at most `limit` blocks, fewer when they are unusually large.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            blocks: HashMap::default(),
            children: BTreeSet::new(),
            by_age: BTreeMap::new(),
            next_age: 0,
            weight: 0,
            limit,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Keeps `block` aside until `parent` is learned; the oldest go when there are too many.
    ///
    /// A handle that already names another orphan is taken for a new block: the old one goes.
    pub(crate) fn park(&mut self, parent: EngineHash, block: &Content<'_>, group: u8, tier: Tier) {
        match self.blocks.get_mut(&block.hash) {
            Some(orphan) if orphan.is(parent, block) => return add_copy(orphan, group, tier),
            Some(_) => drop(self.remove(block.hash)),
            None => {}
        }
        let age = self.next_age;
        self.next_age += 1;
        let extras = block.extras.iter().map(|extra| (extra.identity.into(), extra.offset));
        let orphan = Orphan {
            parent,
            tokens: block.tokens.into(),
            extras: extras.collect(),
            copies: vec![(group, TierSet::of(tier))],
            age,
        };
        self.weight += orphan.weight();
        self.children.insert((parent, block.hash));
        self.by_age.insert(age, block.hash);
        self.blocks.insert(block.hash, orphan);
        while self.weight > self.limit {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.remove(oldest);
        }
    }

    /// Ends one residency of an orphan and keeps what follows from its handle.
    pub(crate) fn remove_copy(&mut self, hash: EngineHash, group: u8, tier: Tier) -> bool {
        let Some(orphan) = self.blocks.get_mut(&hash) else { return false };
        let Some(at) = orphan.copies.iter().position(|(of, _)| *of == group) else { return false };
        let tiers = &mut orphan.copies[at].1;
        let there = tiers.contains(tier);
        *tiers = tiers.without(tier);
        if tiers.is_empty() {
            orphan.copies.swap_remove(at);
        }
        there
    }

    /// Takes out one orphan that waits for `parent`.
    pub(crate) fn take_child(&mut self, parent: EngineHash) -> Option<(EngineHash, Orphan)> {
        let all = (parent, EngineHash(u64::MIN))..=(parent, EngineHash(u64::MAX));
        let hash = self.children.range(all).next()?.1;
        self.remove(hash).map(|orphan| (hash, orphan))
    }

    /// Takes out the orphan of this handle.
    pub(crate) fn remove(&mut self, hash: EngineHash) -> Option<Orphan> {
        let orphan = self.blocks.remove(&hash)?;
        self.children.remove(&(orphan.parent, hash));
        self.by_age.remove(&orphan.age);
        self.weight -= orphan.weight();
        Some(orphan)
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.limit);
    }
}

fn add_copy(orphan: &mut Orphan, group: u8, tier: Tier) {
    match orphan.copies.iter_mut().find(|(of, _)| *of == group) {
        Some((_, tiers)) => *tiers = tiers.with(tier),
        None => orphan.copies.push((group, TierSet::of(tier))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(hash: u64, tokens: &[u32]) -> Content<'_> {
        Content { hash: EngineHash(hash), tokens, extras: &[] }
    }

    #[test]
    fn the_oldest_orphan_goes_first_and_large_ones_count_more() {
        let mut orphans = Orphans::new(3);
        let parent = EngineHash(100);
        for hash in 1..=4 {
            orphans.park(parent, &block(hash, &[1, 2]), 0, Tier::Device);
        }
        assert_eq!(orphans.len(), 3);
        assert!(orphans.remove(EngineHash(1)).is_none());
        let large = vec![7; 4096];
        orphans.park(parent, &block(5, &large), 0, Tier::Device);
        assert_eq!(orphans.len(), 1);
        orphans.park(parent, &block(6, &vec![7; 1 << 16]), 0, Tier::Device);
        assert_eq!((orphans.len(), orphans.weight), (0, 0));
        assert!(orphans.children.is_empty() && orphans.by_age.is_empty());
    }

    #[test]
    fn a_repeated_orphan_adds_copies_and_another_one_replaces() {
        let mut orphans = Orphans::new(10);
        orphans.park(EngineHash(9), &block(1, &[1, 2]), 0, Tier::Device);
        orphans.park(EngineHash(9), &block(1, &[1, 2]), 0, Tier::Host);
        orphans.park(EngineHash(9), &block(1, &[1, 2]), 3, Tier::Host);
        assert!(orphans.remove_copy(EngineHash(1), 0, Tier::Device));
        assert!(!orphans.remove_copy(EngineHash(1), 0, Tier::Device));
        let host = TierSet::of(Tier::Host);
        assert_eq!(orphans.blocks[&EngineHash(1)].copies(), [(0, host), (3, host)]);
        orphans.park(EngineHash(8), &block(1, &[1, 2]), 0, Tier::Disk);
        assert!(orphans.take_child(EngineHash(9)).is_none());
        let only = |tier| [(0, TierSet::of(tier))];
        assert_eq!(orphans.blocks[&EngineHash(1)].copies(), only(Tier::Disk));
        orphans.park(EngineHash(8), &block(1, &[1, 3]), 0, Tier::Host);
        assert_eq!(orphans.blocks[&EngineHash(1)].copies(), only(Tier::Host));
        let extras = [BlockExtra { identity: b"i", offset: 0 }];
        let other = Content { extras: &extras, ..block(1, &[1, 3]) };
        orphans.park(EngineHash(8), &other, 0, Tier::Remote);
        let (hash, orphan) = orphans.take_child(EngineHash(8)).unwrap();
        assert_eq!((hash, orphan.copies()), (EngineHash(1), &only(Tier::Remote)[..]));
    }
}
