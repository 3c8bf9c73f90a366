//! How many requests of a pool may be sent a second time: a share of those that came lately, and a
//! few besides, so that engines in trouble do not get twice the load on top of it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Seconds that count.
const WINDOW: usize = 10;

/// How much is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Retries in percent of the requests of the last ten seconds.
    pub percent: u32,
    /// Retries a second that are allowed besides.
    pub min_per_s: u32,
}

/// The requests and retries of the last ten seconds of one pool.
#[derive(Debug)]
pub struct RetryBudget {
    began: Instant,
    lately: Mutex<Lately>,
}

/// Counts by second. The place of a second is its number modulo [`WINDOW`].
#[derive(Clone, Debug, Default)]
struct Lately {
    /// The latest second that was counted in.
    second: u64,
    requests: [u32; WINDOW],
    retries: [u32; WINDOW],
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { began: Instant::now(), lately: Mutex::default() }
    }
}

impl RetryBudget {
    /// A request came.
    pub fn note_request(&self, now: Instant) {
        self.lately.lock().note_request(self.age(now));
    }

    /// Whether a retry is allowed now.
    pub fn allows(&self, limits: RetryLimits, now: Instant) -> bool {
        self.lately.lock().allows(limits, self.age(now))
    }

    /// The same; one that is allowed counts as made.
    pub fn take(&self, limits: RetryLimits, now: Instant) -> bool {
        self.lately.lock().take(limits, self.age(now))
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

impl Lately {
    fn note_request(&mut self, age: Duration) {
        let count = &mut self.requests[self.place(age)];
        *count = count.saturating_add(1);
    }

    fn allows(&mut self, limits: RetryLimits, age: Duration) -> bool {
        self.place(age);
        let sum = |counts: &[u32; WINDOW]| counts.iter().map(|n| u64::from(*n)).sum::<u64>();
        let share = sum(&self.requests) * u64::from(limits.percent) / 100;
        sum(&self.retries) < share + u64::from(limits.min_per_s) * WINDOW as u64
    }

    fn take(&mut self, limits: RetryLimits, age: Duration) -> bool {
        let allowed = self.allows(limits, age);
        if allowed {
            self.retries[place_of(self.second)] += 1;
        }
        allowed
    }

    /// The place of the second `age` is in, after what is too old was dropped.
    fn place(&mut self, age: Duration) -> usize {
        // Clocks of two threads may be taken in one order and used in the other.
        let second = age.as_secs().max(self.second);
        for gone in (self.second + 1..=second).take(WINDOW) {
            let place = place_of(gone);
            (self.requests[place], self.retries[place]) = (0, 0);
        }
        self.second = second;
        place_of(second)
    }
}

fn place_of(second: u64) -> usize {
    usize::try_from(second % WINDOW as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_of_the_requests_and_a_few_besides() {
        let budget = RetryBudget::default();
        let limits = RetryLimits { percent: 20, min_per_s: 1 };
        let now = budget.began;
        let taken = |now| (0..100).filter(|_| budget.take(limits, now)).count();
        assert_eq!(taken(now), 10);
        (0..50).for_each(|_| budget.note_request(now));
        assert_eq!(taken(now), 10, "20 % of 50");
        assert_eq!(taken(now + Duration::from_secs(9)), 0);
        assert_eq!(taken(now + Duration::from_secs(10)), 10, "all is forgotten");
        let none = RetryLimits { percent: 0, min_per_s: 0 };
        assert!(!RetryBudget::default().take(none, now));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Request,
        Retry,
        Wait(u64),
    }

    proptest! {
        #[test]
        fn it_counts_what_a_list_of_all_would(
            percent in 0u32..200,
            min_per_s in 0u32..3,
            steps in prop::collection::vec(prop_oneof![
                6 => Just(Step::Request),
                6 => Just(Step::Retry),
                2 => (0u64..1_500).prop_map(Step::Wait),
                1 => (0u64..40_000).prop_map(Step::Wait),
            ], 0..300),
        ) {
            let limits = RetryLimits { percent, min_per_s };
            let mut lately = Lately::default();
            let (mut requests, mut retries) = (Vec::new(), Vec::new());
            let mut age = Duration::ZERO;
            for step in steps {
                let second = age.as_secs();
                let count = |all: &[u64]| {
                    all.iter().filter(|at| **at + WINDOW as u64 > second).count() as u64
                };
                match step {
                    Step::Wait(ms) => age += Duration::from_millis(ms),
                    Step::Request => {
                        lately.note_request(age);
                        requests.push(second);
                    }
                    Step::Retry => {
                        let most = count(&requests) * u64::from(percent) / 100
                            + u64::from(min_per_s) * WINDOW as u64;
                        let allowed = count(&retries) < most;
                        prop_assert_eq!(lately.allows(limits, age), allowed);
                        prop_assert_eq!(lately.take(limits, age), allowed);
                        if allowed {
                            retries.push(second);
                        }
                    }
                }
            }
        }
    }
}
