//! The pages of engines other than vLLM: the few families a router reads.

use std::fmt::Write as _;

use super::Page;
use super::RankMetrics;

/// SGLang's.
pub(super) fn sglang(page: &Page<'_>) -> String {
    let families: [Family<'_>; 6] = [
        ("num_running_reqs", "gauge", &|m| m.stats.running as f64),
        ("num_queue_reqs", "gauge", &|m| m.stats.waiting as f64),
        ("token_usage", "gauge", &|m| m.stats.kv_usage()),
        ("prompt_tokens_total", "counter", &|m| m.stats.prompt_tokens as f64),
        ("cached_tokens_total", "counter", &|m| m.stats.prefix_hits as f64),
        ("generation_tokens_total", "counter", &|m| m.stats.generation_tokens as f64),
    ];
    write(page, "sglang:", "dp_rank", &families)
}

/// TensorRT-LLM's.
pub(super) fn trtllm(page: &Page<'_>) -> String {
    let hit_rate =
        |m: &RankMetrics| m.stats.prefix_hits as f64 / (m.stats.prefix_queries as f64).max(1.0);
    let families: [Family<'_>; 3] = [
        ("request_success_total", "counter", &|m| m.stats.finished as f64),
        ("kv_cache_utilization", "gauge", &|m| m.stats.kv_usage()),
        ("kv_cache_hit_rate", "gauge", &hit_rate),
    ];
    write(page, "trtllm_", "engine_rank", &families)
}

type Family<'a> = (&'a str, &'a str, &'a dyn Fn(&RankMetrics) -> f64);

// Writing to a String cannot fail.
fn write(page: &Page<'_>, prefix: &str, rank_label: &str, families: &[Family<'_>]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {:?}",
        page.started
    );
    let model = page.model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    for (name, kind, value) in families {
        let _ = writeln!(out, "# TYPE {prefix}{name} {kind}");
        for (rank, metrics) in page.ranks.iter().enumerate() {
            let labels = format!("{rank_label}=\"{rank}\",model_name=\"{model}\"");
            let _ = writeln!(out, "{prefix}{name}{{{labels}}} {:?}", value(metrics));
        }
    }
    out
}
