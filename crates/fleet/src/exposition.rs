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

use std::sync::Arc;
use std::time::Instant;

use kvasir_inventory::{Inventory, Tier, Trust};
use kvasir_metrics::{header, sample};

use crate::endpoint::Endpoint;
use crate::parity::families;
use crate::pool::Pool;
use crate::rank_stream::RankStream;
use crate::tokenizer::PromptState;

/// One family: its name, and how to read a value off an endpoint or a stream.
type Family<T> = (&'static str, fn(&T) -> Option<f64>);

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const FAMILIES: &[Family<Endpoint>] = &[
    ("kvasir_endpoint_up", |e| {
        Some(if e.has_answered() && e.unreachable().is_none() { 1.0 } else { 0.0 })
    }),
    ("kvasir_endpoint_in_flight", |e| Some(f64::from(e.in_flight()))),
    ("kvasir_endpoint_decoding", |e| Some(f64::from(e.decoding()))),
    ("kvasir_endpoint_queued_prefill_tokens", |e| Some(e.queued_prefill_tokens() as f64)),
    ("kvasir_endpoint_foreign_waiting", |e| Some(f64::from(e.foreign_waiting()))),
    ("kvasir_endpoint_pending_prefixes", |e| Some(e.pending().prompts(Instant::now()) as f64)),
    ("kvasir_endpoint_kv_usage", |e| e.signals().kv_usage),
    ("kvasir_endpoint_prefill_tokens_per_second", Endpoint::learned_prefill_rate),
    ("kvasir_endpoint_transfer_tokens_per_second", Endpoint::learned_transfer_rate),
    ("kvasir_endpoint_weight", |e| Some(f64::from(e.weight()))),
    ("kvasir_endpoint_advised_percent", |e| Some(f64::from(e.advice().percent))),
    ("kvasir_endpoint_block_size", |e| e.block_size().map(f64::from)),
];

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const STREAM_FAMILIES: &[Family<RankStream>] = &[
    ("kvasir_endpoint_orphan_blocks", |s| Some(s.residency().orphans as f64)),
    ("kvasir_endpoint_stored_blocks_total", |s| Some(s.blocks_told().0 as f64)),
    ("kvasir_endpoint_evicted_blocks_total", |s| Some(s.blocks_told().1 as f64)),
    ("kvasir_endpoint_evictions_watched_total", |s| Some(s.evictions().watched as f64)),
    ("kvasir_endpoint_evictions_regretted_total", |s| Some(s.evictions().regretted as f64)),
    ("kvasir_endpoint_blocks_left_out_total", |s| Some(s.refused_blocks() as f64)),
    ("kvasir_endpoint_hash_blocks_checked_total", |s| Some(s.hashes_checked().0 as f64)),
    ("kvasir_endpoint_hash_blocks_failed_total", |s| Some(s.hashes_checked().1 as f64)),
    ("kvasir_endpoint_blocks_given_up_total", |s| Some(s.residency().given_up_ever as f64)),
    ("kvasir_endpoint_inventory_bytes", |s| Some(s.residency().bytes as f64)),
    ("kvasir_stream_batches_total", |s| Some(s.stats()?.snapshot().batches as f64)),
    ("kvasir_stream_events_total", |s| Some(s.stats()?.snapshot().events as f64)),
    ("kvasir_stream_gaps_total", |s| Some(s.stats()?.snapshot().gaps as f64)),
    ("kvasir_stream_replays_total", |s| Some(s.stats()?.snapshot().replays as f64)),
    ("kvasir_stream_replay_failures_total", |s| Some(s.stats()?.snapshot().replay_failures as f64)),
    ("kvasir_stream_overflows_total", |s| Some(s.stats()?.snapshot().overflows as f64)),
    ("kvasir_stream_restarts_total", |s| Some(s.stats()?.snapshot().restarts as f64)),
    ("kvasir_stream_disconnects_total", |s| Some(s.stats()?.snapshot().disconnects as f64)),
    ("kvasir_stream_schema_errors_total", |s| Some(s.stats()?.snapshot().schema_errors as f64)),
    ("kvasir_stream_unknown_events_total", |s| Some(s.stats()?.snapshot().unknown_events as f64)),
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
    for (name, read) in FAMILIES {
        header(page, name);
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
    for (name, read) in STREAM_FAMILIES {
        header(page, name);
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
    let name = "kvasir_endpoint_state";
    header(page, name);
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
    let name = "kvasir_endpoint_trust";
    header(page, name);
    // One that is none any more is followed no more either.
    for endpoint in endpoints.iter().filter(|endpoint| !endpoint.streams().is_empty()) {
        let rank = endpoint.rank().map(|rank| rank.to_string());
        trust_sample(page, name, labels(endpoint.url(), rank.as_deref()), endpoint.trust());
    }
}

/// One endpoint may stand for several streams, and is believed as far as the least of them.
fn render_stream_trust(page: &mut String, streams: &[Labelled]) {
    let name = "kvasir_stream_trust";
    header(page, name);
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
    let name = "kvasir_endpoint_hash_contract";
    header(page, name);
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
    let name = "kvasir_endpoint_resident_blocks";
    header(page, name);
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
    header(page, "kvasir_pool_ready");
    for pool in pools {
        let ready = if pool.is_ready() { 1.0 } else { 0.0 };
        sample(page, "kvasir_pool_ready", &[("model", pool.model())], ready);
    }
    header(page, "kvasir_pool_endpoint");
    for pool in pools {
        for member in pool.members().iter() {
            let rank = member.rank().map(|rank| rank.to_string());
            let mut all = labels(member.url(), rank.as_deref());
            all.insert(0, ("model", pool.model()));
            sample(page, "kvasir_pool_endpoint", &all, 1.0);
        }
    }
    header(page, "kvasir_pool_tokenizer_ready");
    for pool in pools {
        let ready = matches!(*pool.prompts().state(), PromptState::Ready(_));
        let labels = [("model", pool.model())];
        sample(page, "kvasir_pool_tokenizer_ready", &labels, if ready { 1.0 } else { 0.0 });
    }
    prompts::render(page, pools);
    decision_log::render(page, pools);
    admission::render(page, pools);
}

#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn render_inventory(page: &mut String, inventory: &Inventory) {
    header(page, "kvasir_inventory_bytes");
    sample(page, "kvasir_inventory_bytes", &[], inventory.bytes() as f64);
    header(page, "kvasir_inventory_max_bytes");
    sample(page, "kvasir_inventory_max_bytes", &[], inventory.limits().bytes as f64);
}
