//! The byte budget: what the inventory may allocate in all, and what one endpoint may.
//!
//! Bytes are taken before an allocation and given back after one is freed; while a buffer moves
//! into a larger one, both are counted. So the sum of what is allocated is never above the limit.

use crate::sync::{AtomicUsize, Ordering};

/// What one heap allocation costs besides its content.
const HEAP_BLOCK: usize = 16;

/// A place that bytes are taken from.
pub(crate) trait Bytes {
    /// Takes `bytes`, unless that would exceed a limit.
    fn take(&mut self, bytes: usize) -> bool;
    /// Gives `bytes` back.
    fn give(&mut self, bytes: usize);
}

/// The bytes of a whole inventory.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes above which the largest endpoints are cut back, so that others find room.
    pub(crate) fn high_water(&self) -> usize {
        self.limit - self.limit / 16
    }

    /// For updates that make room or must not be lost: all of the limit.
    pub(crate) fn reserve(&self) -> Share<'_> {
        Share { budget: self, limit: self.limit }
    }

    /// For updates that can be given up: a little is left for those that cannot.
    pub(crate) fn ordinary(&self) -> Share<'_> {
        Share { budget: self, limit: self.limit - self.limit / 64 }
    }
}

/// A budget up to some level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    limit: usize,
}

impl Bytes for Share<'_> {
    fn take(&mut self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give(&mut self, bytes: usize) {
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One endpoint's bytes, which are the inventory's as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) used: usize,
    pub(crate) limit: usize,
}

impl Own {
    /// Takes from both.
    pub(crate) fn with<'a>(&'a mut self, share: Share<'a>) -> Account<'a> {
        Account { own: self, share }
    }

    /// Takes bytes that the inventory counts by itself.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.used + bytes <= self.limit;
        self.used += if fits { bytes } else { 0 };
        fits
    }

    pub(crate) fn give(&mut self, bytes: usize) {
        self.used -= bytes;
    }
}

/// Takes from an endpoint's own limit and from the inventory's.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    own: &'a mut Own,
    share: Share<'a>,
}

impl Bytes for Account<'_> {
    fn take(&mut self, bytes: usize) -> bool {
        if !self.own.take(bytes) {
            return false;
        }
        let fits = self.share.take(bytes);
        if !fits {
            self.own.give(bytes);
        }
        fits
    }

    fn give(&mut self, bytes: usize) {
        self.own.give(bytes);
        self.share.give(bytes);
    }
}

/// What a vector of `capacity` elements of type `T` takes on the heap.
pub(crate) fn vec_bytes<T>(capacity: usize) -> usize {
    if capacity == 0 { 0 } else { capacity.saturating_mul(size_of::<T>()) + HEAP_BLOCK }
}

/// Makes room for `extra` more elements; `false`, and nothing done, when the bytes do not suffice.
pub(crate) fn grow<T>(vec: &mut Vec<T>, extra: usize, bytes: &mut impl Bytes) -> bool {
    let old = vec.capacity();
    let needed = vec.len() + extra;
    if needed <= old {
        return true;
    }
    // A quarter more than there is: amortised, and never much more than what is used.
    let wanted = needed.max(vec.len() + vec.len() / 4);
    if !bytes.take(vec_bytes::<T>(wanted)) {
        return false;
    }
    vec.reserve_exact(wanted - vec.len());
    debug_assert_eq!(vec.capacity(), wanted, "exact means exact");
    bytes.give(vec_bytes::<T>(old));
    true
}

/// Gives back what a vector has far too much of; keeps it where even the move does not fit.
pub(crate) fn shrink<T>(vec: &mut Vec<T>, bytes: &mut impl Bytes) {
    let (old, len) = (vec.capacity(), vec.len());
    if old <= len + len / 2 + 4 || !bytes.take(vec_bytes::<T>(len)) {
        return;
    }
    vec.shrink_to_fit();
    debug_assert_eq!(vec.capacity(), len, "fit means fit");
    bytes.give(vec_bytes::<T>(old));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_beyond_either_limit() {
        let budget = Budget::new(64_000);
        let mut own = Own { used: 0, limit: 1_000 };
        assert!(own.with(budget.ordinary()).take(900));
        assert!(!own.with(budget.ordinary()).take(101));
        assert_eq!((own.used, budget.used()), (900, 900));
        let mut large = Own { used: 0, limit: usize::MAX };
        assert!(large.with(budget.ordinary()).take(62_100));
        assert!(!large.with(budget.ordinary()).take(1));
        assert!(large.with(budget.reserve()).take(1_000));
        assert!(!large.with(budget.reserve()).take(1));
        large.with(budget.reserve()).give(63_100);
        own.with(budget.reserve()).give(900);
        assert_eq!((own.used, large.used, budget.used()), (0, 0, 0));
        assert!(!budget.reserve().take(usize::MAX));
    }

    #[test]
    fn vectors_are_counted_by_their_capacity() {
        let budget = Budget::new(10_000);
        let mut vec: Vec<u64> = Vec::new();
        for n in 0..200 {
            assert!(grow(&mut vec, 1, &mut budget.reserve()));
            vec.push(n);
            assert_eq!(budget.used(), vec_bytes::<u64>(vec.capacity()));
        }
        assert!(!grow(&mut vec, 2_000, &mut budget.reserve()));
        vec.truncate(3);
        shrink(&mut vec, &mut budget.reserve());
        assert_eq!((vec.capacity(), budget.used()), (3, 24 + HEAP_BLOCK));
    }

    #[test]
    fn vectors_grow_by_parts_of_themselves_and_keep_little_more_than_they_use() {
        let budget = Budget::new(usize::MAX);
        let mut vec: Vec<u64> = Vec::new();
        let (mut moves, mut capacity) = (0, 0);
        for n in 0..20_000_u64 {
            assert!(grow(&mut vec, 1, &mut budget.reserve()));
            vec.push(n);
            moves += usize::from(vec.capacity() != capacity);
            capacity = vec.capacity();
            assert!(capacity <= vec.len() + vec.len() / 4, "{capacity} {n}");
        }
        // log(20,000) to the base of 5/4 is 44.4; below 16 elements the steps are smaller.
        assert!(moves < 55, "{moves}");
        for len in (0..20_000).rev() {
            vec.truncate(len);
            let before = vec.capacity();
            shrink(&mut vec, &mut budget.reserve());
            assert!(vec.capacity() <= len + len / 2 + 4, "{len} {}", vec.capacity());
            // Nothing moves for less than a third.
            assert!(vec.capacity() == before || before > len + len / 2, "{len} {before}");
        }
        assert_eq!(budget.used(), vec_bytes::<u64>(vec.capacity()));
    }
}
