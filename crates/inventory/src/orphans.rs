//! Blocks of which too little is known to credit them: those whose parent is unknown, until its
//! handle is learned, and those known by their handle alone, until it is learned itself.
//!
//! They are kept block by block and not as runs: what is removed from the middle of a run takes
//! only that block's residency with it, while the blocks after it still know their place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kvasir_kv_hash::{BlockExtra, BlockKey};

use crate::budget::{Bytes, Own, Share};
use crate::hashing::SeededState;
use crate::keying::Keyer;
use crate::stored::{Content, Tokens};
use crate::terms::{EngineHash, Tier};
use crate::tiers::TierSet;

/// Content that one block may carry before it counts as two against the limit. A block of 1,024
/// tokens still counts as one.
const UNIT_BYTES: usize = 8 * 1024;
/// What an orphan takes besides its content: its places in three collections.
const ORPHAN_BYTES: usize = 384;

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

/// One block kept aside.
#[derive(Debug)]
pub(crate) struct Orphan {
    /// What it is made of and follows; `None` where only its handle is known.
    place: Option<OrphanPlace>,
    /// Where it is resident, one entry a group; nowhere once all of it was removed.
    copies: Vec<(u8, TierSet)>,
    age: u64,
}

#[derive(Debug)]
struct OrphanPlace {
    parent: EngineHash,
    /// `None` where the handle stands for the block.
    tokens: Option<Box<[u32]>>,
    extras: Box<[(Box<[u8]>, i64)]>,
    lookahead: Box<[u32]>,
}

impl OrphanPlace {
    fn new(parent: EngineHash, block: &Content<'_>) -> Self {
        let extras = block.extras.iter().map(|extra| (extra.identity.into(), extra.offset));
        Self {
            parent,
            tokens: match block.tokens {
                Tokens::Read(tokens) => Some(tokens.into()),
                Tokens::Engine => None,
            },
            extras: extras.collect(),
            lookahead: block.lookahead.into(),
        }
    }

    fn is(&self, parent: EngineHash, block: &Content<'_>) -> bool {
        let kept = self.extras.iter().map(|(identity, offset)| (&**identity, *offset));
        let tokens = match (&self.tokens, block.tokens) {
            (Some(kept), Tokens::Read(tokens)) => **kept == *tokens,
            (None, Tokens::Engine) => true,
            _ => false,
        };
        self.parent == parent
            && tokens
            && *self.lookahead == *block.lookahead
            && kept.eq(block.extras.iter().map(|extra| (extra.identity, extra.offset)))
    }

    fn bytes(&self) -> usize {
        let identities: usize = self.extras.iter().map(|(identity, _)| identity.len() + 48).sum();
        let tokens = self.tokens.as_ref().map_or(0, |tokens| tokens.len());
        (tokens + self.lookahead.len()) * 4 + identities
    }
}

impl Orphan {
    /// The block's key, now that its parent's is known.
    pub(crate) fn key(
        &self,
        hash: EngineHash,
        keyer: &mut Keyer<'_>,
        parent: BlockKey,
    ) -> Option<BlockKey> {
        let place = self.place.as_ref()?;
        let Some(tokens) = &place.tokens else { return Some(keyer.by_hash(parent, hash)) };
        let extras: Vec<BlockExtra<'_>> = place
            .extras
            .iter()
            .map(|(identity, offset)| BlockExtra { identity, offset: *offset })
            .collect();
        Some(keyer.key(parent, tokens, &extras, &place.lookahead))
    }

    /// Where it is resident, one entry a group.
    pub(crate) fn copies(&self) -> &[(u8, TierSet)] {
        &self.copies
    }

    /// The copies of one that is known by its handle alone; those of any other go with its place.
    pub(crate) fn into_bare_copies(self) -> Vec<(u8, TierSet)> {
        if self.place.is_none() { self.copies } else { Vec::new() }
    }

    fn bytes(&self) -> usize {
        ORPHAN_BYTES + self.place.as_ref().map_or(0, OrphanPlace::bytes)
    }

    fn weight(&self) -> usize {
        1 + (self.bytes() - ORPHAN_BYTES) / UNIT_BYTES
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
    /// Whether there was room.
    ///
    /// A handle that already names another orphan is taken for a new block: the old one goes.
    pub(crate) fn park(
        &mut self,
        parent: EngineHash,
        block: &Content<'_>,
        copy: (u8, Tier),
        own: &mut Own,
        share: Share<'_>,
    ) -> bool {
        let mut copies = Vec::new();
        if let Some(orphan) = self.blocks.get_mut(&block.hash) {
            if orphan.place.as_ref().is_some_and(|place| place.is(parent, block)) {
                add_copy(&mut orphan.copies, copy);
                return true;
            }
            copies = self
                .remove(block.hash, own, share)
                .map(Orphan::into_bare_copies)
                .unwrap_or_default();
        }
        add_copy(&mut copies, copy);
        self.keep(block.hash, Some(OrphanPlace::new(parent, block)), copies, own, share)
    }

    /// Keeps a copy aside until `hash` is learned. Whether there was room.
    pub(crate) fn park_bare(
        &mut self,
        hash: EngineHash,
        copy: (u8, Tier),
        own: &mut Own,
        share: Share<'_>,
    ) -> bool {
        if let Some(orphan) = self.blocks.get_mut(&hash) {
            add_copy(&mut orphan.copies, copy);
            return true;
        }
        let mut copies = Vec::new();
        add_copy(&mut copies, copy);
        self.keep(hash, None, copies, own, share)
    }

    /// Ends one residency of an orphan and keeps what follows from its handle.
    pub(crate) fn remove_copy(
        &mut self,
        hash: EngineHash,
        copy: (u8, Tier),
        own: &mut Own,
        share: Share<'_>,
    ) -> bool {
        let (group, tier) = copy;
        let Some(orphan) = self.blocks.get_mut(&hash) else { return false };
        let Some(at) = orphan.copies.iter().position(|(of, _)| *of == group) else { return false };
        let tiers = &mut orphan.copies[at].1;
        let there = tiers.contains(tier);
        *tiers = tiers.without(tier);
        if tiers.is_empty() {
            orphan.copies.swap_remove(at);
        }
        if orphan.copies.is_empty() && orphan.place.is_none() {
            self.remove(hash, own, share);
        }
        there
    }

    /// Takes out one orphan that waits for `parent`.
    pub(crate) fn take_child(
        &mut self,
        parent: EngineHash,
        own: &mut Own,
        share: Share<'_>,
    ) -> Option<(EngineHash, Orphan)> {
        let all = (parent, EngineHash(u64::MIN))..=(parent, EngineHash(u64::MAX));
        let hash = self.children.range(all).next()?.1;
        self.remove(hash, own, share).map(|orphan| (hash, orphan))
    }

    /// Takes out the orphan of this handle.
    pub(crate) fn remove(
        &mut self,
        hash: EngineHash,
        own: &mut Own,
        share: Share<'_>,
    ) -> Option<Orphan> {
        let orphan = self.blocks.remove(&hash)?;
        if let Some(place) = &orphan.place {
            self.children.remove(&(place.parent, hash));
        }
        self.by_age.remove(&orphan.age);
        self.weight -= orphan.weight();
        own.with(share).give(orphan.bytes());
        if self.blocks.is_empty() {
            // Its capacity is paid for by the blocks in it.
            self.blocks = HashMap::default();
        }
        Some(orphan)
    }

    /// Forgets all of them; how many there were.
    pub(crate) fn clear(&mut self, own: &mut Own, share: Share<'_>) -> usize {
        let bytes: usize = self.blocks.values().map(Orphan::bytes).sum();
        own.with(share).give(bytes);
        std::mem::replace(self, Self::new(self.limit)).len()
    }

    fn keep(
        &mut self,
        hash: EngineHash,
        place: Option<OrphanPlace>,
        copies: Vec<(u8, TierSet)>,
        own: &mut Own,
        share: Share<'_>,
    ) -> bool {
        let age = self.next_age;
        self.next_age += 1;
        let orphan = Orphan { place, copies, age };
        if !own.with(share).take(orphan.bytes()) {
            return false;
        }
        self.weight += orphan.weight();
        if let Some(place) = &orphan.place {
            self.children.insert((place.parent, hash));
        }
        self.by_age.insert(age, hash);
        self.blocks.insert(hash, orphan);
        while self.weight > self.limit {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.remove(oldest, own, share);
        }
        self.blocks.contains_key(&hash)
    }
}

fn add_copy(copies: &mut Vec<(u8, TierSet)>, (group, tier): (u8, Tier)) {
    match copies.iter_mut().find(|(of, _)| *of == group) {
        Some((_, tiers)) => *tiers = tiers.with(TierSet::of(tier)),
        None => copies.push((group, TierSet::of(tier))),
    }
}

#[cfg(test)]
mod tests;
