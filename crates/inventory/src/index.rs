//! Which endpoints hold a block: one map for all of them.
//!
//! A block's holders are packed into four bytes per endpoint and cache group and lie sorted by
//! endpoint, so that a walk over a prompt's blocks intersects sorted lists. The only holder of a
//! block lies in the map itself.

use std::collections::HashMap;
use std::ops::Range;

use kvasir_kv_hash::BlockKey;

use crate::hashing::IdentityState;
use crate::residency::Slot;
use crate::terms::Tier;

/// Maps into which the index is cut. A map that grows moves all of its entries while readers
/// wait: that is why there are many small ones.
const PARTS: usize = 1024;

/// A set of tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TierSet(u8);

impl TierSet {
    pub(crate) fn of(tier: Tier) -> Self {
        Self(1 << tier as u8)
    }

    pub(crate) fn with(self, tier: Tier) -> Self {
        Self(self.0 | Self::of(tier).0)
    }

    pub(crate) fn without(self, tier: Tier) -> Self {
        Self(self.0 & !Self::of(tier).0)
    }

    pub(crate) fn contains(self, tier: Tier) -> bool {
        self.0 & Self::of(tier).0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn fastest(self) -> Option<Tier> {
        Tier::ALL.get(self.0.trailing_zeros() as usize).copied()
    }
}

/// One endpoint's copies of one block in one group: slot (16 bits), group (8), tiers (8).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder(u32);

impl Holder {
    pub(crate) fn new(slot: Slot, group: u8, tiers: TierSet) -> Self {
        Self(u32::from(slot.number()) << 16 | u32::from(group) << 8 | u32::from(tiers.0))
    }

    pub(crate) fn slot(self) -> Slot {
        Slot::new((self.0 >> 16) as u16)
    }

    pub(crate) fn group(self) -> u8 {
        (self.0 >> 8) as u8
    }

    pub(crate) fn tiers(self) -> TierSet {
        TierSet(self.0 as u8)
    }

    /// Slot and group: what holders are sorted by and unique in.
    fn place(self) -> u32 {
        self.0 >> 8
    }

    fn merged(self, other: Self) -> Self {
        Self(self.0 | u32::from(other.tiers().0))
    }

    pub(crate) fn with_tiers(self, tiers: TierSet) -> Self {
        Self(self.0 & !0xff | u32::from(tiers.0))
    }
}

/// What one endpoint held of one block in any group, before and after an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) before: TierSet,
    pub(crate) after: TierSet,
    /// Whether anything changed in any single group.
    pub(crate) changed: bool,
}

/// The holders of every block, and how many cache groups each endpoint needs for a credit.
pub(crate) struct Index {
    parts: Box<[Part]>,
    required: Vec<u16>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Part::default()).collect(), required: Vec::new() }
    }

    /// Adds copies of a block.
    pub(crate) fn add(&mut self, key: BlockKey, holder: Holder) -> Change {
        self.parts[part_of(key)].add(key, holder)
    }

    /// Ends the residency of a block in one tier of one group.
    pub(crate) fn remove(&mut self, key: BlockKey, slot: Slot, group: u8, tier: Tier) -> Change {
        self.parts[part_of(key)].keep(key, slot, |holder| {
            if holder.group() == group { holder.tiers().without(tier) } else { holder.tiers() }
        })
    }

    /// Ends the residency of a block in every tier and group of an endpoint.
    pub(crate) fn evict(&mut self, key: BlockKey, slot: Slot) -> Change {
        self.parts[part_of(key)].keep(key, slot, |_| TierSet::default())
    }

    /// Sets how many groups have to hold a block before it counts; 0 for no credit at all.
    pub(crate) fn require(&mut self, slot: Slot, groups: u16) {
        if self.required.len() <= slot.index() {
            self.required.resize(slot.index() + 1, 0);
        }
        self.required[slot.index()] = groups;
    }

    /// The holders of a block, sorted by slot, then by group.
    pub(crate) fn holders(&self, key: BlockKey) -> &[Holder] {
        self.parts[part_of(key)].holders(key)
    }

    /// The tier in which an endpoint holds a block, given all of its [`Holder`]s there: in each
    /// group the fastest counts, among groups the slowest. `None` when a group lacks the block.
    pub(crate) fn credit(&self, slot: Slot, holders: &[Holder]) -> Option<Tier> {
        let required = self.required.get(slot.index()).copied().unwrap_or(0);
        if required == 0 || holders.len() != usize::from(required) {
            return None;
        }
        holders.iter().filter_map(|holder| holder.tiers().fastest()).max()
    }

    /// Blocks that any endpoint holds.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.holders.len()).sum()
    }
}

fn part_of(key: BlockKey) -> usize {
    // Bits that the maps use neither to find a bucket (the lowest) nor to compare (the highest).
    (key.0 >> 40) as usize % PARTS
}

/// Where the holders of one block are.
#[derive(Clone, Copy)]
enum Holders {
    One(Holder),
    /// A place in [`Part::lists`], with two holders or more.
    Many(u32),
}

#[derive(Default)]
struct Part {
    holders: HashMap<BlockKey, Holders, IdentityState>,
    lists: Vec<Vec<Holder>>,
    free: Vec<u32>,
}

impl Part {
    fn holders(&self, key: BlockKey) -> &[Holder] {
        match self.holders.get(&key) {
            None => &[],
            Some(Holders::One(holder)) => std::slice::from_ref(holder),
            Some(Holders::Many(at)) => &self.lists[*at as usize],
        }
    }

    fn add(&mut self, key: BlockKey, holder: Holder) -> Change {
        let Some(holders) = self.holders.get_mut(&key) else {
            self.holders.insert(key, Holders::One(holder));
            return Change { before: TierSet::default(), after: holder.tiers(), changed: true };
        };
        let at = match holders {
            Holders::Many(at) => *at,
            Holders::One(one) if one.place() == holder.place() => {
                let (old, new) = (*one, one.merged(holder));
                *one = new;
                let (before, after) = (old.tiers(), new.tiers());
                return Change { before, after, changed: before != after };
            }
            Holders::One(one) => {
                let list = vec![*one];
                let at = place_list(&mut self.lists, &mut self.free, list);
                *holders = Holders::Many(at);
                at
            }
        };
        let list = &mut self.lists[at as usize];
        let before = union(&list[run(list, holder.slot())]);
        let changed = match list.binary_search_by_key(&holder.place(), |h| h.place()) {
            Ok(there) => {
                let old = list[there];
                list[there] = old.merged(holder);
                list[there] != old
            }
            Err(there) => {
                list.insert(there, holder);
                true
            }
        };
        Change { before, after: TierSet(before.0 | holder.tiers().0), changed }
    }

    /// Reduces every holder of `slot` to the tiers that `left` leaves it.
    fn keep(&mut self, key: BlockKey, slot: Slot, left: impl Fn(Holder) -> TierSet) -> Change {
        match self.holders.get_mut(&key) {
            Some(Holders::One(one)) if one.slot() == slot => {
                let (before, after) = (one.tiers(), left(*one));
                *one = one.with_tiers(after);
                if after.is_empty() {
                    self.holders.remove(&key);
                }
                Change { before, after, changed: before != after }
            }
            Some(Holders::Many(at)) => {
                let at = *at;
                let change = shrink(&mut self.lists[at as usize], slot, left);
                self.settle(key, at);
                change
            }
            _ => Change::default(),
        }
    }

    /// Gives up a list that is no longer needed.
    fn settle(&mut self, key: BlockKey, at: u32) {
        let list = &mut self.lists[at as usize];
        match list[..] {
            [] => drop(self.holders.remove(&key)),
            [one] => drop(self.holders.insert(key, Holders::One(one))),
            _ => return,
        }
        *list = Vec::new();
        self.free.push(at);
    }
}

/// Puts a list where [`Holders::Many`] finds it.
fn place_list(lists: &mut Vec<Vec<Holder>>, free: &mut Vec<u32>, list: Vec<Holder>) -> u32 {
    match free.pop() {
        Some(at) => {
            lists[at as usize] = list;
            at
        }
        None => {
            lists.push(list);
            // A part with 2^32 lists would not fit into memory.
            (lists.len() - 1) as u32
        }
    }
}

/// Where the holders of one slot are in a sorted list.
fn run(list: &[Holder], slot: Slot) -> Range<usize> {
    let start = list.partition_point(|holder| holder.slot() < slot);
    let len = list[start..].iter().take_while(|holder| holder.slot() == slot).count();
    start..start + len
}

fn union(holders: &[Holder]) -> TierSet {
    TierSet(holders.iter().fold(0, |set, holder| set | holder.tiers().0))
}

fn shrink(list: &mut Vec<Holder>, slot: Slot, left: impl Fn(Holder) -> TierSet) -> Change {
    let range = run(list, slot);
    let before = union(&list[range.clone()]);
    let mut kept = range.start;
    let mut changed = false;
    for at in range.clone() {
        let tiers = left(list[at]);
        changed |= tiers != list[at].tiers();
        if !tiers.is_empty() {
            list[kept] = list[at].with_tiers(tiers);
            kept += 1;
        }
    }
    let after = union(&list[range.start..kept]);
    list.drain(kept..range.end);
    if list.capacity() > 8 && list.len() < list.capacity() / 4 {
        list.shrink_to(list.len() * 2);
    }
    Change { before, after, changed }
}

#[cfg(test)]
mod tests;
