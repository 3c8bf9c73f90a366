//! What a stream remembers of batches: numbered payloads, those waiting behind a replay, and
//! fingerprints of those that a replay brought before they came live.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// An encoded batch and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) seq: u64,
    pub(super) payload: Arc<Vec<u8>>,
}

impl Numbered {
    pub(super) fn new(seq: u64, payload: Vec<u8>) -> Self {
        Self { seq, payload: Arc::new(payload) }
    }
}

/// Live batches that wait until a replay is done, bounded in number and bytes.
#[derive(Debug)]
pub(super) struct Pending {
    batches: VecDeque<Numbered>,
    bytes: usize,
    max_batches: usize,
    max_bytes: usize,
}

impl Pending {
    pub(super) fn new(max_batches: usize, max_bytes: usize) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, max_batches: max_batches.max(1), max_bytes }
    }

    /// Adds the newest; gives up the oldest ones that no longer fit and says how many. What was
    /// given up shows as a gap later.
    pub(super) fn push(&mut self, batch: Numbered) -> u64 {
        self.bytes += batch.payload.len();
        self.batches.push_back(batch);
        let mut lost = 0;
        while self.batches.len() > self.max_batches
            || (self.bytes > self.max_bytes && self.batches.len() > 1)
        {
            self.pop();
            lost += 1;
        }
        lost
    }

    pub(super) fn pop(&mut self) -> Option<Numbered> {
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.payload.len();
        Some(batch)
    }

    pub(super) fn front(&self) -> Option<&Numbered> {
        self.batches.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }
}

/// Fingerprints of the batches a replay brought since the last live one: their live copies may
/// still be on the way and must be told from those of a new life.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    first: u64,
    prints: VecDeque<u64>,
    hasher: RandomState,
}

impl Replayed {
    /// Fingerprints kept; a live copy older than that is taken for a new life.
    const KEEP: usize = 16_384;

    /// Notes the next batch of a replay; any other than the next one starts anew.
    pub(super) fn push(&mut self, batch: &Numbered) {
        if self.first.checked_add(self.prints.len() as u64) != Some(batch.seq) {
            self.clear();
        }
        if self.prints.is_empty() {
            self.first = batch.seq;
        }
        self.prints.push_back(self.hasher.hash_one(&*batch.payload));
        if self.prints.len() > Self::KEEP {
            self.prints.pop_front();
            self.first += 1;
        }
    }

    /// Whether a replay brought this very batch.
    pub(super) fn holds(&self, batch: &Numbered) -> bool {
        batch
            .seq
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.prints.get(at))
            .is_some_and(|print| *print == self.hasher.hash_one(&*batch.payload))
    }

    pub(super) fn clear(&mut self) {
        self.prints.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seq: u64, len: usize) -> Numbered {
        Numbered::new(seq, vec![seq.to_le_bytes()[0]; len])
    }

    #[test]
    fn pending_gives_up_the_oldest_by_number_and_by_bytes() {
        let mut pending = Pending::new(3, 100);
        assert_eq!((0..3).map(|seq| pending.push(batch(seq, 10))).sum::<u64>(), 0);
        assert_eq!(pending.push(batch(3, 10)), 1);
        assert_eq!(pending.front().map(|b| b.seq), Some(1));
        assert_eq!(pending.push(batch(4, 85)), 2);
        assert_eq!(pending.front().map(|b| b.seq), Some(3));
        // One batch is kept even if it alone is too large.
        assert_eq!(pending.push(batch(5, 1000)), 2);
        assert_eq!(pending.pop().map(|b| b.seq), Some(5));
        assert_eq!(pending.bytes, 0);
    }

    #[test]
    fn replayed_knows_its_batches_and_no_others() {
        let mut replayed = Replayed::default();
        for seq in 5..8 {
            replayed.push(&batch(seq, 4));
        }
        assert!((5..8).all(|seq| replayed.holds(&batch(seq, 4))));
        assert!(!replayed.holds(&batch(4, 4)) && !replayed.holds(&batch(8, 4)));
        assert!(!replayed.holds(&Numbered::new(6, vec![99])));
        replayed.push(&batch(20, 4));
        assert!(replayed.holds(&batch(20, 4)) && !replayed.holds(&batch(7, 4)));
    }
}
