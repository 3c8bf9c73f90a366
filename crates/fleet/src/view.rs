//! What can be said of endpoints, streams and caches at one moment, for people and other programs.

use std::sync::Arc;

use kvasir_inventory::{BlockSample, Tier, Trust};
use serde_json::{Value, json};

use crate::advice::Advice;
use crate::card::EngineCard;
use crate::endpoint::Endpoint;
use crate::hash_contract::HashContract;
use crate::rank_stream::RankStream;
use crate::registry::Fleet;

/// An endpoint at one moment.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// Whether the engine answers.
    pub up: bool,
    /// Why it cannot be reached, where that is so.
    pub unreachable: Option<String>,
    /// The state of the engine's breaker: `closed`, `open` or `half_open`.
    pub breaker: &'static str,
    /// Requests sent and not finished.
    pub in_flight: u32,
    /// Prompt tokens sent and not computed yet.
    pub queued_prefill_tokens: u64,
    /// Requests waiting in the engine, by its last metrics page.
    pub waiting: Option<f64>,
    /// Requests being computed, by its last metrics page.
    pub running: Option<f64>,
    /// Used share of its KV cache, by its last metrics page.
    pub kv_usage: Option<f64>,
    /// Its share of the load, in percent of a full one's, as configured.
    pub weight: u32,
    /// What a weight controller advises of it.
    pub advice: Advice,
    /// The weight that counts, by both.
    pub effective_weight: u32,
    /// How far its events are believed.
    pub trust: Trust,
    /// Blocks its streams have told of and that were not removed, by tier in the order of [`Tier::ALL`].
    pub blocks: [u64; 4],
    /// Bytes of the inventory that it is charged for.
    pub bytes: u64,
    /// Prompt tokens a second, learned from its answers.
    pub prefill_rate: Option<f64>,
    /// Tokens of KV a second that it fetches as a decode endpoint, learned likewise.
    pub transfer_rate: Option<f64>,
    /// Tokens per block.
    pub block_size: Option<u32>,
    /// What the engine says of itself.
    pub card: Option<Arc<EngineCard>>,
    /// Its event streams.
    pub streams: Vec<StreamView>,
}

/// One event stream at one moment.
#[derive(Clone, Debug)]
pub struct StreamView {
    /// The data-parallel rank it is of.
    pub rank: u32,
    /// How far it is believed.
    pub trust: Trust,
    /// The number of the last batch applied.
    pub last_sequence: Option<u64>,
    /// Seconds since the last batch.
    pub last_event_age_s: Option<f64>,
    /// Batches, and events in them.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// Times the numbers jumped forward.
    pub gaps: u64,
    /// Replays answered to the end, and those that were not.
    pub replays: u64,
    /// Those that were not.
    pub replay_failures: u64,
    /// Engine restarts seen.
    pub restarts: u64,
    /// Lost connections.
    pub disconnects: u64,
    /// Batches that could not be decoded.
    pub schema_errors: u64,
    /// The cause of the first of them.
    pub first_schema_error: Option<String>,
    /// Blocks kept aside until their parent appears.
    pub orphans: u64,
    /// Stored blocks that events did not describe well enough.
    pub left_out: u64,
    /// Blocks given up to stay within the byte budget since the picture began.
    pub given_up: u64,
    /// The share of evicted blocks that were computed anew soon after, lately; `None` where few were
    /// evicted.
    pub regretted_share: Option<f64>,
    /// Blocks whose hash was checked, and those that failed.
    pub hashes_checked: u64,
    /// Those that failed.
    pub hashes_failed: u64,
    /// What is known of the contract behind its hashes.
    pub hash_contract: Arc<HashContract>,
}

/// The picture of all caches.
#[derive(Clone, Copy, Debug)]
pub struct InventoryView {
    /// Bytes it has allocated.
    pub bytes: u64,
    /// Bytes it may allocate.
    pub budget_bytes: u64,
}

impl Endpoint {
    /// An example of how it hits less than its events promise, and how far these are believed now;
    /// `None` where that was not seen.
    #[must_use]
    pub fn over_predicted(&self) -> Option<Value> {
        let example = self.hit_example()?.shown();
        Some(json!({ "trust": self.trust().to_string(), "example": example }))
    }

    /// What can be said of it now.
    #[must_use]
    pub fn view(&self) -> EndpointView {
        let streams = self.streams();
        let mut blocks = [0; 4];
        let mut bytes = 0_u64;
        for stream in &streams {
            let stats = stream.residency();
            for (all, one) in blocks.iter_mut().zip(stats.blocks) {
                *all += one as u64;
            }
            bytes += stats.bytes as u64;
        }
        let signals = self.signals();
        EndpointView {
            up: self.has_answered() && self.unreachable().is_none(),
            unreachable: self.unreachable(),
            breaker: self.breaker().as_str(),
            in_flight: self.in_flight(),
            queued_prefill_tokens: self.queued_prefill_tokens(),
            waiting: signals.waiting,
            running: signals.running,
            kv_usage: signals.kv_usage,
            weight: self.configured_weight(),
            advice: self.advice(),
            effective_weight: self.weight(),
            trust: self.trust(),
            blocks,
            bytes,
            prefill_rate: self.learned_prefill_rate(),
            transfer_rate: self.learned_transfer_rate(),
            block_size: self.block_size(),
            card: self.card(),
            streams: streams.iter().map(|stream| StreamView::of(stream)).collect(),
        }
    }

    /// The engine's hashes of the blocks it is known to hold, of all its ranks, each once and in ascending
    /// order; at most `limit` of each rank.
    #[must_use]
    pub fn engine_hashes(&self, limit: usize) -> Vec<u64> {
        let streams = self.streams();
        let mut all: Vec<u64> =
            streams.iter().flat_map(|stream| stream.hashes(limit)).map(|hash| hash.0).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Up to `limit` of the blocks it is known to hold, which are none in particular, with the rank
    /// whose they are.
    #[must_use]
    pub fn sample_blocks(&self, limit: usize) -> Vec<(u32, BlockSample)> {
        let of = |stream: &Arc<RankStream>| {
            let rank = stream.rank();
            stream.sample(limit).into_iter().map(move |block| (rank, block))
        };
        self.streams().iter().flat_map(of).take(limit).collect()
    }
}

impl EndpointView {
    /// Blocks in all tiers; one that is in two counts twice.
    #[must_use]
    pub fn all_blocks(&self) -> u64 {
        self.blocks.iter().sum()
    }

    /// The names of the tiers, in the order of [`blocks`](Self::blocks).
    #[must_use]
    pub fn tiers() -> [&'static str; 4] {
        Tier::ALL.map(Tier::as_str)
    }
}

impl StreamView {
    fn of(stream: &RankStream) -> Self {
        let told = stream.stats();
        let stats = told.as_ref().map(|told| told.snapshot()).unwrap_or_default();
        let residency = stream.residency();
        let (hashes_checked, hashes_failed) = stream.hashes_checked();
        Self {
            rank: stream.rank(),
            trust: stream.trust(),
            last_sequence: stats.last_seq,
            last_event_age_s: stats.last_event_age.map(|age| age.as_secs_f64()),
            batches: stats.batches,
            events: stats.events,
            gaps: stats.gaps,
            replays: stats.replays,
            replay_failures: stats.replay_failures,
            restarts: stats.restarts,
            disconnects: stats.disconnects,
            schema_errors: stats.schema_errors,
            first_schema_error: told.and_then(|told| told.first_schema_error()),
            orphans: residency.orphans as u64,
            left_out: stream.refused_blocks(),
            given_up: residency.given_up,
            regretted_share: stream.evictions().regretted_share,
            hashes_checked,
            hashes_failed,
            hash_contract: stream.hash_contract(),
        }
    }
}

impl Fleet {
    /// The picture of all caches now.
    #[must_use]
    pub fn inventory_view(&self) -> InventoryView {
        let inventory = self.inventory();
        let budget_bytes = inventory.limits().bytes as u64;
        InventoryView { bytes: inventory.bytes() as u64, budget_bytes }
    }
}
