//! What is counted of requests, under the reference's names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::table::Table;

/// Upper bounds of the buckets of durations, in seconds.
pub(crate) const BUCKETS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
/// The most values of the label `model`; others are `other`.
const MOST_MODELS: usize = 64;

/// A request that ended at a rule's port.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// The rule's address and port.
    pub at: SocketAddr,
    /// The pool's model.
    pub pool: &'a str,
    /// The URL of the endpoint that computed the prompt.
    pub endpoint: Option<&'a str>,
    /// Tokens of the prompt that it was credited with holding.
    pub overlap: u64,
    /// Why the engines' caches had no say, where they had none; in our words.
    pub miss: Option<&'a str>,
    /// What was special about the choice among those that hold some of it: `spill`, `spill_relief`, `cold_seed`.
    pub detail: &'a str,
    /// Whether its conversation was there already: then the caches were not asked.
    pub pinned: bool,
    /// The status of the answer.
    pub status: u16,
    /// Whether it ended as it should.
    pub complete: bool,
    /// Whether it was split.
    pub split: bool,
    /// How long it took.
    pub took: Duration,
}

/// Counts since the process began.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) hits: BTreeMap<u32, u64>,
    pub(crate) spills: BTreeMap<u32, u64>,
    pub(crate) cold_seeds: BTreeMap<u32, u64>,
    pub(crate) misses: BTreeMap<&'static str, u64>,
    pub(crate) fallthrough: u64,
    pub(crate) watchdog: BTreeMap<u32, u64>,
    pub(crate) requests: BTreeMap<(String, u16), u64>,
    pub(crate) durations: BTreeMap<String, Histogram>,
    pub(crate) split: BTreeMap<(String, &'static str), u64>,
}

/// Counts by bucket, the last for what is beyond all bounds.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [u64; BUCKETS.len() + 1],
    pub(crate) sum: f64,
}

impl Tally {
    /// Counts a request by the rules there are now.
    pub(crate) fn note(&mut self, table: &Table, note: &Note<'_>) {
        let model = self.model(note.pool);
        *self.requests.entry((model.clone(), note.status)).or_default() += 1;
        let took = note.took.as_secs_f64();
        let histogram = self.durations.entry(model.clone()).or_default();
        let bucket = BUCKETS.iter().position(|bound| took <= *bound).unwrap_or(BUCKETS.len());
        histogram.buckets[bucket] += 1;
        histogram.sum += took;
        if note.split {
            let status = match (note.complete, note.status) {
                (true, 200..=299) => "success",
                (_, 504) => "timeout",
                _ => "error",
            };
            *self.split.entry((model, status)).or_default() += 1;
        }
        let Some(placed) = table.serving(note.at, note.pool) else { return };
        let mode = placed.rule.service.kv_exact_mode;
        if !matches!(mode, 1 | 3) {
            *self.misses.entry("mode_off").or_default() += 1;
            return;
        }
        let url = note.endpoint.and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
        let engine = url.and_then(|rest| rest.split('#').next()?.parse::<SocketAddr>().ok());
        let index = engine.and_then(|engine| placed.index_of(engine));
        if note.pinned {
            return;
        }
        // The endpoint that was chosen in the end counts as hit, also where that was for its load.
        let has_say = note.miss.is_none() && (note.overlap > 0 || !note.detail.is_empty());
        match (note.miss, index) {
            (None, Some(index)) if has_say => {
                *self.hits.entry(index).or_default() += 1;
                match note.detail {
                    "spill" | "spill_relief" => *self.spills.entry(index).or_default() += 1,
                    "cold_seed" => *self.cold_seeds.entry(index).or_default() += 1,
                    _ => {}
                }
            }
            (miss, _) => {
                let warm =
                    placed.since.elapsed() >= Duration::from_secs(placed.rule.service.warmup_s());
                let reason = reason(miss.unwrap_or_default(), warm);
                *self.misses.entry(reason).or_default() += 1;
                if miss == Some("zero_hits") {
                    *self.watchdog.entry(placed.service).or_default() += 1;
                }
                if mode == 1 {
                    self.fallthrough += 1;
                }
            }
        }
    }

    fn model(&self, model: &str) -> String {
        let is_known = self.durations.contains_key(model);
        let name = if is_known || self.durations.len() < MOST_MODELS { model } else { "other" };
        name.to_owned()
    }
}

/// The reference's word for why Tier 1.5 had no say. Until a rule is warm, a stream that is not sound yet
/// is its warming up.
fn reason(ours: &str, warm: bool) -> &'static str {
    match ours {
        "text_empty" => "text_empty",
        "no_tokenizer" | "tokenizer_pending" | "tokenizer_busy" | "tokenize" => "tokenize",
        "unsupported" => "unsupported",
        "api_mode" => "api_mode",
        "hashes" | "no_full_block" => "hashes",
        "not_ready" if warm => "not_ready",
        "not_ready" => "warmup",
        "excluded" => "excluded",
        "shallow" => "shallow",
        _ => "no_worker",
    }
}

/// All reasons, so that each is there from the first scrape on.
pub(crate) const REASONS: [&str; 12] = [
    "mode_off",
    "warmup",
    "text_empty",
    "model_empty",
    "tokenize",
    "hashes",
    "no_worker",
    "excluded",
    "shallow",
    "not_ready",
    "api_mode",
    "unsupported",
];
