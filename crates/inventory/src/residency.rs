//! The inventory itself.

use std::fmt;

use kvasir_kv_hash::{BlockKey, KeySpace};

use crate::endpoint::{Endpoint, Shared};
use crate::gates::Gates;
use crate::index::Index;
use crate::keying;
use crate::overlap::{Overlap, Overlaps};
use crate::query;
use crate::slots::Slots;
use crate::stored::{Applied, StoredBlocks};
use crate::terms::{EngineHash, Tier};

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

/// Bounds on what the inventory keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that the inventory may allocate in all. Each registered endpoint takes a few thousand
    /// more, whatever it holds.
    pub bytes: usize,
    /// Bytes that one endpoint may be charged for: its handles, what it has kept aside, and eight
    /// for each of its blocks.
    pub endpoint_bytes: usize,
    /// Handles remembered per endpoint after their block went away, for late children and
    /// token-less events.
    pub retired_handles: usize,
    /// Blocks kept aside per endpoint until their parent or their handle is learned.
    pub orphans: usize,
}

impl Default for Limits {
    /// Four GiB, some 10^8 blocks; one endpoint may take all of it.
    fn default() -> Self {
        Self { bytes: 4 << 30, endpoint_bytes: 4 << 30, retired_handles: 65_536, orphans: 16_384 }
    }
}

/// Sizes of one endpoint's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStats {
    /// Blocks resident in any group, per tier in the order of [`Tier::ALL`].
    pub blocks: [usize; 4],
    /// Blocks kept aside.
    pub orphans: usize,
    /// Whether a group of an unsupported kind, or one of two kinds, was seen since the last clear.
    pub unsupported_group: bool,
    /// How often, since the last clear, a block was stored under a second handle while it was
    /// resident under a first one: evidence that the engine separates blocks (by a salt, an
    /// adapter, an image) without publishing by what.
    pub aliased_keys: u64,
    /// Blocks given up since the last clear to stay within the byte budget: the endpoint may hold
    /// them still.
    pub given_up: u64,
    /// The same since the endpoint was registered.
    pub given_up_ever: u64,
    /// Bytes the endpoint is charged for.
    pub bytes: usize,
}

/// One block that an endpoint holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSample {
    /// Its key.
    pub key: BlockKey,
    /// Its distance from the start of its prompt, in blocks.
    pub depth: u32,
    /// Where copies of it are.
    pub tiers: Vec<Tier>,
}

/// Residency of many endpoints.
///
/// All methods may be called from many threads. The events of one endpoint are applied in the
/// order of the calls, those of different endpoints side by side. A reader waits for single steps
/// of an update only, not for a whole event; so it may see an event half applied: the first blocks
/// of a store, or some of a removal's blocks already gone. What it reports was all there at one
/// moment during the call.
///
/// Above 15/16 of its bytes the inventory makes the endpoint that is charged for most give up
/// blocks, the ends of prompts before their beginnings; what then does not fit is not stored.
/// [`SlotStats::given_up`] counts both.
///
/// A slot that was unregistered means nothing until it is given out again: stores to it are
/// refused, removals find nothing.
// Locks are taken in this order: an endpoint's own, then the gates', then the index's. The list of
// slots is never held together with another.
pub struct Inventory {
    space: KeySpace,
    limits: Limits,
    slots: Slots,
    gates: Gates,
    index: Index,
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
        let index = Index::new(limits.bytes);
        Self { space, limits, slots: Slots::default(), gates: Gates::default(), index }
    }

    /// The space of the keys: prompts have to be keyed in the same one.
    #[must_use]
    pub fn space(&self) -> &KeySpace {
        &self.space
    }

    /// The keys of a prompt's full blocks, for engines whose blocks are known by the `lookahead`
    /// tokens behind them as well (0 for others): a block without that many has no key yet.
    #[must_use]
    pub fn keys(
        &self,
        root: BlockKey,
        tokens: &[u32],
        block_size: usize,
        lookahead: usize,
    ) -> Vec<BlockKey> {
        keying::chain_ahead(&self.space, root, tokens, block_size, lookahead)
    }

    /// The keys of a prompt's blocks that are known by the engine's own hashes
    /// ([`Identity::Engine`](crate::Identity)): `hashes` are those of all of its blocks, in order.
    #[must_use]
    pub fn engine_keys(&self, root: BlockKey, hashes: &[EngineHash]) -> Vec<BlockKey> {
        keying::engine_chain(&self.space, root, hashes)
    }

    /// The bounds it keeps.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Bytes allocated now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.index.budget().used()
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
        if self.on(slot, Endpoint::unregister).is_some() {
            self.slots.give_back(slot);
        }
    }

    /// Applies a store event.
    ///
    /// Each block is the parent of the next; the first one follows the block that `parent` names
    /// at this endpoint, or the root. Blocks with an unknown parent are kept aside and join as
    /// soon as it is learned; [`Applied::stored`] counts those that joined as well.
    ///
    /// An event without tokens credits the blocks that its handles stand for, whatever its block
    /// size, and is kept aside for handles that are unknown yet; so is an event of a group that
    /// may skip blocks and carries more tokens than blocks. Any other event whose tokens, extras
    /// or lookahead tokens do not line up with its handles is refused as a whole, and so are blocks
    /// of an unsupported group.
    ///
    /// A handle that was in use for another block ends that block's residency at this endpoint, in
    /// all tiers and groups.
    pub fn store(&self, slot: Slot, blocks: &StoredBlocks<'_>) -> Applied {
        if self.bytes() > self.index.budget().high_water() {
            self.make_room();
        }
        self.on(slot, |endpoint, shared| endpoint.store(blocks, shared))
            .unwrap_or(Applied { refused: blocks.hashes.len(), ..Applied::default() })
    }

    /// Applies a removal: ends the residency of `hashes` in one tier of one group and leaves the
    /// others. Returns how many of them were resident, or kept aside as resident, there.
    ///
    /// The handles stay known, within [`Limits::retired_handles`].
    pub fn remove(&self, slot: Slot, hashes: &[EngineHash], tier: Tier, group_index: u8) -> usize {
        self.on(slot, |endpoint, shared| endpoint.remove(hashes, tier, group_index, shared))
            .unwrap_or(0)
    }

    /// Forgets all that was learned of an endpoint: blocks, handles, orphans, groups.
    pub fn clear(&self, slot: Slot) {
        let _ = self.on(slot, Endpoint::clear);
    }

    /// What every endpoint holds of the prompt whose full blocks are `keys`, in tokens of
    /// `block_size` a block, in one pass.
    ///
    /// The prefix is the longest that every cache group seen on the endpoint since its last clear
    /// holds (see [`GroupKind`](crate::GroupKind)). For each block the fastest tier of a group
    /// counts, and of the groups that need the block the slowest.
    #[must_use]
    pub fn overlaps(&self, keys: &[BlockKey], block_size: u32) -> Overlaps {
        query::overlaps(&self.index, &self.gates, keys, block_size)
    }

    /// What [`overlaps`](Self::overlaps) says of one endpoint.
    #[must_use]
    pub fn overlap_of(&self, slot: Slot, keys: &[BlockKey], block_size: u32) -> Overlap {
        query::overlap_of(&self.index, &self.gates, slot, keys, block_size)
    }

    /// How much of one endpoint is known; nothing for a slot that is not there.
    #[must_use]
    pub fn stats(&self, slot: Slot) -> SlotStats {
        self.on(slot, |endpoint, _| endpoint.stats()).unwrap_or_default()
    }

    /// Whether an endpoint holds a block in a tier other than the engine's own memory, as far as is known.
    #[must_use]
    pub fn is_offloaded(&self, slot: Slot, hash: EngineHash) -> bool {
        self.on(slot, |endpoint, shared| endpoint.is_offloaded(hash, shared)).unwrap_or(false)
    }

    /// Up to `limit` of an endpoint's blocks, which are none in particular, for people; nothing for a
    /// slot that is not there. Takes time in proportion to `limit`, whatever the endpoint holds.
    #[must_use]
    pub fn sample(&self, slot: Slot, limit: usize) -> Vec<BlockSample> {
        self.on(slot, |endpoint, shared| endpoint.sample(limit, shared)).unwrap_or_default()
    }

    /// The engine's own handles of an endpoint's blocks, in ascending order; at most `limit` of them, and
    /// nothing for a slot that is not there. The endpoint's events wait meanwhile.
    #[must_use]
    pub fn hashes(&self, slot: Slot, limit: usize) -> Vec<EngineHash> {
        self.on(slot, |endpoint, shared| endpoint.hashes(limit, shared)).unwrap_or_default()
    }

    /// Runs a call on an endpoint; `None` when there is none.
    fn on<T>(&self, slot: Slot, call: impl FnOnce(&mut Endpoint, Shared<'_>) -> T) -> Option<T> {
        let Self { space, index, gates, .. } = self;
        let shared = Shared { space, index, gates, slot };
        self.slots.get(slot)?.with(|endpoint| call(endpoint, shared))
    }

    /// Lets the endpoint that is charged for most give up blocks.
    fn make_room(&self) {
        let Self { space, index, gates, .. } = self;
        let Some((slot, cell)) = self.slots.largest() else { return };
        let shared = Shared { space, index, gates, slot };
        cell.with(|endpoint| endpoint.give_up_tails(shared));
    }

    /// Runs of blocks that any endpoint knows.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> usize {
        self.index.runs()
    }
}

#[cfg(test)]
mod tests;
