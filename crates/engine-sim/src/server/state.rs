//! What all connections and ranks of one server share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kvasir_kv_hash::vllm::Version;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::address::Base;
use super::config::SimServerConfig;
use super::disagg::Disagg;
use super::faults::Faults;
use super::metrics::{HttpCounters, unix_seconds};
use super::rank::Rank;
use super::text::Text;
use crate::tokens::splitmix64;
use crate::{EngineConfig, EngineStats, RequestId};

/// What the server is told to do as a whole.
#[derive(Debug)]
pub(super) enum Order {
    /// Be gone for so long, then start a new life.
    Restart { down: Duration, done: oneshot::Sender<()> },
    /// End, and say when nothing is open any more.
    Stop(oneshot::Sender<()>),
}

/// What belongs to one life of the server.
#[derive(Clone, Debug)]
pub(super) struct Life {
    /// When it began, seconds since the epoch.
    pub(super) started: f64,
    pub(super) http: HttpCounters,
}

impl Life {
    pub(super) fn new(after: f64) -> Self {
        // Two lives within the clock's resolution must still differ.
        Self { started: unix_seconds().max(after + 0.01), http: HttpCounters::default() }
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) config: SimServerConfig,
    pub(super) engine: EngineConfig,
    pub(super) version: Version,
    pub(super) address: SocketAddr,
    /// With the ports that were bound.
    pub(super) events: Option<Base>,
    pub(super) replay: Option<Base>,
    pub(super) text: Text,
    pub(super) fingerprint: String,
    pub(super) faults: Arc<Faults>,
    pub(super) disagg: Disagg,
    pub(super) ranks: Vec<Rank>,
    pub(super) life: Mutex<Life>,
    /// Weak, so that the server ends when its handle is dropped.
    pub(super) orders: mpsc::WeakSender<Order>,
    pub(super) ids: AtomicU64,
    pub(super) next_rank: AtomicUsize,
}

impl State {
    /// Whether bodies have the fields of 0.32.
    pub(super) fn is_modern(&self) -> bool {
        self.version >= Version::release(0, 32, 0)
    }

    /// Context length in tokens.
    pub(super) fn max_model_len(&self) -> usize {
        self.engine.max_model_len
    }

    pub(super) fn next_id(&self) -> RequestId {
        RequestId(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// A number of its own for every call, and for every seed.
    pub(super) fn random(&self) -> u64 {
        mix(self.config.seed, self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// The rank with the fewest unfinished requests, `more` of each included; equal ones take
    /// turns.
    pub(super) fn least_loaded(&self, more: impl Fn(usize) -> usize) -> usize {
        let count = self.ranks.len().max(1);
        let first = self.next_rank.fetch_add(1, Ordering::Relaxed);
        let load = |rank: &usize| {
            let unfinished = self.ranks.get(*rank).map_or(usize::MAX, Rank::unfinished);
            unfinished.saturating_add(more(*rank))
        };
        (0..count).map(|step| (first % count + step) % count).min_by_key(load).unwrap_or_default()
    }

    /// All ranks together.
    pub(super) fn stats(&self) -> EngineStats {
        let mut total = EngineStats::default();
        for rank in &self.ranks {
            let stats = rank.metrics().stats;
            total.running += stats.running;
            total.waiting += stats.waiting;
            total.used_blocks += stats.used_blocks;
            total.usable_blocks += stats.usable_blocks;
            total.prefix_queries += stats.prefix_queries;
            total.prefix_hits += stats.prefix_hits;
            total.external_queries += stats.external_queries;
            total.external_hits += stats.external_hits;
            total.held_requests += stats.held_requests;
            total.preemptions += stats.preemptions;
            total.prompt_tokens += stats.prompt_tokens;
            total.generation_tokens += stats.generation_tokens;
            total.finished += stats.finished;
            total.steps += stats.steps;
        }
        total
    }

    /// Ends engines and publishers; returns when their sockets are closed.
    pub(super) async fn stop(&self) {
        self.disagg.new_life();
        let stopped: Vec<_> = self.ranks.iter().map(Rank::stop).collect();
        for stopped in stopped {
            // An error means that it had stopped before.
            let _ = stopped.await;
        }
    }

    /// Ends this life of the engines and publishers and begins the next.
    pub(super) async fn new_life(&self) {
        self.disagg.new_life();
        let restarted: Vec<_> = self.ranks.iter().map(Rank::restart).collect();
        for (rank, restarted) in restarted.into_iter().enumerate() {
            if restarted.await.is_err() {
                tracing::error!(rank, "this rank did not come back whole");
            }
        }
        let mut life = self.life.lock();
        *life = Life::new(life.started);
    }
}

/// Two numbers made one.
pub(super) fn mix(seed: u64, number: u64) -> u64 {
    splitmix64(splitmix64(seed) ^ number)
}
