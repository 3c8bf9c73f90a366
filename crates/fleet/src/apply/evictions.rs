//! Whether a cache is too small for what is asked of it: how many of the blocks that left it are computed
//! anew soon after. A sample of evictions is remembered, the latest ones, in room that does not grow.

use kvasir_inventory::EngineHash;

/// One block in so many is watched, told by its hash.
const ONE_IN: u64 = 8;
/// Evictions that are remembered; of one in [`ONE_IN`], so that it reaches back eight times as many.
const REMEMBERED: usize = 4096;
/// Watched evictions after which older ones count no more.
const WINDOW: u64 = 64;

/// Evictions of one event stream, and those that the engine came to regret.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    /// Hashes of watched blocks that left, each at the place its hash says; empty before the first.
    remembered: Vec<u64>,
    counts: EvictionCounts,
    /// Of the window before this one.
    before: (u64, u64),
    now: (u64, u64),
}

/// What is known of evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EvictionCounts {
    /// Blocks that left the engine's own memory: the sample that was watched.
    pub(crate) watched: u64,
    /// Those of the sample that were computed anew soon after.
    pub(crate) regretted: u64,
    /// Their share lately; `None` where few blocks left.
    pub(crate) regretted_share: Option<f64>,
}

impl Evictions {
    pub(super) fn counts(&self) -> EvictionCounts {
        let (watched, regretted) = (self.before.0 + self.now.0, self.before.1 + self.now.1);
        #[expect(clippy::cast_precision_loss, reason = "a window is small")]
        let share = (watched >= WINDOW).then(|| (regretted as f64 / watched as f64).min(1.0));
        EvictionCounts { regretted_share: share, ..self.counts }
    }

    /// These blocks left the engine's own memory.
    pub(super) fn evicted(&mut self, hashes: &[EngineHash]) {
        for hash in hashes.iter().filter_map(watched) {
            if self.remembered.is_empty() {
                self.remembered = vec![0; REMEMBERED];
            }
            if let Some(place) = self.remembered.get_mut(place(hash)) {
                *place = hash;
            }
            self.counts.watched += 1;
            self.now.0 += 1;
            if self.now.0 >= WINDOW {
                self.before = std::mem::take(&mut self.now);
            }
        }
    }

    /// These blocks were computed, or fetched from elsewhere.
    pub(super) fn stored(&mut self, hashes: &[EngineHash]) {
        if self.remembered.is_empty() {
            return;
        }
        for hash in hashes.iter().filter_map(watched) {
            let Some(known) = self.remembered.get_mut(place(hash)) else { continue };
            if *known == hash {
                // Once for each time it left.
                *known = 0;
                self.counts.regretted += 1;
                self.now.1 += 1;
            }
        }
    }

    /// Everything left at once, by order or with its engine: that is nothing to regret.
    pub(super) fn cleared(&mut self) {
        self.remembered.clear();
        (self.before, self.now) = Default::default();
    }
}

/// The hash of a block, mixed, if it is watched. Some engines' hashes are numbers in a row.
fn watched(hash: &EngineHash) -> Option<u64> {
    let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Zero stands for an empty place.
    (mixed >> 32).is_multiple_of(ONE_IN).then_some(mixed | 1)
}

fn place(mixed: u64) -> usize {
    usize::try_from(mixed >> 40).unwrap_or(0) % REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(range: std::ops::Range<u64>) -> Vec<EngineHash> {
        range.map(EngineHash).collect()
    }

    #[test]
    fn blocks_that_return_soon_are_regretted() {
        let mut evictions = Evictions::default();
        // Eight thousand leave, of which half are asked for again.
        for from in (0..8_000).step_by(100) {
            evictions.evicted(&hashes(from..from + 100));
            evictions.stored(&hashes(from..from + 50));
        }
        let counts = evictions.counts();
        let sampled = counts.watched as f64 / 1_000.0;
        assert!((0.8..1.2).contains(&sampled), "{counts:?}");
        let share = counts.regretted as f64 / counts.watched as f64;
        assert!((0.45..0.55).contains(&share), "{counts:?}");
        assert!((0.3..0.7).contains(&counts.regretted_share.unwrap()), "{counts:?}");
        // Again without leaving, and never having left.
        evictions.stored(&hashes(0..4_000));
        evictions.stored(&hashes(100_000..104_000));
        assert!(evictions.counts().regretted <= counts.watched);
        // Later nobody returns: that is what counts lately.
        evictions.evicted(&hashes(200_000..204_000));
        assert_eq!(evictions.counts().regretted_share, Some(0.0));
    }

    #[test]
    fn few_evictions_say_nothing_and_clearing_is_none() {
        let mut evictions = Evictions::default();
        evictions.stored(&hashes(0..1_000));
        evictions.evicted(&hashes(0..100));
        evictions.stored(&hashes(0..100));
        assert_eq!(evictions.counts().regretted_share, None);
        let counts = evictions.counts();
        assert_eq!(counts.regretted, counts.watched);
        evictions.evicted(&hashes(0..2_000));
        evictions.cleared();
        evictions.stored(&hashes(0..2_000));
        assert_eq!(evictions.counts().regretted, counts.regretted);
        assert_eq!(evictions.counts().regretted_share, None);
    }

    #[test]
    fn what_left_long_ago_is_forgotten() {
        let mut evictions = Evictions::default();
        evictions.evicted(&hashes(0..1_000));
        evictions.evicted(&hashes(10_000..1_000_000));
        evictions.stored(&hashes(0..1_000));
        assert_eq!(evictions.counts().regretted, 0);
        assert_eq!(evictions.remembered.len(), REMEMBERED);
    }
}
