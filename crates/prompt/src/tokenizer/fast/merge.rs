//! Byte pair encoding of one word: the pair of lowest rank is merged first, the leftmost on a tie.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Longest word whose ids are remembered, in bytes.
const CACHED_WORD: usize = 32;
/// Most words that are remembered; then all are forgotten. At worst some 3 MiB.
const CACHED_WORDS: usize = 1 << 14;

/// The model: ids of single bytes and of merged pairs.
#[derive(Debug)]
pub(super) struct Merges {
    pub(super) bytes: Box<[u32; 256]>,
    /// Rank and id by pair.
    pub(super) pairs: PairMap,
    /// Words that are one token without any merge, where the model looks for them first.
    pub(super) whole: Option<HashMap<Box<[u8]>, u32>>,
}

/// Rank and id by pair of ids.
pub(super) type PairMap = HashMap<u64, (u32, u32), BuildHasherDefault<Mix>>;

/// The key of a pair.
pub(super) fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// What one thread works with: ids of words seen before, and room for merging. Words are found by
/// their whole text.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Of short words, the last one of each place; empty until it is needed.
    short: Vec<Short>,
    known: HashMap<Box<[u8]>, (u32, u32)>,
    ids: Vec<u32>,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

/// Longest word of a [`Short`], in bytes, most of its ids, and places for them (384 KiB).
const SHORT_WORD: usize = 15;
const SHORT_IDS: usize = 7;
const SHORT_PLACES: usize = 1 << 13;

/// A short word, found without following a pointer.
#[derive(Debug, Clone, Copy, Default)]
struct Short {
    /// Its bytes and, as the last byte, their number; 0 for none.
    word: u128,
    ids: [u32; SHORT_IDS],
    len: u32,
}

impl Short {
    /// A word's bytes as one number, and its place; `None` for longer words.
    fn of(word: &[u8]) -> Option<(u128, usize)> {
        let mut bytes = [0; SHORT_WORD + 1];
        bytes.get_mut(..word.len()).filter(|_| word.len() <= SHORT_WORD)?.copy_from_slice(word);
        bytes[SHORT_WORD] = word.len() as u8;
        let whole = u128::from_le_bytes(bytes);
        // Who makes words meet in one place only has them looked up where all are.
        let mixed = (whole as u64 ^ (whole >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some((whole, (mixed >> 51) as usize % SHORT_PLACES))
    }
}

#[derive(Debug, Clone, Copy)]
struct Symbol {
    id: u32,
    before: Option<u32>,
    behind: Option<u32>,
    merged_away: bool,
}

/// A pair that could be merged. Ordered by rank, then place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    at: u32,
    id: u32,
}

impl Merges {
    /// Appends the ids of a word.
    pub(super) fn append_ids(&self, word: &[u8], words: &mut Words, ids: &mut Vec<u32>) {
        let Some((whole, place)) = Short::of(word) else {
            return self.append_known(word, words, ids);
        };
        if let Some(short) = words.short.get(place).filter(|short| short.word == whole) {
            ids.extend_from_slice(short.ids.get(..short.len as usize).unwrap_or_default());
            return;
        }
        let from = ids.len();
        self.append_known(word, words, ids);
        if words.short.is_empty() {
            words.short.resize(SHORT_PLACES, Short::default());
        }
        let new = ids.get(from..).unwrap_or_default();
        if let Some(place) = words.short.get_mut(place)
            && let Some(room) = place.ids.get_mut(..new.len())
        {
            room.copy_from_slice(new);
            (place.word, place.len) = (whole, new.len() as u32);
        }
    }

    /// The same for any word.
    fn append_known(&self, word: &[u8], words: &mut Words, ids: &mut Vec<u32>) {
        if let Some((start, len)) = words.known.get(word) {
            let (start, len) = (*start as usize, *len as usize);
            ids.extend_from_slice(words.ids.get(start..start + len).unwrap_or_default());
            return;
        }
        let from = ids.len();
        match self.whole.as_ref().and_then(|whole| whole.get(word)) {
            Some(id) => ids.push(*id),
            None => self.merge(word, words, ids),
        }
        if word.len() > CACHED_WORD {
            return;
        }
        if words.known.len() >= CACHED_WORDS {
            words.known.clear();
            words.ids.clear();
        }
        let new = ids.get(from..).unwrap_or_default();
        let at = words.ids.len() as u32;
        words.ids.extend_from_slice(new);
        words.known.insert(word.into(), (at, new.len() as u32));
    }

    fn merge(&self, word: &[u8], words: &mut Words, ids: &mut Vec<u32>) {
        let Words { symbols, queue, .. } = words;
        symbols.clear();
        queue.clear();
        let last = word.len().saturating_sub(1);
        symbols.extend(word.iter().enumerate().map(|(at, byte)| Symbol {
            id: self.bytes[usize::from(*byte)],
            before: at.checked_sub(1).map(|at| at as u32),
            behind: (at < last).then_some(at as u32 + 1),
            merged_away: false,
        }));
        for at in 0..last {
            self.offer(symbols, queue, at as u32);
        }
        while let Some(Reverse(top)) = queue.pop() {
            let Some((left, right_at, right)) = neighbours(symbols, top.at) else { continue };
            // As in the library, what became stale is told by the id alone.
            if self.pairs.get(&pair(left.id, right.id)).is_none_or(|(_, id)| *id != top.id) {
                continue;
            }
            if let Some(symbol) = symbols.get_mut(top.at as usize) {
                symbol.id = top.id;
                symbol.behind = right.behind;
            }
            if let Some(symbol) = symbols.get_mut(right_at as usize) {
                symbol.merged_away = true;
            }
            if let Some(next) = right.behind.and_then(|at| symbols.get_mut(at as usize)) {
                next.before = Some(top.at);
            }
            if let Some(before) = left.before {
                self.offer(symbols, queue, before);
            }
            self.offer(symbols, queue, top.at);
        }
        ids.extend(symbols.iter().filter(|s| !s.merged_away).map(|s| s.id));
    }

    /// Queues the pair that starts at a symbol, if it can be merged.
    fn offer(&self, symbols: &[Symbol], queue: &mut BinaryHeap<Reverse<Candidate>>, at: u32) {
        if let Some((left, _, right)) = neighbours(symbols, at)
            && let Some((rank, id)) = self.pairs.get(&pair(left.id, right.id))
        {
            queue.push(Reverse(Candidate { rank: *rank, at, id: *id }));
        }
    }
}

/// The symbol at a place, and place and symbol behind it.
fn neighbours(symbols: &[Symbol], at: u32) -> Option<(Symbol, u32, Symbol)> {
    let left = symbols.get(at as usize).filter(|s| !s.merged_away)?;
    let right_at = left.behind?;
    Some((*left, right_at, *symbols.get(right_at as usize)?))
}

/// Spreads pairs of ids. What is looked up is fixed by the model, so nobody can aim at a bucket.
#[derive(Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
