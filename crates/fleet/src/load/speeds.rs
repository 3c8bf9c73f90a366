//! How fast an endpoint was seen to be: time to first token, and tokens per second.

use std::time::{Duration, Instant};

use kvasir_balance::{PrefillRate, fetch_rate};
use parking_lot::Mutex;

use super::Work;

/// Time to first token, as streamed answers had it lately.
#[derive(Debug, Default)]
pub(crate) struct FirstTokens {
    learned: Mutex<Option<(Duration, Instant)>>,
}

impl FirstTokens {
    /// A new answer weighs this much.
    const SMOOTHING: f64 = 0.3;
    /// What was seen so long ago says nothing any more: an endpoint that is avoided for being slow
    /// is tried again.
    const STALE: Duration = Duration::from_secs(30);

    /// In milliseconds; `None` where nothing was seen lately.
    pub(crate) fn get(&self, now: Instant) -> Option<f64> {
        let learned = *self.learned.lock();
        let (mean, at) = learned?;
        let fresh = now.saturating_duration_since(at) <= Self::STALE;
        fresh.then_some(mean.as_secs_f64() * 1000.0)
    }

    pub(crate) fn observe(&self, took: Duration, now: Instant) {
        let mut learned = self.learned.lock();
        let known = learned.filter(|(_, at)| now.saturating_duration_since(*at) <= Self::STALE);
        let mean = known.map_or(took, |(mean, _)| {
            mean.mul_f64(1.0 - Self::SMOOTHING) + took.mul_f64(Self::SMOOTHING)
        });
        *learned = Some((mean, now));
    }
}

/// Tokens per second, as learned by all requests.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    learned: Mutex<(PrefillRate, PrefillRate)>,
}

impl Rates {
    /// Prompt tokens computed per second; `None` until enough was seen.
    pub(crate) fn prefill(&self) -> Option<f64> {
        self.learned.lock().0.get()
    }

    /// Prompt tokens computed and fetched per second, where the other endpoints make one expect that
    /// `expected` are computed.
    pub(crate) fn against(&self, expected: f64, age: Duration) -> (f64, f64) {
        let (prefill, fetch) = &*self.learned.lock();
        let rate = prefill.against(expected, age);
        (rate, fetch_rate(fetch, rate, age))
    }

    /// What is fetched besides computing takes the time that computing does not.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub(crate) fn observe(&self, work: Work, took: Duration, age: Duration) {
        let (prefill, fetch) = &mut *self.learned.lock();
        if work.fetched == 0 {
            prefill.observe(work.computed, took.as_secs_f64(), age);
        } else if let Some(rate) = prefill.get() {
            let computing = work.computed as f64 / rate.max(1.0);
            fetch.observe(u64::from(work.fetched), took.as_secs_f64() - computing, age);
        }
    }

    /// Forgets everything: the engine behind the address may be another one.
    pub(crate) fn reset(&self) {
        *self.learned.lock() = Default::default();
    }
}
