//! The few numbers read from an engine's `/metrics` page.

use std::collections::BTreeMap;

use crate::kind::EngineKind;
use crate::parity::counters::Counters;
use crate::samples::{Sample, samples};

/// An engine's own account of its load, as last scraped. Families register lazily, so any may be
/// missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Signals {
    /// Requests being computed (`vllm:num_requests_running`, `sglang:num_running_reqs`).
    pub(crate) running: Option<f64>,
    /// Requests waiting (`vllm:num_requests_waiting`, `sglang:num_queue_reqs`).
    pub(crate) waiting: Option<f64>,
    /// Used share of the KV cache, 0–1 (`vllm:kv_cache_usage_perc`, `sglang:token_usage`).
    pub(crate) kv_usage: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since the engine's start
    /// (`vllm:prefix_cache_queries_total`; `sglang:prompt_tokens_total`: all are).
    pub(crate) looked_up: Option<f64>,
    /// Those found there (`vllm:prefix_cache_hits_total`, `sglang:cached_tokens_total`).
    pub(crate) hit: Option<f64>,
}

impl Signals {
    /// Requests waiting, as a count.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    pub(crate) fn waiting_requests(&self) -> Option<u32> {
        self.waiting.map(|waiting| waiting.clamp(0.0, f64::from(u32::MAX)) as u32)
    }

    /// The counters of the prefix cache, where there are both.
    pub(crate) fn counters(&self) -> Option<Counters> {
        Some(Counters { queries: self.looked_up?, hits: self.hit? })
    }
}

/// A page: the load of each rank and of all together, and what the engine says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page {
    ranks: BTreeMap<u32, Signals>,
    /// Whether the engine sleeps (`vllm:engine_sleep_state`): it then holds no cache and takes no
    /// requests.
    pub(crate) asleep: bool,
    /// Tokens per block (`hash_block_size`, else `block_size`, of `vllm:cache_config_info`).
    pub(crate) block_size: Option<u32>,
    /// Blocks of one rank's cache (`num_gpu_blocks`).
    pub(crate) blocks: Option<u64>,
    /// Whether prefixes are kept (`enable_prefix_caching`).
    pub(crate) prefix_caching: Option<bool>,
    /// When the engine's process started, in seconds since the epoch
    /// (`process_start_time_seconds`).
    pub(crate) process_start: Option<f64>,
    /// The engine whose families these are.
    pub(crate) kind: Option<EngineKind>,
}

impl Page {
    /// Reads a Prometheus text page; lines that are not understood are skipped.
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut labels = Labels::default();
        for sample in samples(text) {
            let Sample { name, value, .. } = sample;
            page.kind = page.kind.or_else(|| EngineKind::of_family(name));
            match name {
                "vllm:num_requests_running" => {
                    add(&mut page.rank(&mut labels, &sample).running, value);
                }
                "vllm:num_requests_waiting" => {
                    add(&mut page.rank(&mut labels, &sample).waiting, value);
                }
                "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" | "sglang:token_usage" => {
                    most(&mut page.rank(&mut labels, &sample).kv_usage, value);
                }
                "vllm:prefix_cache_queries_total" | "sglang:prompt_tokens_total" => {
                    add(&mut page.rank(&mut labels, &sample).looked_up, value);
                }
                "vllm:prefix_cache_hits_total" | "sglang:cached_tokens_total" => {
                    add(&mut page.rank(&mut labels, &sample).hit, value);
                }
                // All tensor-parallel ranks of a data-parallel one may say the same.
                "sglang:num_running_reqs" => {
                    most(&mut page.rank(&mut labels, &sample).running, value);
                }
                "sglang:num_queue_reqs" => {
                    most(&mut page.rank(&mut labels, &sample).waiting, value);
                }
                "vllm:engine_sleep_state" if sample.label("sleep_state") == Some("awake") => {
                    page.asleep |= value == 0.0;
                }
                "process_start_time_seconds" => page.process_start = Some(value),
                "vllm:cache_config_info" => {
                    let size = |key| sample.label(key).and_then(|text| text.parse().ok());
                    let size = size("hash_block_size").or_else(|| size("block_size"));
                    page.block_size = size.filter(|size| *size > 0);
                    page.blocks = sample.label("num_gpu_blocks").and_then(|text| text.parse().ok());
                    page.prefix_caching = match sample.label("enable_prefix_caching") {
                        Some("True") => Some(true),
                        Some("False") => Some(false),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        page
    }

    /// The ranks the page speaks of.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        self.ranks.keys().copied().collect()
    }

    /// The load of one rank; of all where `rank` is `None`. `alone` says that the engine's address
    /// belongs to that rank.
    pub(crate) fn load(&self, rank: Option<u32>, alone: bool) -> Signals {
        let Some(rank) = rank else { return self.all() };
        match self.ranks.get(&rank) {
            Some(signals) => *signals,
            None if alone && self.ranks.len() <= 1 => self.all(),
            None => Signals::default(),
        }
    }

    /// Counts of all ranks added up; of usages the largest.
    fn all(&self) -> Signals {
        let mut all = Signals::default();
        for Signals { running, waiting, kv_usage, looked_up, hit } in self.ranks.values() {
            running.iter().for_each(|value| add(&mut all.running, *value));
            waiting.iter().for_each(|value| add(&mut all.waiting, *value));
            kv_usage.iter().for_each(|value| most(&mut all.kv_usage, *value));
            looked_up.iter().for_each(|value| add(&mut all.looked_up, *value));
            hit.iter().for_each(|value| add(&mut all.hit, *value));
        }
        all
    }

    fn rank<'a>(&mut self, labels: &mut Labels<'a>, sample: &Sample<'a>) -> &mut Signals {
        let label = sample.label("engine").or_else(|| sample.label("dp_rank"));
        self.ranks.entry(labels.rank(label)).or_default()
    }
}

/// Which rank a label value stands for.
#[derive(Debug, Default)]
struct Labels<'a> {
    /// Values that are no numbers, in the order they came.
    unread: Vec<&'a str>,
}

impl<'a> Labels<'a> {
    /// Values that are no numbers are ranks all the same: taking two for one would hide a cache.
    fn rank(&mut self, label: Option<&'a str>) -> u32 {
        let Some(text) = label else { return 0 };
        if let Ok(rank) = text.parse() {
            return rank;
        }
        let known = self.unread.iter().position(|known| *known == text);
        let place = known.unwrap_or_else(|| {
            self.unread.push(text);
            self.unread.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }
}

fn most(most: &mut Option<f64>, value: f64) {
    *most = Some(most.map_or(value, |known| known.max(value)));
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
vllm:cache_config_info{block_size="32",cache_dtype="a,block_size=9",hash_block_size="None",num_gpu_blocks="96"} 1.0
broken{ 1
nan_family NaN
vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 0.0
process_start_time_seconds 1.79e+09
"#;

    fn load(running: f64, waiting: Option<f64>, kv_usage: f64) -> Signals {
        Signals { running: Some(running), waiting, kv_usage: Some(kv_usage), ..Signals::default() }
    }

    #[test]
    fn a_page_is_read_by_rank_and_as_a_whole() {
        let page = Page::parse(PAGE);
        assert_eq!((page.block_size, page.blocks, page.asleep), (Some(32), Some(96), false));
        assert_eq!(page.process_start, Some(1.79e9));
        assert_eq!(page.ranks(), [0, 1]);
        assert_eq!(page.load(None, true), load(3.0, Some(3.0), 0.5));
        assert_eq!(page.load(Some(0), false), load(2.0, Some(3.0), 0.25));
        assert_eq!(page.load(Some(1), false), load(1.0, None, 0.5));
        assert_eq!(page.load(Some(2), true), Signals::default());
    }

    #[test]
    fn an_address_of_one_rank_may_call_it_by_another_number() {
        let page = Page::parse("vllm:num_requests_running{engine=\"0\"} 4");
        assert_eq!(page.load(Some(3), true).running, Some(4.0));
        assert_eq!(page.load(Some(3), false).running, None);
        let words = "vllm:num_requests_running{engine=\"a\"} 4\n\
                     vllm:num_requests_running{engine=\"b\"} 5";
        assert_eq!(Page::parse(words).ranks(), [0, 1]);
    }

    #[test]
    fn sglangs_page_is_read_too() {
        let page = Page::parse(
            r#"sglang:num_running_reqs{dp_rank="0",tp_rank="0",model_name="m"} 3.0
sglang:num_running_reqs{dp_rank="0",tp_rank="1",model_name="m"} 3.0
sglang:num_running_reqs{dp_rank="1",tp_rank="0",model_name="m"} 1.0
sglang:num_queue_reqs{dp_rank="1",model_name="m"} 2.0
sglang:token_usage{dp_rank="0",model_name="m"} 0.75
"#,
        );
        assert_eq!((page.kind, page.ranks()), (Some(EngineKind::Sglang), vec![0, 1]));
        assert_eq!(page.load(None, true), load(4.0, Some(2.0), 0.75));
        let alone = Page::parse(r#"sglang:num_running_reqs{model_name="m"} 3.0"#);
        assert_eq!(alone.load(None, true).running, Some(3.0));
    }

    #[test]
    fn a_sleeping_engine_says_so() {
        let page = r#"vllm:engine_sleep_state{sleep_state="awake"} 0.0"#;
        assert!(Page::parse(page).asleep);
    }

    #[test]
    fn the_hash_block_size_wins() {
        let page = r#"vllm:cache_config_info{block_size="64",hash_block_size="16"} 1"#;
        assert_eq!(Page::parse(page).block_size, Some(16));
    }

    #[test]
    fn whether_prefixes_are_kept_is_told_or_not_known() {
        for (word, told) in [("True", Some(true)), ("False", Some(false)), ("None", None)] {
            let page = format!("vllm:cache_config_info{{enable_prefix_caching=\"{word}\"}} 1");
            assert_eq!(Page::parse(&page).prefix_caching, told);
        }
    }

    #[test]
    fn pages_cut_anywhere_do_not_panic() {
        for end in (0..PAGE.len()).filter(|end| PAGE.is_char_boundary(*end)) {
            let _ = Page::parse(&PAGE[..end]);
        }
        assert_eq!(Page::parse(""), Page::default());
    }
}
