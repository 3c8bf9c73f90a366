//! A map from uniform 64-bit numbers to 64-bit values in 16 bytes an entry.
//!
//! Linear probing over entries that lie in the order of their keys: a key's place is its own
//! fraction of the table, so growing is one pass from front to back and may be by any factor.

use crate::budget::{Bytes, vec_bytes};

/// Places behind the last home, for entries that were pushed out; more where they do not suffice.
const TAIL: usize = 24;
/// The fullest a table gets, in 1/64.
const FULLEST: usize = 50;

/// The map. Keys have to be uniform (digests, or mixed); values are never 0.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Key and value; a value of 0 marks a free place.
    entries: Vec<[u64; 2]>,
    /// How many of the places are homes of keys.
    homes: usize,
    len: usize,
}

/// The bytes for a larger table were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What it takes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        vec_bytes::<[u64; 2]>(self.entries.capacity())
    }

    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let at = self.seek(key);
        self.entries.get(at).filter(|entry| entry[0] == key && entry[1] != 0).map(|entry| entry[1])
    }

    /// What lies at a key's home: read ahead of a look-up, it lets several of them wait for memory
    /// at the same time.
    pub(crate) fn peek(&self, key: u64) -> u64 {
        self.entries.get(home(self.homes, key)).map_or(0, |entry| entry[0])
    }

    /// Sets the value of a key and returns the one before.
    pub(crate) fn insert(
        &mut self,
        key: u64,
        value: u64,
        bytes: &mut impl Bytes,
    ) -> Result<Option<u64>, Full> {
        debug_assert_ne!(value, 0);
        loop {
            let at = self.seek(key);
            if let Some(entry) = self.entries.get_mut(at)
                && entry[0] == key
                && entry[1] != 0
            {
                return Ok(Some(std::mem::replace(&mut entry[1], value)));
            }
            let crowded = (self.len + 1) * 64 > self.homes * FULLEST;
            if !crowded && self.push_in(at, [key, value]) {
                self.len += 1;
                return Ok(None);
            }
            self.resize(self.len + self.len / 3 + 8, bytes)?;
        }
    }

    /// Puts an entry at its place and moves those behind it up to the next free place; `false`,
    /// and nothing done, when there is none.
    fn push_in(&mut self, at: usize, entry: [u64; 2]) -> bool {
        if self.entries.last().is_none_or(|last| last[1] != 0) {
            return false;
        }
        let mut carried = entry;
        for place in self.entries.iter_mut().skip(at) {
            std::mem::swap(place, &mut carried);
            if carried[1] == 0 {
                break;
            }
        }
        true
    }

    /// Changes the value of a key that is there.
    pub(crate) fn replace(&mut self, key: u64, value: u64) {
        let at = self.seek(key);
        if let Some(entry) = self.entries.get_mut(at).filter(|e| e[0] == key && e[1] != 0) {
            entry[1] = value;
        }
    }

    /// Removes a key and returns its value.
    pub(crate) fn remove(&mut self, key: u64) -> Option<u64> {
        let mut at = self.seek(key);
        let value = self.entries.get(at).filter(|e| e[0] == key && e[1] != 0)?[1];
        // Those that were pushed out of their homes move up.
        while let Some(next) = self.entries.get(at + 1).copied()
            && next[1] != 0
            && home(self.homes, next[0]) <= at
        {
            self.entries[at] = next;
            at += 1;
        }
        self.entries[at] = [0, 0];
        self.len -= 1;
        Some(value)
    }

    /// Gives back what it has far too much of, where the move fits.
    pub(crate) fn shrink(&mut self, bytes: &mut impl Bytes) {
        if self.len == 0 {
            bytes.give(self.bytes());
            self.entries = Vec::new();
            self.homes = 0;
        } else if self.entries.len() > TAIL + self.len * 2 + 16 {
            // Refused, it stays as it is.
            let _ = self.resize(self.len + self.len / 8 + 4, bytes);
        }
    }

    /// Gives back all that it does not need now, where the move fits.
    pub(crate) fn compact(&mut self, bytes: &mut impl Bytes) {
        let room = self.len + self.len / 32 + 2;
        if self.len == 0 {
            self.shrink(bytes);
        } else if self.homes > (room + room / 16) * 64 / FULLEST + 1 {
            let _ = self.resize(room, bytes);
        }
    }

    /// Every key and value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.iter().filter(|entry| entry[1] != 0).map(|entry| (entry[0], entry[1]))
    }

    /// Where `key` is, or where it would be: the first place from its home on that is free or
    /// holds no smaller key.
    fn seek(&self, key: u64) -> usize {
        let mut at = home(self.homes, key);
        while let Some(entry) = self.entries.get(at)
            && entry[1] != 0
            && entry[0] < key
        {
            at += 1;
        }
        at
    }

    /// Moves everything into a table for `room` entries; larger where some do not find a place.
    fn resize(&mut self, room: usize, bytes: &mut impl Bytes) -> Result<(), Full> {
        let homes = room * 64 / FULLEST + 1;
        let mut tail = TAIL;
        loop {
            let places = homes + tail;
            if !bytes.take(vec_bytes::<[u64; 2]>(places)) {
                return Err(Full);
            }
            let old = self.bytes();
            let mut entries = vec![[0, 0]; places];
            debug_assert_eq!(entries.capacity(), places, "exact means exact");
            if place_all(&self.entries, homes, &mut entries) {
                self.entries = entries;
                self.homes = homes;
                bytes.give(old);
                return Ok(());
            }
            bytes.give(vec_bytes::<[u64; 2]>(places));
            tail *= 2;
        }
    }
}

/// The place where the search for a key begins.
fn home(homes: usize, key: u64) -> usize {
    ((u128::from(key) * homes as u128) >> 64) as usize
}

/// Places entries that come in the order of their keys, with gaps; `false` when one falls off the
/// end.
fn place_all(from: &[[u64; 2]], homes: usize, entries: &mut [[u64; 2]]) -> bool {
    let mut free = 0;
    for [key, value] in from {
        // Gaps are as frequent as entries, and in no order: cheaper to write them, where the next
        // entry goes at the earliest, than to ask.
        let at = free.max(home(homes, *key));
        let Some(entry) = entries.get_mut(at) else { return false };
        *entry = [*key, *value];
        free = at + usize::from(*value != 0);
    }
    // The last place stays free, so that an insertion near the end finds one.
    free < entries.len()
}

#[cfg(test)]
mod tests;
