//! The page itself, in the text form of Prometheus as Python's client writes it.

use std::fmt::Write as _;

use super::{Histogram, HttpCounters, RankMetrics, others};
use crate::EngineConfig;
use crate::server::disagg::Counts;
use crate::server::disagg::config::EngineKind;

/// What the page is made of.
#[derive(Debug)]
pub(in crate::server) struct Page<'a> {
    pub(in crate::server) model: &'a str,
    pub(in crate::server) started: f64,
    pub(in crate::server) engine: &'a EngineConfig,
    pub(in crate::server) hash_algorithm: &'a str,
    pub(in crate::server) has_adapters: bool,
    pub(in crate::server) ranks: &'a [RankMetrics],
    pub(in crate::server) http: &'a HttpCounters,
    pub(in crate::server) kind: EngineKind,
    /// Where there is a connector.
    pub(in crate::server) disagg: Option<Counts>,
}

/// Writes the page.
pub(in crate::server) fn render(page: &Page<'_>) -> String {
    let mut out = match page.kind {
        EngineKind::Vllm => vllm(page),
        EngineKind::Sglang => others::sglang(page),
        EngineKind::TrtLlm => others::trtllm(page),
    };
    if let Some(counts) = page.disagg {
        for (name, kind, value) in [
            ("sim_leases", "gauge", counts.leases as u64),
            ("sim_rooms", "gauge", counts.rooms as u64),
            ("sim_pulls", "gauge", counts.pulls as u64),
            ("sim_leases_expired_total", "counter", counts.expired),
            ("sim_transfers_failed_total", "counter", counts.failed),
            ("sim_tokens_pulled_total", "counter", counts.pulled_tokens),
        ] {
            let _ = writeln!(out, "# TYPE {name} {kind}\n{name} {:?}", value as f64);
        }
    }
    out
}

fn vllm(page: &Page<'_>) -> String {
    let mut out = Writer { out: String::with_capacity(16 << 10), page };
    out.head(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        "gauge",
    );
    out.line("process_start_time_seconds", "", page.started);
    gauges(&mut out);
    counters(&mut out);
    connector(&mut out);
    histograms(&mut out);
    adapters(&mut out);
    cache_config(&mut out);
    http(&mut out);
    out.out
}

struct Writer<'a> {
    out: String,
    page: &'a Page<'a>,
}

/// Labels of a rank with one more between or after vLLM's own two.
fn labels(rank: usize, model: &str, before: &str, after: &str) -> String {
    format!("engine=\"{rank}\",{before}model_name=\"{}\"{after}", Escaped(model))
}

/// A label's value.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

// Writing to a String cannot fail.
impl Writer<'_> {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = if labels.is_empty() {
            writeln!(self.out, "{name} {value:?}")
        } else {
            writeln!(self.out, "{name}{{{labels}}} {value:?}")
        };
    }

    /// A gauge of every rank.
    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&RankMetrics) -> f64) {
        self.split_gauge(name, help, &[("", "", &value)]);
    }

    /// A gauge with a further label, given as text before and after `model_name`.
    fn split_gauge(&mut self, name: &str, help: &str, parts: &[Part<'_>]) {
        let name = format!("vllm:{name}");
        self.head(&name, help, "gauge");
        self.lines(&name, parts);
    }

    fn lines(&mut self, name: &str, parts: &[Part<'_>]) {
        for (rank, metrics) in self.page.ranks.iter().enumerate() {
            for (before, after, value) in parts {
                let labels = labels(rank, self.page.model, before, after);
                self.line(name, &labels, value(metrics));
            }
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&RankMetrics) -> u64) {
        self.split_counter(name, help, &[("", "", &|m| value(m) as f64)]);
    }

    /// A counter, with the gauge that says since when.
    fn split_counter(&mut self, name: &str, help: &str, parts: &[Part<'_>]) {
        let total = format!("vllm:{name}_total");
        self.head(&total, help, "counter");
        self.lines(&total, parts);
        let created: Vec<Part<'_>> =
            parts.iter().map(|(before, after, _)| (*before, *after, CREATED)).collect();
        self.split_gauge(&format!("{name}_created"), help, &created);
    }

    fn histogram(&mut self, name: &str, help: &str, of: impl Fn(&RankMetrics) -> &Histogram) {
        let full = format!("vllm:{name}");
        self.head(&full, help, "histogram");
        for (rank, metrics) in self.page.ranks.iter().enumerate() {
            let histogram = of(metrics);
            let mut count = 0;
            for (bound, upto) in histogram.cumulative() {
                let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".into() };
                let labels = labels(rank, self.page.model, &format!("le=\"{bound}\","), "");
                self.line(&format!("{full}_bucket"), &labels, upto as f64);
                count = upto;
            }
            let labels = labels(rank, self.page.model, "", "");
            self.line(&format!("{full}_count"), &labels, count as f64);
            self.line(&format!("{full}_sum"), &labels, histogram.sum);
        }
        self.gauge(&format!("{name}_created"), help, |m| m.created);
    }
}

/// Labels before and after `model_name`, and the value.
type Part<'a> = (&'a str, &'a str, &'a dyn Fn(&RankMetrics) -> f64);

const CREATED: &dyn Fn(&RankMetrics) -> f64 = &|metrics| metrics.created;

fn gauges(out: &mut Writer<'_>) {
    out.gauge("num_requests_running", "Number of requests in model execution batches.", |m| {
        m.stats.running as f64
    });
    let waiting = |m: &RankMetrics| m.stats.waiting as f64;
    out.gauge("num_requests_waiting", "Number of requests waiting to be processed.", waiting);
    let parts: [Part<'_>; 2] =
        [("", ",reason=\"capacity\"", &waiting), ("", ",reason=\"deferred\"", &|_| 0.0)];
    out.split_gauge(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason.",
        &parts,
    );
    let parts: [Part<'_>; 3] = [
        ("", ",sleep_state=\"awake\"", &|_| 1.0),
        ("", ",sleep_state=\"weights_offloaded\"", &|_| 0.0),
        ("", ",sleep_state=\"discard_all\"", &|_| 0.0),
    ];
    out.split_gauge("engine_sleep_state", "Engine sleep state.", &parts);
    let usage = "KV-cache usage. 1 means 100 percent usage.";
    out.gauge("kv_cache_usage_perc", usage, |m| m.stats.kv_usage());
}

fn counters(out: &mut Writer<'_>) {
    out.counter("prefix_cache_queries", "Prefix cache queries, in tokens.", |m| {
        m.stats.prefix_queries
    });
    out.counter("prefix_cache_hits", "Prefix cache hits, in tokens.", |m| m.stats.prefix_hits);
    out.counter("num_preemptions", "Cumulative number of preemption from the engine.", |m| {
        m.stats.preemptions
    });
    out.counter("prompt_tokens", "Number of prefill tokens processed.", |m| m.stats.prompt_tokens);
    out.counter("generation_tokens", "Number of generation tokens processed.", |m| {
        m.stats.generation_tokens
    });
    let parts: [Part<'_>; 5] = [
        ("finished_reason=\"stop\",", "", &|m| m.stopped as f64),
        ("finished_reason=\"length\",", "", &|m| m.ended_by_length as f64),
        ("finished_reason=\"abort\",", "", &|m| m.aborted as f64),
        ("finished_reason=\"error\",", "", &|m| m.refused as f64),
        ("finished_reason=\"repetition\",", "", &|_| 0.0),
    ];
    out.split_counter("request_success", "Count of successfully processed requests.", &parts);
}

/// What a KV connector counts; that of NIXL on rank 0, for the ranks share one.
fn connector(out: &mut Writer<'_>) {
    let external = "External prefix cache queries from KV connector cross-instance cache sharing, \
                    in terms of number of queried tokens.";
    let connected = u64::from(out.page.disagg.is_some());
    out.counter("external_prefix_cache_queries", external, |m| {
        connected * m.stats.external_queries
    });
    let hits = "External prefix cache hits from KV connector cross-instance cache sharing, in \
                terms of number of cached tokens.";
    out.counter("external_prefix_cache_hits", hits, |m| m.stats.external_hits);
    let Some(counts) = out.page.disagg else { return };
    for (name, help, value) in [
        (
            "nixl_num_kv_expired_reqs",
            "Number of requests that had their KV expire.",
            counts.expired,
        ),
        ("nixl_num_failed_transfers", "Number of failed NIXL KV Cache transfers.", counts.failed),
    ] {
        let name = format!("vllm:{name}_total");
        out.head(&name, help, "counter");
        for rank in 0..out.page.ranks.len() {
            let labels = labels(rank, out.page.model, "", "");
            out.line(&name, &labels, if rank == 0 { value as f64 } else { 0.0 });
        }
    }
}

fn histograms(out: &mut Writer<'_>) {
    let tokens = "Number of prefill tokens processed.";
    out.histogram("request_prompt_tokens", tokens, |m| &m.prompt_tokens);
    let tokens = "Number of generation tokens processed.";
    out.histogram("request_generation_tokens", tokens, |m| &m.generation_tokens);
    out.histogram("iteration_tokens_total", "Number of tokens per engine_step.", |m| {
        &m.step_tokens
    });
    out.histogram("request_params_n", "The n request parameter.", |m| &m.n);
    out.histogram("request_params_max_tokens", "The max_tokens request parameter.", |m| {
        &m.max_tokens
    });
    let first = "Histogram of time to first token in seconds.";
    out.histogram("time_to_first_token_seconds", first, |m| &m.first_token);
    let inter = "Histogram of inter-token latency in seconds.";
    out.histogram("inter_token_latency_seconds", inter, |m| &m.inter_token);
    let per_token = "Histogram of time_per_output_token_seconds per request.";
    out.histogram("request_time_per_output_token_seconds", per_token, |m| &m.per_token);
    let latency = "Histogram of e2e request latency in seconds.";
    out.histogram("e2e_request_latency_seconds", latency, |m| &m.latency);
    let decode = "Histogram of time spent in DECODE phase for request.";
    out.histogram("request_decode_time_seconds", decode, |m| &m.decode);
    let computed = "New KV tokens computed during prefill (excluding cached tokens).";
    out.histogram("request_prefill_kv_computed_tokens", computed, |m| &m.computed_tokens);
}

/// Unfinished requests of adapters all count as running: which of them wait is not known.
fn adapters(out: &mut Writer<'_>) {
    if !out.page.has_adapters {
        return;
    }
    let mut names: Vec<&str> =
        out.page.ranks.iter().flat_map(|rank| rank.adapters.iter().map(AsRef::as_ref)).collect();
    names.sort_unstable();
    names.dedup();
    let labels = format!(
        "max_lora=\"1\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"\"",
        Escaped(&names.join(","))
    );
    out.head("vllm:lora_requests_info", "Running stats on lora requests.", "gauge");
    out.line("vllm:lora_requests_info", &labels, super::unix_seconds());
}

fn cache_config(out: &mut Writer<'_>) {
    let engine = out.page.engine;
    let size = engine.num_blocks.saturating_mul(engine.block_size);
    let concurrency = size as f64 / engine.max_model_len.max(1) as f64;
    let caching = if engine.enable_prefix_caching { "True" } else { "False" };
    let name = "vllm:cache_config_info";
    out.head(name, "Information of the LLMEngine CacheConfig", "gauge");
    for rank in 0..out.page.ranks.len() {
        let labels = format!(
            "_block_size_resolved=\"True\",block_size=\"{block}\",cache_dtype=\"auto\",\
             effective_attention_block_size=\"{block}\",enable_prefix_caching=\"{caching}\",\
             engine=\"{rank}\",hash_block_size=\"None\",is_attention_free=\"False\",\
             kv_cache_max_concurrency=\"{concurrency:?}\",kv_cache_size_tokens=\"{size}\",\
             num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",\
             num_gpu_blocks_override=\"{blocks}\",prefix_caching_hash_algo=\"{algorithm}\",\
             sliding_window=\"None\",user_specified_block_size=\"True\"",
            block = engine.block_size,
            blocks = engine.num_blocks,
            algorithm = Escaped(out.page.hash_algorithm),
        );
        out.line(name, &labels, 1.0);
    }
}

fn http(out: &mut Writer<'_>) {
    let counters = &out.page.http.0;
    if counters.is_empty() {
        return;
    }
    let name = "http_requests_total";
    out.head(name, "Total number of requests by method, status and handler.", "counter");
    for ((handler, method, class), count) in counters {
        let labels = format!("handler=\"{handler}\",method=\"{method}\",status=\"{class}xx\"");
        out.line(name, &labels, *count as f64);
    }
}
