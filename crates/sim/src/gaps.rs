//! Times between tokens: too many to keep, so they are counted by size.

use crate::report::Spread;

/// Sizes are told apart by so many leading bits: within a thousandth.
const BITS: u32 = 11;

/// How many gaps there were of each size, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gaps {
    /// By [`place`].
    counts: Vec<u64>,
    all: u64,
    sum: f64,
}

impl Gaps {
    pub(crate) fn add(&mut self, nanos: u64) {
        let place = place(nanos);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.all += 1;
        self.sum += nanos as f64;
    }

    /// In milliseconds. The mean is exact, the others are at most a thousandth too low.
    pub(crate) fn spread(&self) -> Spread {
        if self.all == 0 {
            return Spread::default();
        }
        let rank = |part: f64| {
            let wanted = part * self.all as f64;
            let mut below = 0;
            let at = self.counts.iter().position(|count| {
                below += count;
                below as f64 >= wanted
            });
            least(at.unwrap_or(0)) as f64 / 1e6
        };
        let mean = self.sum / self.all as f64 / 1e6;
        Spread { mean, p50: rank(0.5), p90: rank(0.9), p99: rank(0.99) }
    }
}

/// Where gaps of a size are counted: small ones by themselves, others by their leading bits.
fn place(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(BITS);
    // At most 53 shifts of 1,024 places each, behind the first 1,024.
    ((u64::from(shift) << (BITS - 1)) + (nanos >> shift)) as usize
}

/// The least size that is counted there.
fn least(place: usize) -> u64 {
    let place = place as u64;
    let shift = (place >> (BITS - 1)).saturating_sub(1);
    (place - (shift << (BITS - 1))) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_order_and_tell_sizes_within_a_thousandth() {
        let mut rng = kvasir_balance::Rng::new(3);
        let sizes = (0..2_000_u64).chain((0..20_000).map(|n| rng.next_u64() >> (n % 64)));
        let mut sizes: Vec<u64> = sizes.chain([u64::MAX]).collect();
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            assert!(place(pair[0]) <= place(pair[1]), "{pair:?}");
        }
        for size in sizes {
            let least = least(place(size));
            assert!(least <= size && size - least <= size / 1_024, "{size}: {least}");
            assert_eq!(place(least), place(size));
        }
    }

    #[test]
    fn ranks_are_those_of_the_sorted_list() {
        let mut rng = kvasir_balance::Rng::new(9);
        for count in [1, 2, 99, 100, 101, 5_000] {
            let mut gaps = Gaps::default();
            let mut all: Vec<f64> = Vec::new();
            for _ in 0..count {
                let nanos = rng.next_u64() >> (20 + rng.next_u64() % 20);
                gaps.add(nanos);
                all.push(nanos as f64 / 1e6);
            }
            all.sort_by(f64::total_cmp);
            let (found, wanted) = (gaps.spread(), Spread::of(&all));
            let pairs = [
                (found.mean, wanted.mean),
                (found.p50, wanted.p50),
                (found.p90, wanted.p90),
                (found.p99, wanted.p99),
            ];
            for (found, wanted) in pairs {
                assert!((found - wanted).abs() <= wanted / 1_000.0, "{count}: {found} {wanted}");
            }
        }
        assert_eq!(Gaps::default().spread(), Spread::default());
    }
}
