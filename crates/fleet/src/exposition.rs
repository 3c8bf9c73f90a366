//! Per-endpoint and per-pool metric families, rendered from the fleet as it is at the moment of
//! the scrape: an endpoint that is gone leaves no series behind.
//!
//! Further families of endpoints and engines are in `exposition/engines.rs`, `exposition/split.rs` and
//! [`crate::parity::families`]. One side effect: whether a stream lost blocks to the byte budget is looked
//! at here too, and not at the monitor's next turn only, so that no page says `exact` of one that did.

mod admission;
mod decision_log;
mod engines;
mod prompts;
mod split;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use kvasir_inventory::{Inventory, Tier, Trust};

use crate::endpoint::Endpoint;
use crate::parity::families;
use crate::pool::Pool;
use crate::rank_stream::RankStream;
use crate::tokenizer::PromptState;

/// One family: its name, type, help, and how to read a value off an endpoint or a stream.
type Family<T> = (&'static str, &'static str, &'static str, fn(&T) -> Option<f64>);

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const FAMILIES: &[Family<Endpoint>] = &[
    ("endpoint_up", "gauge", "1 while the engine answers.", |e| {
        Some(if e.has_answered() && e.unreachable().is_none() { 1.0 } else { 0.0 })
    }),
    ("endpoint_in_flight", "gauge", "Requests sent and not finished.", |e| {
        Some(f64::from(e.in_flight()))
    }),
    ("endpoint_decoding", "gauge", "Requests in flight whose prompt is computed.", |e| {
        Some(f64::from(e.decoding()))
    }),
    (
        "endpoint_queued_prefill_tokens",
        "gauge",
        "Prompt tokens sent and not computed yet, as far as is known or predicted.",
        |e| Some(e.queued_prefill_tokens() as f64),
    ),
    (
        "endpoint_foreign_waiting",
        "gauge",
        "Waiting requests this gateway did not send, as of the last scrape.",
        |e| Some(f64::from(e.foreign_waiting())),
    ),
    (
        "endpoint_pending_prefixes",
        "gauge",
        "Prompts being computed, or computed just now, that choices count on.",
        |e| Some(e.pending().prompts(Instant::now()) as f64),
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
    (
        "endpoint_transfer_tokens_per_second",
        "gauge",
        "Tokens of KV per second that a decode endpoint fetches, learned from its answers.",
        Endpoint::learned_transfer_rate,
    ),
    (
        "endpoint_weight",
        "gauge",
        "Share of the load in percent of a full one's: as configured, scaled by what is advised.",
        |e| Some(f64::from(e.weight())),
    ),
    (
        "endpoint_advised_percent",
        "gauge",
        "Share of the configured weight that counts by a weight controller's advice, 1 to 100.",
        |e| Some(f64::from(e.advice().percent)),
    ),
    ("endpoint_block_size", "gauge", "Tokens per KV-cache block.", |e| {
        e.block_size().map(f64::from)
    }),
];

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const STREAM_FAMILIES: &[Family<RankStream>] = &[
    ("endpoint_orphan_blocks", "gauge", "Blocks kept aside until their parent appears.", |s| {
        Some(s.residency().orphans as f64)
    }),
    (
        "endpoint_blocks_left_out_total",
        "counter",
        "Stored blocks the events did not describe well enough to be credited.",
        |s| Some(s.refused_blocks() as f64),
    ),
    (
        "endpoint_hash_blocks_checked_total",
        "counter",
        "Plain blocks whose hash was computed anew from their tokens.",
        |s| Some(s.hashes_checked().0 as f64),
    ),
    (
        "endpoint_hash_blocks_failed_total",
        "counter",
        "Those of them whose hash was another.",
        |s| Some(s.hashes_checked().1 as f64),
    ),
    (
        "endpoint_blocks_given_up_total",
        "counter",
        "Blocks given up to stay within the inventory's byte limits.",
        |s| Some(s.residency().given_up_ever as f64),
    ),
    (
        "endpoint_inventory_bytes",
        "gauge",
        "Bytes of the inventory that the endpoint is charged for.",
        |s| Some(s.residency().bytes as f64),
    ),
    ("stream_batches_total", "counter", "Event batches applied.", |s| {
        Some(s.stats()?.snapshot().batches as f64)
    }),
    ("stream_gaps_total", "counter", "Gaps in the sequence of event batches.", |s| {
        Some(s.stats()?.snapshot().gaps as f64)
    }),
    ("stream_replays_total", "counter", "Replays asked for.", |s| {
        Some(s.stats()?.snapshot().replays as f64)
    }),
    ("stream_restarts_total", "counter", "Engine restarts seen in the event stream.", |s| {
        Some(s.stats()?.snapshot().restarts as f64)
    }),
    ("stream_disconnects_total", "counter", "Lost connections to the event publisher.", |s| {
        Some(s.stats()?.snapshot().disconnects as f64)
    }),
    ("stream_schema_errors_total", "counter", "Known events that could not be decoded.", |s| {
        Some(s.stats()?.snapshot().schema_errors as f64)
    }),
    ("stream_unknown_events_total", "counter", "Events of unknown kinds, skipped.", |s| {
        Some(s.stats()?.snapshot().unknown_events as f64)
    }),
];

/// A stream, and what tells it apart in metrics.
struct Labelled {
    url: String,
    rank: Option<String>,
    stream: Arc<RankStream>,
}

impl Labelled {
    /// An engine's only stream needs no rank.
    fn of(endpoint: &Endpoint) -> Vec<Self> {
        let streams = endpoint.streams();
        let named = endpoint.rank().is_some() || streams.len() > 1;
        let rank = |stream: &RankStream| named.then(|| stream.rank().to_string());
        let url = endpoint.url();
        let of =
            |stream: Arc<RankStream>| Self { url: url.to_owned(), rank: rank(&stream), stream };
        streams.into_iter().map(of).collect()
    }

    fn labels(&self) -> Vec<(&str, &str)> {
        labels(&self.url, self.rank.as_deref())
    }
}

pub(crate) fn labels<'a>(url: &'a str, rank: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    [("endpoint", url)].into_iter().chain(rank.map(|rank| ("rank", rank))).collect()
}

/// `leaving` are endpoints that are in no pool any more and still have requests.
pub(crate) fn render(
    page: &mut String,
    present: Vec<Arc<Endpoint>>,
    leaving: &[Arc<Endpoint>],
    pools: &[Arc<Pool>],
    inventory: &Inventory,
) {
    render_states(page, &present, leaving);
    let mut endpoints = present;
    endpoints.extend_from_slice(leaving);
    let endpoints = &*endpoints;
    for (name, kind, help, read) in FAMILIES {
        header(page, name, kind, help);
        for endpoint in endpoints {
            if let Some(value) = read(endpoint) {
                let rank = endpoint.rank().map(|rank| rank.to_string());
                sample(page, name, &labels(endpoint.url(), rank.as_deref()), value);
            }
        }
    }
    let streams: Vec<Labelled> =
        endpoints.iter().flat_map(|endpoint| Labelled::of(endpoint)).collect();
    streams.iter().for_each(|labelled| labelled.stream.note_budget());
    for (name, kind, help, read) in STREAM_FAMILIES {
        header(page, name, kind, help);
        for labelled in &streams {
            if let Some(value) = read(&labelled.stream) {
                sample(page, name, &labelled.labels(), value);
            }
        }
    }
    engines::render(page, &engines::one_each(endpoints));
    split::render(page, endpoints, pools);
    render_trust(page, endpoints);
    render_stream_trust(page, &streams);
    render_blocks(page, &streams);
    render_hash_contracts(page, &streams);
    render_pools(page, pools);
    families::render(page, endpoints, pools);
    render_inventory(page, inventory);
}

fn render_states(page: &mut String, present: &[Arc<Endpoint>], leaving: &[Arc<Endpoint>]) {
    let name = "endpoint_state";
    header(page, name, "gauge", "1 for whether requests may go there, by the configuration.");
    let present = present.iter().map(|endpoint| (endpoint, endpoint.state().as_str()));
    let leaving = leaving.iter().map(|endpoint| (endpoint, "leaving"));
    for (endpoint, state) in present.chain(leaving) {
        let rank = endpoint.rank().map(|rank| rank.to_string());
        let mut labels = labels(endpoint.url(), rank.as_deref());
        labels.push(("state", state));
        sample(page, name, &labels, 1.0);
    }
}

fn render_trust(page: &mut String, endpoints: &[Arc<Endpoint>]) {
    let name = "endpoint_trust";
    header(page, name, "gauge", "1 for how far the endpoint's events are believed, and why.");
    // One that is none any more is followed no more either.
    for endpoint in endpoints.iter().filter(|endpoint| !endpoint.streams().is_empty()) {
        let rank = endpoint.rank().map(|rank| rank.to_string());
        trust_sample(page, name, labels(endpoint.url(), rank.as_deref()), endpoint.trust());
    }
}

/// One endpoint may stand for several streams, and is believed as far as the least of them.
fn render_stream_trust(page: &mut String, streams: &[Labelled]) {
    let name = "stream_trust";
    header(page, name, "gauge", "1 for the state an event stream is in, and why.");
    for labelled in streams {
        trust_sample(page, name, labelled.labels(), labelled.stream.trust());
    }
}

fn trust_sample(page: &mut String, name: &str, mut labels: Vec<(&str, &str)>, trust: Trust) {
    labels.extend([("state", trust.state()), ("reason", trust.reason())]);
    sample(page, name, &labels, 1.0);
}

/// Without the seed: who may scrape need not know it.
fn render_hash_contracts(page: &mut String, streams: &[Labelled]) {
    let name = "endpoint_hash_contract";
    header(page, name, "gauge", "1 for what is known of how the engine hashes blocks.");
    for labelled in streams {
        let found = labelled.stream.hash_contract();
        let mut labels = labelled.labels();
        labels.extend([
            ("state", found.state.as_str()),
            ("contract", &found.contract),
            ("cause", &found.cause),
        ]);
        sample(page, name, &labels, 1.0);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn render_blocks(page: &mut String, streams: &[Labelled]) {
    let name = "endpoint_resident_blocks";
    header(page, name, "gauge", "Blocks known to be resident, by tier.");
    for labelled in streams {
        let stats = labelled.stream.residency();
        for tier in Tier::ALL {
            let mut labels = labelled.labels();
            labels.push(("tier", tier.as_str()));
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
    prompts::render(page, pools);
    decision_log::render(page, pools);
    admission::render(page, pools);
}

#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn render_inventory(page: &mut String, inventory: &Inventory) {
    header(page, "inventory_bytes", "gauge", "Bytes allocated for the picture of all caches.");
    sample(page, "inventory_bytes", &[], inventory.bytes() as f64);
    header(page, "inventory_max_bytes", "gauge", "Bytes that it may allocate.");
    sample(page, "inventory_max_bytes", &[], inventory.limits().bytes as f64);
}

pub(crate) fn header(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP kvasir_{name} {help}\n# TYPE kvasir_{name} {kind}");
}

pub(crate) fn sample(page: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
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
