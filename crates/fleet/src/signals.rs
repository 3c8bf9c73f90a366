//! The few numbers read from an engine's `/metrics` page.

use std::collections::HashSet;

use crate::samples::{Sample, samples};

/// An engine's own account of its load, as last scraped. Families register lazily, so any may be
/// missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Signals {
    /// Requests being computed (`vllm:num_requests_running`).
    pub(crate) running: Option<f64>,
    /// Requests waiting (`vllm:num_requests_waiting`).
    pub(crate) waiting: Option<f64>,
    /// Used share of the KV cache, 0–1 (`vllm:kv_cache_usage_perc`).
    pub(crate) kv_usage: Option<f64>,
    /// Whether the engine sleeps (`vllm:engine_sleep_state`): it then holds no cache and takes no
    /// requests.
    pub(crate) asleep: bool,
    /// Engines the page speaks of: one per data-parallel rank.
    pub(crate) ranks: u32,
    /// Tokens per block (`hash_block_size`, else `block_size`, of `vllm:cache_config_info`).
    pub(crate) block_size: Option<u32>,
}

impl Signals {
    /// Reads a Prometheus text page; lines that are not understood are skipped.
    ///
    /// Counts of several label sets (one per data-parallel rank) are added up; of usages the
    /// largest counts.
    pub(crate) fn parse(page: &str) -> Self {
        let mut signals = Self::default();
        let mut engines = HashSet::new();
        for sample in samples(page) {
            let Sample { name, value, .. } = sample;
            match name {
                "vllm:num_requests_running" => {
                    engines.insert(sample.label("engine"));
                    add(&mut signals.running, value);
                }
                "vllm:num_requests_waiting" => add(&mut signals.waiting, value),
                "vllm:kv_cache_usage_perc" => {
                    signals.kv_usage = Some(signals.kv_usage.map_or(value, |v| v.max(value)));
                }
                "vllm:engine_sleep_state" if sample.label("sleep_state") == Some("awake") => {
                    signals.asleep |= value == 0.0;
                }
                "vllm:cache_config_info" => {
                    let size = |key| sample.label(key).and_then(|text| text.parse().ok());
                    let size = size("hash_block_size").or_else(|| size("block_size"));
                    signals.block_size = size.filter(|size| *size > 0);
                }
                _ => {}
            }
        }
        signals.ranks = u32::try_from(engines.len()).unwrap_or(u32::MAX);
        signals
    }
}

fn add(sum: &mut Option<f64>, value: f64) {
    *sum = Some(sum.unwrap_or(0.0) + value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a}\"b"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:num_requests_waiting_by_reason{reason="x"} 7.0
vllm:num_requests_waiting{engine="0"} 3
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:cache_config_info{block_size="32",cache_dtype="a,block_size=9",hash_block_size="None"} 1.0
broken{ 1
nan_family NaN
vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 0.0
process_start_time_seconds 1.79e+09
"#;

    #[test]
    fn a_page_is_read() {
        let signals = Signals::parse(PAGE);
        assert_eq!(
            signals,
            Signals {
                running: Some(3.0),
                waiting: Some(3.0),
                kv_usage: Some(0.5),
                asleep: false,
                ranks: 2,
                block_size: Some(32),
            }
        );
    }

    #[test]
    fn a_sleeping_engine_says_so() {
        let page = r#"vllm:engine_sleep_state{sleep_state="awake"} 0.0"#;
        assert!(Signals::parse(page).asleep);
    }

    #[test]
    fn the_hash_block_size_wins() {
        let page = r#"vllm:cache_config_info{block_size="64",hash_block_size="16"} 1"#;
        assert_eq!(Signals::parse(page).block_size, Some(16));
    }

    #[test]
    fn pages_cut_anywhere_do_not_panic() {
        for end in (0..PAGE.len()).filter(|end| PAGE.is_char_boundary(*end)) {
            let _ = Signals::parse(&PAGE[..end]);
        }
        assert_eq!(Signals::parse(""), Signals::default());
    }
}
