//! A run of blocks, each the parent of the next, and who holds which of them.

use std::ops::Range;

use kvasir_kv_hash::BlockKey;

use super::holder::{self, Holder, KNOWN, Place};
use super::{Change, NO_RUN, Put, RunId};
use crate::budget::{Bytes, grow, shrink, vec_bytes};
use crate::residency::Slot;
use crate::terms::Tier;
use crate::tiers::TierSet;

/// The longest run: no lock is held for longer than it takes to move one.
pub(super) const LONGEST: usize = 8192;

/// One run. A free one has no keys.
pub(super) struct Node {
    keys: Vec<BlockKey>,
    holders: Vec<Holder>,
    /// The first block's place in its prompt.
    pub(super) depth: u32,
    /// The next free one.
    pub(super) next_free: u32,
    /// The run that has the first block's parent.
    parent: RunId,
    /// Runs that this is the parent of.
    branches: u32,
    /// Behind the last block that any of them branches off from.
    branched: u16,
}

impl Default for Node {
    fn default() -> Self {
        Self::new(0, None)
    }
}

/// Blocks that were added, and what was there before.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// Blocks that the endpoint had a handle for already, by their place in the run.
    pub(crate) known: Vec<u16>,
    /// Blocks that were new in a tier, per tier.
    pub(crate) new: [usize; 4],
    /// Blocks that had a copy already.
    pub(crate) held: usize,
}

impl Node {
    pub(super) fn new(depth: u32, parent: Option<RunId>) -> Self {
        Self {
            keys: Vec::new(),
            holders: Vec::new(),
            depth,
            next_free: 0,
            parent: parent.unwrap_or(NO_RUN),
            branches: 0,
            branched: 0,
        }
    }

    pub(super) fn parent(&self) -> Option<RunId> {
        Some(self.parent).filter(|run| *run != NO_RUN)
    }

    /// Notes a run whose first block follows the block at `offset`.
    pub(super) fn branch(&mut self, offset: u16) {
        self.branches += 1;
        self.branched = self.branched.max(offset + 1);
    }

    /// Notes that such a run is gone.
    pub(super) fn unbranch(&mut self) {
        self.branches = self.branches.saturating_sub(1);
        if self.branches == 0 {
            self.branched = 0;
        }
    }

    pub(super) fn has_branches(&self) -> bool {
        self.branches > 0
    }

    pub(super) fn keys(&self) -> &[BlockKey] {
        &self.keys
    }

    pub(super) fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// How many blocks from `from` on are those of `keys`, which follow each other.
    ///
    /// A key stands for all before it: where one is equal, those before it are.
    pub(super) fn common(&self, from: usize, keys: &[BlockKey]) -> usize {
        let there = self.keys.get(from..).unwrap_or_default();
        let most = there.len().min(keys.len());
        let equal = |at: usize| there[at] == keys[at];
        if most == 0 || !equal(0) {
            return 0;
        }
        if equal(most - 1) {
            return most;
        }
        let (mut yes, mut no) = (0, most - 1);
        while no - yes > 1 {
            let middle = yes.midpoint(no);
            if equal(middle) { yes = middle } else { no = middle }
        }
        no
    }

    /// Appends blocks that nobody holds yet; `false` when the bytes do not suffice.
    pub(super) fn append(&mut self, keys: &[BlockKey], bytes: &mut impl Bytes) -> bool {
        let fits = grow(&mut self.keys, keys.len(), bytes);
        if fits {
            self.keys.extend_from_slice(keys);
        }
        fits
    }

    /// Takes back blocks at the end that nobody holds or follows, and what they need not take.
    pub(super) fn trim(&mut self, bytes: &mut impl Bytes) {
        let ends = self.holders.iter().map(|holder| usize::from(holder.end()));
        let end = ends.max().unwrap_or(0).max(usize::from(self.branched));
        self.keys.truncate(end);
        shrink(&mut self.keys, bytes);
        shrink(&mut self.holders, bytes);
    }

    pub(super) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.branches == 0
    }

    /// Gives everything back.
    pub(super) fn release(&mut self, bytes: &mut impl Bytes) {
        bytes.give(vec_bytes::<BlockKey>(self.keys.capacity()));
        bytes.give(vec_bytes::<Holder>(self.holders.capacity()));
        *self = Self::default();
    }

    /// Adds copies of blocks and the mark that the endpoint knows them; `None`, and nothing done,
    /// when the bytes do not suffice.
    pub(super) fn add(
        &mut self,
        range: Range<u16>,
        put: Put,
        bytes: &mut impl Bytes,
    ) -> Option<Added> {
        let Put { slot, group, tiers } = put;
        let mut added = Added::default();
        let known = holder::marked(&self.holders, slot, &range, KNOWN);
        for (tier, new) in Tier::ALL.into_iter().zip(&mut added.new) {
            if tiers.contains(tier) {
                let mask = TierSet::of(tier).0;
                let old =
                    known.as_ref().and_then(|_| holder::marked(&self.holders, slot, &range, mask));
                *new = range.len() - old.map_or(0, |old| old.len());
            }
        }
        if known.is_some() {
            let held = holder::marked(&self.holders, slot, &range, TierSet::ALL.0);
            added.held = held.map_or(0, |held| held.len());
        }
        let place = Place { slot, group };
        let mark = |marks: u8| marks | tiers.0;
        let both = |marks: u8| marks | tiers.0 | KNOWN;
        if place == Place::known(slot) {
            if !holder::change(&mut self.holders, place, range, both, bytes) {
                return None;
            }
        } else {
            // Room for both first: neither change without the other.
            if !grow(&mut self.holders, 4, bytes) {
                return None;
            }
            holder::change(&mut self.holders, place, range.clone(), mark, bytes);
            let known = |marks: u8| marks | KNOWN;
            holder::change(&mut self.holders, Place::known(slot), range, known, bytes);
        }
        added.known = known.unwrap_or_default();
        Some(added)
    }

    /// Keeps of an endpoint's copies of one block, in one group or in all, what `keep` names.
    ///
    /// Where there is no room to tell that block from its neighbours, they lose their copies too.
    pub(super) fn reduce(
        &mut self,
        at: u16,
        slot: Slot,
        group: Option<u8>,
        keep: TierSet,
        bytes: &mut impl Bytes,
    ) -> Change {
        let range = at..at + 1;
        let before = holder::tiers_at(&self.holders, slot, at);
        let mut change = Change::default();
        let pieces = &self.holders[holder::of_slot(&self.holders, slot)];
        let affected = |h: &&Holder| {
            h.is_at(at) && group.is_none_or(|g| g == h.group()) && !h.tiers().is_within(keep)
        };
        let groups: Vec<u8> = pieces.iter().filter(affected).map(|h| h.group()).collect();
        for group in groups {
            change.changed = true;
            let place = Place { slot, group };
            let to = |marks: u8| marks & (keep.0 | KNOWN);
            if !holder::change(&mut self.holders, place, range.clone(), to, bytes) {
                self.cut(slot, &range, &mut change);
            }
        }
        let after = holder::tiers_at(&self.holders, slot, at);
        for (tier, gone) in Tier::ALL.into_iter().zip(&mut change.gone) {
            *gone += usize::from(before.contains(tier) && !after.contains(tier));
        }
        Change { before, after, ..change }
    }

    /// Ends the residency of every piece that overlaps `range`, and notes what that costs others.
    fn cut(&mut self, slot: Slot, range: &Range<u16>, change: &mut Change) {
        let count = |holders: &[Holder], mask: u8| {
            let marked = holder::marked(holders, slot, &(0..LONGEST as u16), mask);
            marked.map_or(0, |blocks| blocks.iter().filter(|at| !range.contains(at)).count())
        };
        let masks = Tier::ALL.map(|tier| TierSet::of(tier).0);
        let (tiers, any) = (masks.map(|m| count(&self.holders, m)), count(&self.holders, 0xf));
        holder::change_whole(&mut self.holders, slot, range, KNOWN);
        for ((gone, mask), before) in change.gone.iter_mut().zip(masks).zip(tiers) {
            *gone += before - count(&self.holders, mask);
        }
        change.cut += any - count(&self.holders, 0xf);
    }

    /// Takes the mark that the endpoint has handles for a block, and with it any copies.
    pub(super) fn forget(&mut self, at: u16, slot: Slot, bytes: &mut impl Bytes) -> Change {
        let change = self.reduce(at, slot, None, TierSet::default(), bytes);
        // Without room the mark stays: it costs the bytes of a key, until the next clear.
        let to = |marks: u8| marks & !KNOWN;
        holder::change(&mut self.holders, Place::known(slot), at..at + 1, to, bytes);
        change
    }

    /// Takes everything an endpoint holds of the run.
    pub(super) fn forget_all(&mut self, slot: Slot) {
        let pieces = holder::of_slot(&self.holders, slot);
        self.holders.drain(pieces);
    }
}
