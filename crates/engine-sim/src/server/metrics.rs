//! What `/metrics` shows: vLLM's families, names, labels and buckets.
//!
//! Left out is what the model does not know: times in the queue, in prefill and in inference, and
//! families of features it does not have. Histograms and counters of requests are there from the
//! start with zeros, those of HTTP requests appear with the first request of their kind, as in
//! vLLM 0.32.

mod others;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{EngineStats, FinishReason, StepOutcome};

pub(super) use self::page::{Page, render};

/// Seconds since the epoch.
pub(super) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const PER_STEP: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
/// vLLM goes on in this way up to the context length.
const TOKENS: &[f64] = &[
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10000.0,
    20000.0,
    50000.0,
    100_000.0,
    200_000.0,
    500_000.0,
    1_000_000.0,
];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// Counts by upper bounds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is beyond them all. Not cumulative.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Upper bounds, the last infinite, with everything up to them.
    fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut total = 0;
        self.bounds.iter().copied().chain([f64::INFINITY]).zip(&self.counts).map(
            move |(bound, count)| {
                total += count;
                (bound, total)
            },
        )
    }
}

/// A request that ended by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) reason: FinishReason,
    pub(super) n: usize,
    pub(super) prompt_tokens: usize,
    pub(super) max_tokens: usize,
    pub(super) tokens: usize,
    /// From arrival to the last token.
    pub(super) latency: Duration,
    /// From the first token to the last.
    pub(super) decode: Duration,
}

/// One life of one rank.
#[derive(Clone, Debug)]
pub(super) struct RankMetrics {
    pub(super) stats: EngineStats,
    created: f64,
    stopped: u64,
    ended_by_length: u64,
    aborted: u64,
    refused: u64,
    /// Batches lost because the publisher's queue was full.
    pub(super) events_lost: u64,
    adapters: BTreeSet<Arc<str>>,
    first_token: Histogram,
    inter_token: Histogram,
    per_token: Histogram,
    latency: Histogram,
    decode: Histogram,
    prompt_tokens: Histogram,
    generation_tokens: Histogram,
    computed_tokens: Histogram,
    step_tokens: Histogram,
    max_tokens: Histogram,
    n: Histogram,
}

impl RankMetrics {
    pub(super) fn new(stats: EngineStats) -> Self {
        Self {
            stats,
            created: unix_seconds(),
            stopped: 0,
            ended_by_length: 0,
            aborted: 0,
            refused: 0,
            events_lost: 0,
            adapters: BTreeSet::new(),
            first_token: Histogram::new(FIRST_TOKEN),
            inter_token: Histogram::new(PER_TOKEN),
            per_token: Histogram::new(PER_TOKEN),
            latency: Histogram::new(LATENCY),
            decode: Histogram::new(LATENCY),
            prompt_tokens: Histogram::new(TOKENS),
            generation_tokens: Histogram::new(TOKENS),
            computed_tokens: Histogram::new(TOKENS),
            step_tokens: Histogram::new(PER_STEP),
            max_tokens: Histogram::new(TOKENS),
            n: Histogram::new(CHOICES),
        }
    }

    pub(super) fn update(&mut self, stats: EngineStats) {
        self.stats = stats;
    }

    pub(super) fn stepped(&mut self, stats: EngineStats, step: &StepOutcome, lost: bool) {
        self.stats = stats;
        self.step_tokens.observe((step.load.prefill_tokens + step.load.decode_requests) as f64);
        self.events_lost += u64::from(lost);
    }

    /// The adapters of unfinished requests.
    pub(super) fn running_adapters(&mut self, names: impl Iterator<Item = Arc<str>>) {
        self.adapters = names.collect();
    }

    pub(super) fn first_token(&mut self, after: Duration, prompt_tokens: usize, cached: usize) {
        self.first_token.observe(after.as_secs_f64());
        self.computed_tokens.observe(prompt_tokens.saturating_sub(cached) as f64);
    }

    pub(super) fn next_token(&mut self, after: Duration) {
        self.inter_token.observe(after.as_secs_f64());
    }

    pub(super) fn finished(&mut self, request: &Finished) {
        match request.reason {
            FinishReason::Stop => self.stopped += 1,
            FinishReason::Length => self.ended_by_length += 1,
        }
        let decoded = request.tokens.saturating_sub(1).max(1) as f64;
        self.per_token.observe(request.decode.as_secs_f64() / decoded);
        self.latency.observe(request.latency.as_secs_f64());
        self.decode.observe(request.decode.as_secs_f64());
        self.prompt_tokens.observe(request.prompt_tokens as f64);
        self.generation_tokens.observe(request.tokens as f64);
        self.max_tokens.observe(request.max_tokens as f64);
        self.n.observe(request.n as f64);
    }

    pub(super) fn aborted(&mut self) {
        self.aborted += 1;
    }

    pub(super) fn refused(&mut self) {
        self.refused += 1;
    }
}

/// Requests by method, handler and status class.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpCounters(BTreeMap<(&'static str, &'static str, u16), u64>);

impl HttpCounters {
    /// Counts an answer; `handler` is a known path or `none`.
    pub(super) fn count(&mut self, handler: &'static str, method: &http::Method, status: u16) {
        // Methods are few, whatever a client sends.
        let method = match method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "HEAD" => "HEAD",
            "PUT" => "PUT",
            "DELETE" => "DELETE",
            "OPTIONS" => "OPTIONS",
            _ => "OTHER",
        };
        *self.0.entry((handler, method, status / 100)).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_counts_cumulative() {
        let mut histogram = Histogram::new(CHOICES);
        for value in [0.5, 1.0, 1.5, 20.0, 21.0] {
            histogram.observe(value);
        }
        let counts: Vec<_> = histogram.cumulative().collect();
        assert_eq!(
            counts,
            [(1.0, 2), (2.0, 3), (5.0, 3), (10.0, 3), (20.0, 4), (f64::INFINITY, 5)]
        );
        assert!((histogram.sum - 44.0).abs() < 1e-9);
    }
}
