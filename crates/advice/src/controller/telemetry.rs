//! What an engine's metrics page tells a controller. What a page does not say is not known; it is never
//! zero.

use std::collections::BTreeSet;

use kvasir_fleet::samples;

/// Families that are looked for, by the engine. An engine registers some of them with its first request
/// only: a missing one is named, and no fault.
const VLLM: [&str; 3] =
    ["vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"];
const SGLANG: [&str; 2] = ["sglang:num_queue_reqs", "sglang:token_usage"];

/// A page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Blocks of one rank's cache; where ranks differ, of the smallest.
    pub blocks: Option<u64>,
    /// Tokens per block.
    pub block_size: Option<u64>,
    /// Requests that wait, of all ranks.
    pub waiting: Option<f64>,
    /// Used share of the cache, of the fullest rank.
    pub kv_usage: Option<f64>,
    /// Families of this kind of engine that the page does not have.
    pub missing: Vec<&'static str>,
}

impl Reading {
    /// Reads a page.
    ///
    /// # Errors
    /// When it has no family of a known engine.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reading = Self::default();
        let mut seen = BTreeSet::new();
        let mut sglang = false;
        for sample in samples(text) {
            // vLLM's engine of the first generation has another name for it.
            let name = match sample.name {
                "vllm:gpu_cache_usage_perc" => "vllm:kv_cache_usage_perc",
                name => name,
            };
            let known = VLLM.iter().chain(&SGLANG).find(|family| **family == name);
            sglang |= name.starts_with("sglang:");
            let Some(family) = known else { continue };
            seen.insert(*family);
            match *family {
                "vllm:cache_config_info" => {
                    let number = |key| sample.label(key).and_then(|text| text.parse::<u64>().ok());
                    let blocks = number("num_gpu_blocks").filter(|blocks| *blocks > 0);
                    reading.blocks = reading.blocks.into_iter().chain(blocks).min();
                    reading.block_size = reading.block_size.or(number("block_size"));
                }
                "vllm:num_requests_waiting" | "sglang:num_queue_reqs" => {
                    *reading.waiting.get_or_insert(0.0) += sample.value;
                }
                _ => {
                    let known = reading.kv_usage.unwrap_or(sample.value);
                    reading.kv_usage = Some(known.max(sample.value));
                }
            }
        }
        if seen.is_empty() && !sglang && !text.contains("vllm:") {
            return Err("it has no family of vLLM or SGLang".to_owned());
        }
        let wanted = if sglang { &SGLANG[..] } else { &VLLM[..] };
        reading.missing = wanted.iter().copied().filter(|name| !seen.contains(name)).collect();
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_of_vllm_and_sglang_are_read() {
        let page = "vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} 1\n\
                    vllm:gpu_cache_usage_perc 0.25\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"8192\"} 1\n";
        let reading = Reading::parse(page).unwrap();
        assert_eq!((reading.blocks, reading.block_size), (Some(8192), Some(16)));
        assert_eq!((reading.waiting, reading.kv_usage), (Some(4.0), Some(0.25)));
        assert!(reading.missing.is_empty());
        let reading = Reading::parse("sglang:num_queue_reqs 2\nsglang:token_usage 0.5").unwrap();
        assert_eq!(
            (reading.waiting, reading.kv_usage, reading.blocks),
            (Some(2.0), Some(0.5), None)
        );
    }

    #[test]
    fn what_is_not_told_is_not_zero_and_is_named() {
        let page = "vllm:cache_config_info{num_gpu_blocks=\"None\"} 1\nvllm:other 1\n";
        let reading = Reading::parse(page).unwrap();
        assert_eq!((reading.blocks, reading.waiting, reading.kv_usage), (None, None, None));
        assert_eq!(reading.missing, ["vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]);
        assert!(Reading::parse("process_start_time_seconds 1").is_err());
        assert!(Reading::parse("").is_err());
    }

    #[test]
    fn of_ranks_that_differ_the_smallest_cache_counts() {
        let page = "vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"90\"} 1\n\
                    vllm:cache_config_info{engine=\"1\",num_gpu_blocks=\"80\"} 1\n";
        assert_eq!(Reading::parse(page).unwrap().blocks, Some(80));
    }
}
