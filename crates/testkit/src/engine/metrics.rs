//! The `/metrics` page, in the families and labels of vLLM 0.32.

use std::fmt::Write as _;

/// What a test pretends the engine's scheduler says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// `vllm:num_requests_running`; `None` shows the requests really open.
    pub running: Option<u64>,
    /// `vllm:num_requests_waiting`.
    pub waiting: u64,
    /// `vllm:kv_cache_usage_perc`, 0 to 1; `None` shows the naive cache's share.
    pub kv_usage: Option<f64>,
    /// `vllm:engine_sleep_state`: whether the engine sleeps with weights offloaded.
    pub asleep: bool,
}

/// Totals since the engine's start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) prompt_tokens: u64,
    pub(super) generation_tokens: u64,
    pub(super) cache_queries: u64,
    pub(super) cache_hits: u64,
    pub(super) finished: u64,
}

/// All that the page shows.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) model: &'a str,
    pub(super) start_time: f64,
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) kv_usage: f64,
    pub(super) asleep: bool,
    pub(super) counters: Counters,
    pub(super) block_size: usize,
    pub(super) gpu_blocks: usize,
}

impl Page<'_> {
    pub(super) fn render(&self) -> String {
        let mut out = String::new();
        family(&mut out, "process_start_time_seconds", "gauge", &[("", self.start_time)]);
        let labels = format!("{{engine=\"0\",model_name=\"{}\"}}", self.model);
        let mut engine = |name: &str, kind: &str, value: f64| {
            family(&mut out, &format!("vllm:{name}"), kind, &[(&labels, value)]);
        };
        engine("num_requests_running", "gauge", as_f64(self.running));
        engine("num_requests_waiting", "gauge", as_f64(self.waiting));
        engine("kv_cache_usage_perc", "gauge", self.kv_usage);
        let count = &self.counters;
        engine("prefix_cache_queries_total", "counter", as_f64(count.cache_queries));
        engine("prefix_cache_hits_total", "counter", as_f64(count.cache_hits));
        engine("prompt_tokens_total", "counter", as_f64(count.prompt_tokens));
        engine("generation_tokens_total", "counter", as_f64(count.generation_tokens));
        self.labelled(&mut out);
        out
    }

    /// The families with more labels.
    fn labelled(&self, out: &mut String) {
        let model = self.model;
        let success = format!("{{engine=\"0\",finished_reason=\"length\",model_name=\"{model}\"}}");
        let finished = as_f64(self.counters.finished);
        family(out, "vllm:request_success_total", "counter", &[(&success, finished)]);
        let state =
            |name: &str| format!("{{engine=\"0\",model_name=\"{model}\",sleep_state=\"{name}\"}}");
        let asleep = f64::from(u8::from(self.asleep));
        let states = [
            (state("awake"), 1.0 - asleep),
            (state("weights_offloaded"), asleep),
            (state("discard_all"), 0.0),
        ];
        let states = states.each_ref().map(|(labels, value)| (labels.as_str(), *value));
        family(out, "vllm:engine_sleep_state", "gauge", &states);
        let info = format!(
            "{{_block_size_resolved=\"True\",block_size=\"{}\",cache_dtype=\"auto\",\
             enable_prefix_caching=\"True\",engine=\"0\",hash_block_size=\"None\",\
             num_gpu_blocks=\"{}\",prefix_caching_hash_algo=\"sha256\"}}",
            self.block_size, self.gpu_blocks
        );
        family(out, "vllm:cache_config_info", "gauge", &[(&info, 1.0)]);
    }
}

fn family(out: &mut String, name: &str, kind: &str, samples: &[(&str, f64)]) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {name} As an engine would say it.\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        // Python's client always shows a fraction.
        let _ = writeln!(out, "{name}{labels} {value:?}");
    }
}

/// Counters of a test stay far below 2^53.
fn as_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_the_families_and_shapes_of_a_real_engine() {
        let page = Page {
            model: "tiny",
            start_time: 1_795_990_827.3,
            running: 3,
            waiting: 1,
            kv_usage: 0.25,
            asleep: false,
            counters: Counters { cache_hits: 960, ..Counters::default() },
            block_size: 32,
            gpu_blocks: 100,
        };
        let text = page.render();
        for line in [
            "process_start_time_seconds 1795990827.3",
            "# TYPE vllm:num_requests_running gauge",
            "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 3.0",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.25",
            "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 960.0",
            "vllm:engine_sleep_state{engine=\"0\",model_name=\"tiny\",sleep_state=\"awake\"} 1.0",
        ] {
            assert!(text.lines().any(|l| l == line), "no line {line:?} in\n{text}");
        }
        assert!(text.contains("block_size=\"32\""));
        assert!(text.ends_with('\n'));
    }
}
