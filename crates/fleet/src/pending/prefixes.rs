//! Which slots hold which prefixes, for many chains of keys that begin alike.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use kvasir_kv_hash::BlockKey;

use super::{ALLOCATION, KEY, entry};

/// Segments followed along one chain: every point where chains part or end costs a step.
pub(super) const MAX_STEPS: usize = 256;

/// Bytes of a segment but for its keys and holders.
pub(super) const SEGMENT: usize = entry::<(BlockKey, Segment)>() + 2 * ALLOCATION;

/// Chains of keys by who holds them, cut into segments wherever chains part or one ends.
///
/// A key says everything before it, so the first key of a segment finds it, whatever led there, and
/// one step decides a whole segment: where the last keys are equal, so are all before them.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    segments: HashMap<BlockKey, Segment, BuildHasherDefault<KeyHasher>>,
    /// Of all segments.
    bytes: usize,
}

#[derive(Debug)]
struct Segment {
    keys: Box<[BlockKey]>,
    /// Ordered by slot, each once.
    holders: Vec<Holder>,
    /// Chains of all holders.
    chains: u32,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    slot: u32,
    chains: u32,
}

/// Keys are digests under a secret: good hashes as they are.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Prefixes {
    /// `slot` holds one more chain. How many of its keys were taken in: fewer than all where it
    /// parts from others too often.
    pub(super) fn insert(&mut self, chain: &[BlockKey], slot: u32) -> usize {
        let mut at = 0;
        for _ in 0..MAX_STEPS {
            let rest = &chain[at..];
            let Some(first) = rest.first() else { break };
            let Some(segment) = self.segments.get_mut(first) else {
                let mut segment = Segment::new(rest);
                segment.join(slot);
                self.bytes += segment.bytes();
                self.segments.insert(*first, segment);
                return chain.len();
            };
            let common = common(&segment.keys, rest);
            self.bytes -= segment.bytes();
            let lower = segment.split_off(common);
            segment.join(slot);
            self.bytes += segment.bytes();
            if let Some(lower) = lower {
                self.bytes += lower.bytes();
                self.segments.insert(lower.keys[0], lower);
            }
            at += common;
        }
        at
    }

    /// `slot` holds one chain less: one that was inserted, up to where it was taken in.
    pub(super) fn remove(&mut self, chain: &[BlockKey], slot: u32) {
        let mut at = 0;
        // Neighbours that every chain of the first goes through.
        let mut run: Vec<BlockKey> = Vec::new();
        let mut run_chains = 0;
        while let Some(first) = chain.get(at) {
            let Some(segment) = self.segments.get_mut(first) else { break };
            at += segment.keys.len();
            self.bytes -= segment.bytes();
            segment.leave(slot);
            let chains = segment.chains;
            if chains == 0 {
                self.segments.remove(first);
                continue;
            }
            self.bytes += segment.bytes();
            if chains != run_chains {
                self.mend(&run);
                run.clear();
                run_chains = chains;
            }
            run.push(*first);
        }
        self.mend(&run);
    }

    /// Tells `found` of every slot that holds some of the chain, once, with the number of keys;
    /// follows the chain for [`MAX_STEPS`] and for `steps`, of which it takes what it needs.
    ///
    /// Whoever holds a segment holds those before it. So holders only drop out along a chain, and
    /// each costs a search where it does; the others cost nothing.
    pub(super) fn find(
        &self,
        chain: &[BlockKey],
        steps: &mut usize,
        mut found: impl FnMut(u32, usize),
    ) {
        let mut at = 0;
        let mut holding: &[Holder] = &[];
        for _ in 0..MAX_STEPS.min(*steps) {
            let rest = &chain[at..];
            let Some(first) = rest.first() else { break };
            *steps -= 1;
            let Some(segment) = self.segments.get(first) else { break };
            dropped(holding, &segment.holders, |slot| found(slot, at));
            holding = &segment.holders;
            let common = common(&segment.keys, rest);
            at += common;
            if common < segment.keys.len() {
                break;
            }
        }
        holding.iter().for_each(|holder| found(holder.slot, at));
    }

    /// Joins neighbours into the first of them, where every chain of it goes through all. Each key
    /// is copied once, however many seams there are.
    fn mend(&mut self, run: &[BlockKey]) {
        let [first, rest @ ..] = run else { return };
        if rest.is_empty() {
            return;
        }
        let lower: Vec<_> = rest.iter().filter_map(|key| self.segments.remove(key)).collect();
        let Some(upper) = self.segments.get_mut(first) else { return };
        self.bytes -= upper.bytes() + lower.iter().map(Segment::bytes).sum::<usize>();
        let mut parts: Vec<&[BlockKey]> = vec![&upper.keys];
        parts.extend(lower.iter().map(|segment| &*segment.keys));
        upper.keys = parts.concat().into();
        self.bytes += upper.bytes();
    }

    /// What all segments take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keys in all segments.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        assert_eq!(self.bytes, self.segments.values().map(Segment::bytes).sum::<usize>());
        self.segments.values().map(|segment| segment.keys.len()).sum()
    }

    #[cfg(test)]
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }
}

impl Segment {
    fn new(keys: &[BlockKey]) -> Self {
        Self { keys: keys.into(), holders: Vec::new(), chains: 0 }
    }

    /// Keeps the first `at` keys; the rest, with the same holders, is a segment of its own.
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let (upper, lower) = self.keys.split_at_checked(at)?;
        if lower.is_empty() {
            return None;
        }
        let split = Self { keys: lower.into(), holders: self.holders.clone(), chains: self.chains };
        self.keys = upper.into();
        Some(split)
    }

    fn bytes(&self) -> usize {
        let holders = self.holders.capacity() * size_of::<Holder>();
        SEGMENT + self.keys.len() * KEY + holders
    }

    fn join(&mut self, slot: u32) {
        self.chains += 1;
        match self.holders.binary_search_by_key(&slot, |holder| holder.slot) {
            Ok(at) => self.holders[at].chains += 1,
            Err(at) => self.holders.insert(at, Holder { slot, chains: 1 }),
        }
    }

    fn leave(&mut self, slot: u32) {
        let Ok(at) = self.holders.binary_search_by_key(&slot, |holder| holder.slot) else { return };
        self.chains -= 1;
        self.holders[at].chains -= 1;
        if self.holders[at].chains == 0 {
            self.holders.remove(at);
            if self.holders.len() * 4 <= self.holders.capacity() {
                self.holders.shrink_to(self.holders.len() * 2);
            }
        }
    }
}

/// Slots of `before` that are not among `after`, which has no others.
fn dropped(mut before: &[Holder], mut after: &[Holder], mut tell: impl FnMut(u32)) {
    while before.len() > after.len() {
        let same = first_unequal(after.len(), |at| before[at].slot == after[at].slot);
        let Some((gone, rest)) = before[same..].split_first() else { return };
        tell(gone.slot);
        (before, after) = (rest, &after[same..]);
    }
}

/// How many keys two chains share from the first on.
fn common(one: &[BlockKey], other: &[BlockKey]) -> usize {
    let both = one.len().min(other.len());
    if both == 0 || one[both - 1] == other[both - 1] {
        return both;
    }
    first_unequal(both - 1, |at| one[at] == other[at])
}

/// The first of `count` places that is not equal, `count` if all are, where none behind an unequal
/// one is equal.
fn first_unequal(count: usize, equal: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if equal(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
