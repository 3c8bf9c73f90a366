//! The inventory itself.

use std::fmt;

use kvasir_kv_hash::{BlockKey, KeySpace};
use parking_lot::RwLock;

use crate::index::Index;
use crate::overlap::{Overlap, Overlaps};
use crate::query;
use crate::slots::Slots;
use crate::stored::{Applied, StoredBlocks};
use crate::terms::{EngineHash, Tier};
use crate::writer::Writer;

/// An endpoint's place in an [`Inventory`], from [`Inventory::register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    pub(crate) fn new(number: u16) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Bounds on what one endpoint may make the inventory keep.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Handles remembered per endpoint after their block went away, for late children and
    /// token-less events.
    pub retired_handles: usize,
    /// Blocks kept aside per endpoint until their parent appears.
    pub orphans: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { retired_handles: 65_536, orphans: 16_384 }
    }
}

/// Sizes of one endpoint's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStats {
    /// Blocks resident in any group, per tier in the order of [`Tier::ALL`].
    pub blocks: [usize; 4],
    /// Blocks kept aside.
    pub orphans: usize,
    /// Whether a group of an unsupported kind was seen since the last clear.
    pub unsupported_group: bool,
    /// How often, since the last clear, a block was stored under a second handle while it was
    /// resident under a first one: evidence that the engine separates blocks (by a salt, an
    /// adapter, an image) without publishing by what.
    pub aliased_keys: u64,
}

/// Residency of many endpoints.
///
/// All methods may be called from many threads. The events of one endpoint are applied in the
/// order of the calls, those of different endpoints side by side. A reader waits for a few dozen
/// updates at most, not for a whole event; so it may see an event half applied: the first blocks
/// of a store, or some of a removal's blocks already gone.
///
/// A slot that was unregistered means nothing until it is given out again: stores to it are
/// refused, removals find nothing.
// Locks are taken in this order: an endpoint's own, then the index. The list of slots is never
// held together with another.
pub struct Inventory {
    space: KeySpace,
    limits: Limits,
    slots: Slots,
    index: RwLock<Index>,
}

impl fmt::Debug for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inventory").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Inventory {
    /// An empty inventory whose blocks are keyed in `space`.
    #[must_use]
    pub fn new(space: KeySpace, limits: Limits) -> Self {
        Self { space, limits, slots: Slots::default(), index: RwLock::new(Index::new()) }
    }

    /// The space of the keys: prompts have to be keyed in the same one.
    #[must_use]
    pub fn space(&self) -> &KeySpace {
        &self.space
    }

    /// A place for one more endpoint; `None` when all 65,535 are in use.
    #[must_use]
    pub fn register(&self) -> Option<Slot> {
        self.slots.take(self.limits)
    }

    /// Forgets an endpoint and frees its slot, in time proportional to the endpoint's own blocks.
    ///
    /// The slot is given out again only after all of its blocks are gone. Whoever gives it up must
    /// not use it any more.
    pub fn unregister(&self, slot: Slot) {
        let Some(endpoint) = self.slots.get(slot) else { return };
        {
            let mut endpoint = endpoint.lock();
            if !endpoint.is_registered() {
                return;
            }
            endpoint.unregister(&mut Writer::new(&self.index, slot));
        }
        self.slots.give_back(slot);
    }

    /// Applies a store event.
    ///
    /// Each block is the parent of the next; the first one follows the block that `parent` names
    /// at this endpoint, or the root. Blocks with an unknown parent are kept aside and join as
    /// soon as it is learned; [`Applied::stored`] counts those that joined as well. An event
    /// without tokens credits the blocks that its handles are known to stand for, whatever its
    /// block size. Any other event whose tokens or extras do not line up with its handles is
    /// refused as a whole, and so are blocks of an unsupported group.
    ///
    /// A handle that was in use for another block ends that block's residency at this endpoint, in
    /// all tiers and groups.
    pub fn store(&self, slot: Slot, blocks: &StoredBlocks<'_>) -> Applied {
        let refused = Applied { refused: blocks.hashes.len(), ..Applied::default() };
        let Some(endpoint) = self.slots.get(slot) else { return refused };
        let mut endpoint = endpoint.lock();
        if !endpoint.is_registered() {
            return refused;
        }
        let plan = endpoint.plan(&self.space, blocks);
        endpoint.store(&self.space, blocks, plan, &mut Writer::new(&self.index, slot))
    }

    /// Applies a removal: ends the residency of `hashes` in one tier of one group and leaves the
    /// others. Returns how many of them were resident, or kept aside as resident, there.
    ///
    /// The handles stay known, within [`Limits::retired_handles`].
    pub fn remove(&self, slot: Slot, hashes: &[EngineHash], tier: Tier, group_index: u8) -> usize {
        let Some(endpoint) = self.slots.get(slot) else { return 0 };
        let mut endpoint = endpoint.lock();
        if hashes.is_empty() || !endpoint.is_registered() {
            return 0;
        }
        endpoint.remove(hashes, tier, group_index, &mut Writer::new(&self.index, slot))
    }

    /// Forgets all that was learned of an endpoint: blocks, handles, orphans, groups.
    pub fn clear(&self, slot: Slot) {
        let Some(endpoint) = self.slots.get(slot) else { return };
        let mut endpoint = endpoint.lock();
        if endpoint.is_registered() {
            endpoint.clear(&mut Writer::new(&self.index, slot));
        }
    }

    /// What every endpoint holds of the prompt whose full blocks are `keys`, in tokens of
    /// `block_size` a block: without a hole from the first block on, in one pass.
    ///
    /// A block counts when every full-attention group seen on the endpoint since its last clear
    /// holds it. In each group the fastest tier counts, among the groups the slowest.
    #[must_use]
    pub fn overlaps(&self, keys: &[BlockKey], block_size: u32) -> Overlaps {
        query::overlaps(&self.index, keys, block_size)
    }

    /// What [`overlaps`](Self::overlaps) says of one endpoint.
    #[must_use]
    pub fn overlap_of(&self, slot: Slot, keys: &[BlockKey], block_size: u32) -> Overlap {
        query::overlap_of(&self.index, slot, keys, block_size)
    }

    /// How much of one endpoint is known; nothing for a slot that is not there.
    #[must_use]
    pub fn stats(&self, slot: Slot) -> SlotStats {
        self.slots.get(slot).map(|endpoint| endpoint.lock().stats()).unwrap_or_default()
    }

    /// Blocks that any endpoint holds.
    #[cfg(test)]
    pub(crate) fn distinct_blocks(&self) -> usize {
        self.index.read().len()
    }
}

#[cfg(test)]
mod tests;
