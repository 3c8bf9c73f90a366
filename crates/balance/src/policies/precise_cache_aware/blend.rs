//! The arithmetic of the blends.

use std::cmp::Reverse;

use super::options::Capacity;
use crate::policies::load_bound;
use crate::view::Candidate;

/// A blend with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Off,
    Hard { percent: u64 },
    Soft { lambda: u64 },
}

/// The candidates that hold some of a prompt.
pub(super) struct Holders {
    candidates: usize,
    list: Vec<Holder>,
}

#[derive(Clone, Copy)]
struct Holder {
    place: usize,
    overlap: u64,
    load: u64,
    capacity: u64,
}

/// The largest capacity that counts.
const MAX_CAPACITY: u64 = 8_000_000;

// === impl Holders ===

impl Holders {
    /// `block` is the number of tokens in a block.
    pub(super) fn of(candidates: &[Candidate], block: u64, capacity: Capacity) -> Self {
        let capacity = capacities(candidates, capacity);
        let list = candidates
            .iter()
            .enumerate()
            .map(|(place, candidate)| Holder {
                place,
                overlap: candidate.cached() / block,
                load: u64::from(candidate.load.in_flight),
                capacity: capacity(candidate),
            })
            .filter(|holder| holder.overlap > 0)
            .collect();
        Self { candidates: candidates.len(), list }
    }

    /// The longest overlap in blocks; `None` where nobody holds anything.
    pub(super) fn most(&self) -> Option<u64> {
        self.list.iter().map(|holder| holder.overlap).max()
    }

    pub(super) fn total_load(&self) -> u64 {
        self.list.iter().map(|holder| holder.load).sum()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.list.iter().map(|holder| holder.place)
    }

    pub(super) fn overlap(&self, place: usize) -> u64 {
        self.list.iter().find(|holder| holder.place == place).map_or(0, |holder| holder.overlap)
    }

    /// The place chosen, and whether load overrode the longest overlap.
    pub(super) fn hard(&self, percent: u64) -> Option<(usize, bool)> {
        let longest = |holder: &&Holder| (Reverse(holder.overlap), holder.load, holder.place);
        let best = self.list.iter().min_by_key(longest)?;
        let (loads, capacities) = self.sums();
        let below = |h: &&Holder| h.load < load_bound(percent, loads, h.capacity, capacities);
        let found =
            self.list.iter().filter(below).min_by_key(longest).or_else(|| {
                self.list.iter().min_by_key(|h| (h.load, Reverse(h.overlap), h.place))
            })?;
        Some((found.place, found.overlap < best.overlap))
    }

    pub(super) fn soft(&self, lambda: u64) -> Option<usize> {
        let most = self.most()?;
        let key = |h: &&Holder| (h.penalty(most, lambda), Reverse(h.overlap), h.load, h.place);
        self.list.iter().min_by_key(key).map(|holder| holder.place)
    }

    /// One score per candidate: the overlap, negative as lower is better.
    #[expect(clippy::cast_precision_loss, reason = "block counts are far below 2^52")]
    pub(super) fn overlap_scores(&self) -> Vec<f64> {
        self.scores(0.0, |holder| -(holder.overlap as f64))
    }

    /// One score per candidate: the penalty; infinite for those that hold nothing.
    #[expect(clippy::cast_precision_loss, reason = "penalties are far below 2^52")]
    pub(super) fn soft_scores(&self, lambda: u64) -> Vec<f64> {
        let most = self.most().unwrap_or(0);
        self.scores(f64::MAX, |holder| holder.penalty(most, lambda) as f64)
    }

    fn scores(&self, of_others: f64, score: impl Fn(&Holder) -> f64) -> Vec<f64> {
        let mut scores = vec![of_others; self.candidates];
        for holder in &self.list {
            scores[holder.place] = score(holder);
        }
        scores
    }

    fn sums(&self) -> (u64, u64) {
        let capacities = self.list.iter().map(|holder| holder.capacity).sum();
        (self.total_load(), capacities)
    }
}

impl Holder {
    fn penalty(&self, most: u64, lambda: u64) -> u64 {
        let missed = (most - self.overlap).saturating_mul(1000);
        missed.saturating_add(lambda.saturating_mul(self.load) / self.capacity)
    }
}

/// The endpoint a choice gives way to: where it is at its cap among all whose cache is known, the
/// least loaded of those below theirs.
pub(super) fn relief(
    all: &[Candidate],
    chosen: usize,
    percent: u64,
    capacity: Capacity,
) -> Option<usize> {
    let capacity = capacities(all, capacity);
    let known = |place: &usize| all[*place].resident_blocks.is_some();
    let fleet: Vec<usize> = (0..all.len()).filter(known).collect();
    if fleet.len() < 2 || !fleet.contains(&chosen) {
        return None;
    }
    let load = |place: usize| u64::from(all[place].load.in_flight);
    let loads: u64 = fleet.iter().map(|place| load(*place)).sum();
    let capacities: u64 = fleet.iter().map(|place| capacity(&all[*place])).sum();
    let is_below =
        |place: usize| load(place) < load_bound(percent, loads, capacity(&all[place]), capacities);
    if is_below(chosen) {
        return None;
    }
    fleet.into_iter().filter(|place| is_below(*place)).min_by_key(|place| (load(*place), *place))
}

/// The capacity of each: scaled by the weight first (above 100 counts as 100), then held within 1 and
/// eight million, so that a weight of 0 still leaves 1.
fn capacities(all: &[Candidate], capacity: Capacity) -> impl Fn(&Candidate) -> u64 + use<> {
    let known = capacity == Capacity::Blocks && all.iter().all(|c| c.capacity_blocks.is_some());
    move |candidate| {
        let Some(blocks) = candidate.capacity_blocks.filter(|_| known) else { return 1 };
        let weight = u64::from(candidate.weight.min(100));
        (blocks.saturating_mul(weight) / 100).clamp(1, MAX_CAPACITY)
    }
}
