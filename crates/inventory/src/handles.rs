//! What one endpoint's handles stand for: live ones, and a bounded memory of those whose blocks
//! went away, for late children and token-less events.
//!
//! They are the greater part of the inventory's bytes: tables of 16 bytes an entry, cut into parts
//! so that only a small one moves when they grow.

use std::collections::{HashMap, VecDeque};

use crate::budget::{Bytes, Own, Share, vec_bytes};
use crate::hashing::{Mixer, SeededState};
use crate::index::At;
use crate::table::{Full, Table};
use crate::terms::EngineHash;

/// Tables per endpoint.
const PARTS: usize = 8;
/// What an endpoint is charged for each of its handles besides its tables: the block's key.
const KEY_BYTES: usize = 8;
/// What a block with several handles takes in their map.
const SHARED_BYTES: usize = 64;
/// Marks a retired handle; the other bits are its retirement's number then, a live one's depth
/// otherwise.
const RETIRED: u16 = 0x8000;
/// The deepest block whose depth a handle tells.
pub(crate) const DEEPEST: u32 = 0x7fff;

/// The handles of one endpoint. Each is unknown, live or retired.
#[derive(Debug)]
pub(crate) struct Handles {
    parts: Box<[Table]>,
    mixer: Mixer,
    /// Retirements, oldest first; entries whose handle has come back since are stale.
    order: VecDeque<u64>,
    /// The number of the first of them.
    first: u64,
    retired: usize,
    limit: usize,
    /// Blocks with several handles, and how many besides the first.
    shared: HashMap<At, u32, SeededState>,
}

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) at: At,
    pub(crate) live: bool,
}

impl Handles {
    /// Remembers at most `limit` retired handles.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Table::default()).collect(),
            mixer: Mixer::default(),
            order: VecDeque::new(),
            first: 0,
            retired: 0,
            limit,
            shared: HashMap::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Table::len).sum()
    }

    /// The block a live or retired handle stands for.
    pub(crate) fn get(&self, hash: EngineHash) -> Option<Known> {
        let key = self.mixer.mix(hash.0);
        let (at, bits) = At::unpack(self.part(key).get(key)?);
        Some(Known { at, live: bits & RETIRED == 0 })
    }

    /// Whether none of the handles is known; writes down the keys under which they are kept.
    pub(crate) fn unknown(&self, hashes: &[EngineHash], keys: &mut Vec<u64>) -> bool {
        keys.clear();
        keys.extend(hashes.iter().map(|hash| self.mixer.mix(hash.0)));
        // First the memory of all, so that they are waited for together.
        let peek = |all: u64, key: &u64| all ^ self.part(*key).peek(*key);
        std::hint::black_box(keys.iter().fold(0, peek));
        keys.iter().all(|key| self.part(*key).get(*key).is_none())
    }

    /// Makes keys that [were unknown](Self::unknown) live for a stretch of blocks, up to the first
    /// for which there is no room, or which is known by now; how many, and in the latter case the
    /// place it stood for.
    pub(crate) fn learn_new(
        &mut self,
        keys: &[u64],
        first: At,
        depth: u32,
        own: &mut Own,
        share: Share<'_>,
    ) -> (usize, Option<At>) {
        let charge = keys.len() * KEY_BYTES;
        let mut done = 0;
        let mut twice = None;
        if !own.take(charge) {
            return (done, twice);
        }
        for (key, depth) in keys.iter().zip(depth..) {
            let at = At { offset: first.offset + done as u16, ..first };
            let value = at.pack(depth.min(DEEPEST) as u16);
            match self.parts[part_of(*key)].insert(*key, value, &mut own.with(share)) {
                Ok(None) => done += 1,
                Ok(Some(old)) => {
                    twice = Some(At::unpack(old).0);
                    break;
                }
                Err(Full) => break,
            }
        }
        own.give(charge - done * KEY_BYTES);
        (done, twice)
    }

    /// Makes `hash` live for the block at `at`, and returns what it was before.
    ///
    /// The use of the old place is not given up by this: see [`Self::release`].
    pub(crate) fn learn(
        &mut self,
        hash: EngineHash,
        at: At,
        depth: u32,
        own: &mut Own,
        share: Share<'_>,
    ) -> Result<Option<Known>, Full> {
        let key = self.mixer.mix(hash.0);
        let value = at.pack(depth.min(DEEPEST) as u16);
        let part = &mut self.parts[part_of(key)];
        let Some(old) = part.insert(key, value, &mut own.with(share))? else {
            if own.take(KEY_BYTES) {
                return Ok(None);
            }
            part.remove(key);
            return Err(Full);
        };
        let (at, bits) = At::unpack(old);
        self.retired -= usize::from(bits & RETIRED != 0);
        Ok(Some(Known { at, live: bits & RETIRED == 0 }))
    }

    /// Notes that a block has one handle more; `false` when the bytes do not suffice.
    pub(crate) fn share(&mut self, at: At, own: &mut Own, share: Share<'_>) -> bool {
        if !self.shared.contains_key(&at) && !own.with(share).take(SHARED_BYTES) {
            return false;
        }
        *self.shared.entry(at).or_default() += 1;
        true
    }

    /// Notes that a handle of the block is gone; whether it was the last.
    pub(crate) fn release(&mut self, at: At, own: &mut Own, share: Share<'_>) -> bool {
        let Some(more) = self.shared.get_mut(&at) else { return true };
        *more -= 1;
        if *more == 0 {
            self.shared.remove(&at);
            own.with(share).give(SHARED_BYTES);
            if self.shared.is_empty() {
                // Its capacity is paid for by the entries in it.
                self.shared = HashMap::default();
            }
        }
        false
    }

    /// Moves a live handle to the retired ones. The caller [drops the oldest](Self::drop_oldest)
    /// while there are too many.
    pub(crate) fn retire(&mut self, hash: EngineHash, own: &mut Own, share: Share<'_>) {
        let key = self.mixer.mix(hash.0);
        let Some((at, bits)) = self.part(key).get(key).map(At::unpack) else { return };
        if bits & RETIRED != 0 {
            return;
        }
        self.make_room_in_order(own, share);
        if self.order.len() < self.order.capacity() {
            let number = self.first + self.order.len() as u64;
            self.order.push_back(key);
            self.retired += 1;
            self.parts[part_of(key)].replace(key, at.pack(RETIRED | number as u16));
        }
        // Without room in the queue it stays live: that costs a handle's bytes, not soundness.
    }

    /// Takes out the oldest retired handle if there are more than the limit, or any if `all`, and
    /// returns the place it stood for.
    pub(crate) fn drop_oldest(&mut self, all: bool, own: &mut Own) -> Option<At> {
        while self.retired > self.limit || (all && self.retired > 0) {
            let key = self.order.pop_front()?;
            let number = self.first as u16;
            self.first += 1;
            let value = self.part(key).get(key).map(At::unpack);
            if let Some((at, _)) = value.filter(|(_, bits)| *bits == RETIRED | number) {
                self.parts[part_of(key)].remove(key);
                own.give(KEY_BYTES);
                self.retired -= 1;
                return Some(at);
            }
        }
        None
    }

    /// Makes a handle unknown again and tells what it stood for.
    pub(crate) fn forget(&mut self, hash: EngineHash, own: &mut Own) -> Option<At> {
        self.forget_key(self.mixer.mix(hash.0), own)
    }

    /// As [`Self::forget`], by what [`Self::iter`] gave.
    pub(crate) fn forget_key(&mut self, key: u64, own: &mut Own) -> Option<At> {
        let (at, bits) = At::unpack(self.parts[part_of(key)].remove(key)?);
        own.give(KEY_BYTES);
        self.retired -= usize::from(bits & RETIRED != 0);
        Some(at)
    }

    /// The engine's own number of a handle, by what [`Self::iter`] gave.
    pub(crate) fn hash(&self, key: u64) -> EngineHash {
        EngineHash(self.mixer.unmix(key))
    }

    /// Every handle, with the place it stands for, and a live one's depth up to [`DEEPEST`].
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, At, Option<u32>)> {
        self.parts.iter().flat_map(Table::iter).map(|(key, value)| {
            let (at, bits) = At::unpack(value);
            (key, at, (bits & RETIRED == 0).then_some(u32::from(bits)))
        })
    }

    /// Gives back what the tables and the queue do not need.
    pub(crate) fn compact(&mut self, own: &mut Own, share: Share<'_>) {
        for part in &mut self.parts {
            part.compact(&mut own.with(share));
        }
        if self.retired == 0 {
            own.with(share).give(vec_bytes::<u64>(self.order.capacity()));
            self.first += self.order.len() as u64;
            self.order = VecDeque::new();
        }
    }

    /// Forgets everything and gives all bytes back.
    pub(crate) fn clear(&mut self, own: &mut Own, share: Share<'_>) {
        own.give(self.len() * KEY_BYTES);
        for part in &mut self.parts {
            own.with(share).give(part.bytes());
        }
        own.with(share).give(vec_bytes::<u64>(self.order.capacity()));
        own.with(share).give(self.shared.len() * SHARED_BYTES);
        *self = Self::new(self.limit);
    }

    /// Drops stale retirements when they are half of the queue, else lets it grow.
    fn make_room_in_order(&mut self, own: &mut Own, share: Share<'_>) {
        if self.order.len() < self.order.capacity() {
            return;
        }
        if self.order.len() > self.retired * 2 + 16 {
            return self.renumber();
        }
        let (old, wanted) = (self.order.capacity(), self.order.len() + self.order.len() / 4 + 16);
        if own.with(share).take(vec_bytes::<u64>(wanted)) {
            self.order.reserve_exact(wanted - self.order.len());
            own.with(share).give(vec_bytes::<u64>(old));
        }
    }

    fn renumber(&mut self) {
        let (mut before, mut after) = (self.first, self.first);
        let parts = &mut self.parts;
        self.order.retain(|key| {
            let part = &mut parts[part_of(*key)];
            let number = RETIRED | before as u16;
            before += 1;
            let value = part.get(*key).map(At::unpack).filter(|(_, bits)| *bits == number);
            if let Some((at, _)) = value {
                part.replace(*key, at.pack(RETIRED | after as u16));
                after += 1;
            }
            value.is_some()
        });
    }

    fn part(&self, key: u64) -> &Table {
        &self.parts[part_of(key)]
    }
}

/// From the lowest bits: tables use the highest first.
fn part_of(key: u64) -> usize {
    key as usize % PARTS
}

#[cfg(test)]
mod tests;
