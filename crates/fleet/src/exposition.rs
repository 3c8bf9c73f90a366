//! Per-endpoint and per-pool metric families, rendered from the fleet as it is at the moment of
//! the scrape: an endpoint that is gone leaves no series behind.

use std::fmt::Write;
use std::sync::Arc;

use kvasir_inventory::Tier;

use crate::endpoint::Endpoint;
use crate::pool::Pool;
use crate::tokenizer::PromptState;

/// One family: its name, type, help, and how to read a value off an endpoint.
type Family = (&'static str, &'static str, &'static str, fn(&Endpoint) -> Option<f64>);

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const FAMILIES: &[Family] = &[
    ("endpoint_up", "gauge", "1 while the engine answers.", |e| {
        Some(if e.has_answered() && e.unreachable().is_none() { 1.0 } else { 0.0 })
    }),
    ("endpoint_in_flight", "gauge", "Requests sent and not finished.", |e| {
        Some(f64::from(e.in_flight()))
    }),
    (
        "endpoint_queued_prefill_tokens",
        "gauge",
        "Prompt tokens sent whose answer has not begun.",
        |e| Some(e.queued_prefill_tokens() as f64),
    ),
    (
        "endpoint_foreign_waiting",
        "gauge",
        "Waiting requests this gateway did not send, as of the last scrape.",
        |e| Some(f64::from(e.foreign_waiting())),
    ),
    ("endpoint_kv_usage", "gauge", "Used share of the engine's KV cache, 0 to 1.", |e| {
        e.signals().kv_usage
    }),
    (
        "endpoint_prefill_tokens_per_second",
        "gauge",
        "Prompt tokens per second, learned from streamed answers.",
        Endpoint::learned_prefill_rate,
    ),
    ("endpoint_block_size", "gauge", "Tokens per KV-cache block.", |e| {
        e.block_size().map(f64::from)
    }),
    ("endpoint_orphan_blocks", "gauge", "Blocks kept aside until their parent appears.", |e| {
        Some(e.residency().orphans as f64)
    }),
    (
        "endpoint_blocks_left_out_total",
        "counter",
        "Stored blocks the events did not describe well enough to be credited.",
        |e| Some(e.refused_blocks() as f64),
    ),
    ("stream_batches_total", "counter", "Event batches applied.", |e| {
        Some(e.stream()?.snapshot().batches as f64)
    }),
    ("stream_gaps_total", "counter", "Gaps in the sequence of event batches.", |e| {
        Some(e.stream()?.snapshot().gaps as f64)
    }),
    ("stream_replays_total", "counter", "Replays asked for.", |e| {
        Some(e.stream()?.snapshot().replays as f64)
    }),
    ("stream_restarts_total", "counter", "Engine restarts seen in the event stream.", |e| {
        Some(e.stream()?.snapshot().restarts as f64)
    }),
    ("stream_disconnects_total", "counter", "Lost connections to the event publisher.", |e| {
        Some(e.stream()?.snapshot().disconnects as f64)
    }),
    ("stream_schema_errors_total", "counter", "Known events that could not be decoded.", |e| {
        Some(e.stream()?.snapshot().schema_errors as f64)
    }),
    ("stream_unknown_events_total", "counter", "Events of unknown kinds, skipped.", |e| {
        Some(e.stream()?.snapshot().unknown_events as f64)
    }),
];

pub(crate) fn render(page: &mut String, endpoints: &[Arc<Endpoint>], pools: &[Arc<Pool>]) {
    for (name, kind, help, read) in FAMILIES {
        header(page, name, kind, help);
        for endpoint in endpoints {
            if let Some(value) = read(endpoint) {
                sample(page, name, &[("endpoint", endpoint.url())], value);
            }
        }
    }
    render_trust(page, endpoints);
    render_blocks(page, endpoints);
    render_pools(page, pools);
}

fn render_trust(page: &mut String, endpoints: &[Arc<Endpoint>]) {
    let name = "endpoint_trust";
    header(page, name, "gauge", "1 for the state the endpoint's event stream is in, and why.");
    for endpoint in endpoints {
        let trust = endpoint.trust();
        let labels =
            [("endpoint", endpoint.url()), ("state", trust.state()), ("reason", trust.reason())];
        sample(page, name, &labels, 1.0);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn render_blocks(page: &mut String, endpoints: &[Arc<Endpoint>]) {
    let name = "endpoint_resident_blocks";
    header(page, name, "gauge", "Blocks known to be resident, by tier.");
    for endpoint in endpoints {
        let stats = endpoint.residency();
        for tier in Tier::ALL {
            let labels = [("endpoint", endpoint.url()), ("tier", tier.as_str())];
            sample(page, name, &labels, stats.blocks[tier as usize] as f64);
        }
    }
}

fn render_pools(page: &mut String, pools: &[Arc<Pool>]) {
    header(page, "pool_ready", "gauge", "1 while the pool can take a request.");
    for pool in pools {
        let ready = if pool.is_ready() { 1.0 } else { 0.0 };
        sample(page, "pool_ready", &[("model", pool.model())], ready);
    }
    header(page, "pool_tokenizer_ready", "gauge", "1 while prompts can be tokenised.");
    for pool in pools {
        let ready = matches!(*pool.prompts().state(), PromptState::Ready(_));
        let labels = [("model", pool.model())];
        sample(page, "pool_tokenizer_ready", &labels, if ready { 1.0 } else { 0.0 });
    }
}

fn header(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP kvasir_{name} {help}\n# TYPE kvasir_{name} {kind}");
}

fn sample(page: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let _ = write!(page, "kvasir_{name}{{");
    for (i, (key, text)) in labels.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(page, "{comma}{key}=\"{text}\"");
    }
    let _ = writeln!(page, "}} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = String::new();
        sample(&mut page, "x", &[("model", "a\"b\\c\nd"), ("k", "v")], 1.5);
        assert_eq!(page, "kvasir_x{model=\"a\\\"b\\\\c\\nd\",k=\"v\"} 1.5\n");
    }
}
