//! How many tokens an engine took from its cache: by its own account, or by its counters.

use kvasir_fleet::samples;
use serde_json::Value;

use super::Outcome;
use crate::shown::shortened;

/// Others' requests were counted at the same time.
pub(super) const DISTURBED: &str = "other traffic hides the hits";
pub(super) const NO_COUNTERS: &str = "no hit counters in /metrics";

/// Text of a refusal that is shown.
const MAX_MESSAGE: usize = 200;

/// Which of the two tells.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    reports: bool,
}

impl Oracle {
    /// Whether the engine has not reported a number yet.
    pub(super) fn needs_counters(&self) -> bool {
        !self.reports
    }

    pub(super) fn told(&mut self, cached: u64) -> Outcome {
        self.reports = true;
        Outcome::Reported(cached)
    }
}

/// vLLM's counters of looked-up and found tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counters {
    queries: f64,
    hits: f64,
}

impl Counters {
    /// Adds up a page's series; `None` if it has none.
    pub(super) fn read(page: &str) -> Option<Self> {
        let (mut queries, mut hits) = (None, 0.0);
        for sample in samples(page) {
            match sample.name {
                "vllm:prefix_cache_queries_total" => {
                    queries = Some(queries.unwrap_or(0.0) + sample.value);
                }
                "vllm:prefix_cache_hits_total" => hits += sample.value,
                _ => {}
            }
        }
        queries.map(|queries| Self { queries, hits })
    }

    /// Queries and hits since an earlier reading. Counters that went back give none.
    pub(super) fn since(self, before: Self) -> (u64, u64) {
        // Counts of tokens, far below 2^53.
        let whole = |now: f64, then: f64| (now - then).max(0.0).round() as u64;
        (whole(self.queries, before.queries), whole(self.hits, before.hits))
    }
}

/// The message of a refusal, shortened, after a colon; empty if there is none.
pub(super) fn message(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = [&body["error"]["message"], &body["message"], &body["detail"]];
    let text = text.iter().find_map(|text| text.as_str()).unwrap_or_default();
    if text.is_empty() { String::new() } else { format!(": {}", shortened(text, MAX_MESSAGE)) }
}

#[cfg(test)]
mod tests;
