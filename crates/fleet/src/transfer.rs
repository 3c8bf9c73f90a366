//! How fast decode endpoints fetch KV that was computed elsewhere, learned from their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kvasir_balance::PrefillRate;
use parking_lot::Mutex;

use crate::endpoint::Endpoint;

/// What one endpoint fetches.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    /// Decode legs sent there whose first data has not come.
    under_way: AtomicU32,
    learned: Mutex<PrefillRate>,
}

/// What one decode leg has to fetch.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// Tokens of KV.
    tokens: u64,
    /// What it takes however little that is.
    fixed: Duration,
    /// Tokens a second, as expected.
    rate: f64,
    begun: Option<Begun>,
}

/// It was sent.
#[derive(Debug)]
struct Begun {
    at: Instant,
    /// Nothing else was being fetched.
    alone: bool,
    /// It counts as under way until this is dropped.
    endpoint: Arc<Endpoint>,
}

impl Transfers {
    /// Tokens per second, where one expects `expected` until something was seen; moments are those of
    /// the endpoint's load.
    pub(crate) fn against(&self, expected: f64, age: Duration) -> f64 {
        self.learned.lock().against(expected, age)
    }

    /// As seen; `None` until enough was seen.
    pub(crate) fn learned(&self) -> Option<f64> {
        self.learned.lock().get()
    }

    /// Forgets what was learned: the engine behind the address may be another one.
    pub(crate) fn reset(&self) {
        *self.learned.lock() = PrefillRate::default();
    }
}

impl Fetch {
    pub(crate) fn new(tokens: u64, fixed: Duration, rate: f64) -> Self {
        Self { tokens, fixed, rate, begun: None }
    }

    /// How long it takes, as predicted when the endpoint was chosen.
    pub(crate) fn takes(&self) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "tokens of one prompt")]
        let seconds = self.tokens as f64 / self.rate;
        // A rate of nothing takes for ever.
        self.fixed.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// The leg is sent.
    pub(crate) fn begin(&mut self, endpoint: &Arc<Endpoint>, now: Instant) {
        if self.begun.is_none() {
            let before = endpoint.transfers().under_way.fetch_add(1, Ordering::Relaxed);
            let endpoint = Arc::clone(endpoint);
            self.begun = Some(Begun { at: now, alone: before == 0, endpoint });
        }
    }

    /// Its first data came; how long it took since it was sent. Where nothing else was being fetched
    /// or computed, and the first data is the first token, it times the transfer.
    pub(crate) fn end(&mut self, now: Instant, times: bool) -> Option<Duration> {
        let begun = self.begun.take()?;
        let took = now.saturating_duration_since(begun.at);
        let transfers = begun.endpoint.transfers();
        let others = transfers.under_way.load(Ordering::Relaxed) > 1;
        if times && begun.alone && !others {
            let seconds = took.as_secs_f64() - self.fixed.as_secs_f64();
            let age = begun.endpoint.load().age(now);
            transfers.learned.lock().observe(self.tokens, seconds, age);
        }
        Some(took)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.endpoint.transfers().under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
