//! One data-parallel rank's cache, as its event stream tells it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use kvasir_inventory::{BlockSample, Inventory, PartialReason, Slot, SlotStats, Trust};
use kvasir_kv_events::{StatsHandle, Subscriber, Update, Witness};
use parking_lot::Mutex;

use crate::apply::EvictionCounts;
use crate::credit::{Credit, Creditable};
use crate::hash_contract::{HashContract, HashState};
use crate::trust_changes::TrustChanges;

/// A rank's place in the inventory and what is believed of its stream.
#[derive(Debug)]
pub(crate) struct RankStream {
    /// The rank, by the engine's count.
    rank: u32,
    /// How far its ports lie above the configured ones.
    offset: u32,
    /// The engine's URL.
    url: String,
    /// The engine's.
    trust_changes: Arc<TrustChanges>,
    /// Freed when the last holder of this stream is gone, so that no late event can reach a
    /// slot's next owner.
    slot: Slot,
    inventory: Arc<Inventory>,
    credit: Mutex<Credit>,
    stats: ArcSwapOption<StatsHandle>,
    witness: ArcSwapOption<Witness>,
    refused_blocks: AtomicU64,
    stored_blocks: AtomicU64,
    removed_blocks: AtomicU64,
    hash_contract: ArcSwap<HashContract>,
    hashes_checked: AtomicU64,
    hashes_failed: AtomicU64,
    evictions: Mutex<EvictionCounts>,
}

impl RankStream {
    /// `None` when the inventory has no place left.
    pub(crate) fn new(
        url: &str,
        rank: u32,
        offset: u32,
        trust_changes: &Arc<TrustChanges>,
        inventory: &Arc<Inventory>,
    ) -> Option<Self> {
        Some(Self {
            rank,
            offset,
            url: url.to_owned(),
            trust_changes: Arc::clone(trust_changes),
            slot: inventory.register()?,
            inventory: Arc::clone(inventory),
            credit: Mutex::new(Credit::new()),
            stats: ArcSwapOption::empty(),
            witness: ArcSwapOption::empty(),
            refused_blocks: AtomicU64::new(0),
            stored_blocks: AtomicU64::new(0),
            removed_blocks: AtomicU64::new(0),
            hash_contract: ArcSwap::default(),
            hashes_checked: AtomicU64::new(0),
            hashes_failed: AtomicU64::new(0),
            evictions: Mutex::default(),
        })
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Sizes of its part of the inventory.
    pub(crate) fn residency(&self) -> SlotStats {
        self.inventory.stats(self.slot)
    }

    /// Up to `limit` of its blocks, none in particular.
    pub(crate) fn sample(&self, limit: usize) -> Vec<BlockSample> {
        self.inventory.sample(self.slot, limit)
    }

    /// Forgets its blocks.
    pub(crate) fn clear(&self) {
        self.credit.lock().emptied();
        self.inventory.clear(self.slot);
        self.credit.lock().emptied();
    }

    /// Its blocks were forgotten, though no update said so.
    pub(crate) fn emptied(&self) {
        self.credit.lock().emptied();
    }

    /// Counters of its stream; `None` while none is followed.
    pub(crate) fn stats(&self) -> Option<Arc<StatsHandle>> {
        self.stats.load_full()
    }

    /// The stream is followed by other means than a subscriber.
    pub(crate) fn set_polled(&self, stats: Option<StatsHandle>) {
        self.stats.store(stats.map(Arc::new));
        self.witness.store(None);
    }

    /// A subscriber follows the stream, or none does.
    pub(crate) fn set_subscriber(&self, subscriber: Option<&Subscriber>) {
        self.stats.store(subscriber.map(|subscriber| Arc::new(subscriber.stats())));
        self.witness.store(subscriber.map(|subscriber| Arc::new(subscriber.witness())));
    }

    /// The engine says when its process started, in an answer to a question of `asked`.
    pub(crate) fn process_started(&self, asked: Instant, seconds: f64) {
        if let Some(witness) = &*self.witness.load() {
            witness.process_started(asked, seconds);
        }
    }

    /// Stored blocks that were left out because the events did not describe them well enough.
    pub(crate) fn refused_blocks(&self) -> u64 {
        self.refused_blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_refused_blocks(&self, blocks: u64) {
        self.refused_blocks.store(blocks, Ordering::Relaxed);
    }

    /// Blocks that its events said were stored, and removed, since it is known.
    pub(crate) fn blocks_told(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.stored_blocks), read(&self.removed_blocks))
    }

    /// Events told of so many more.
    pub(crate) fn tell_blocks(&self, stored: usize, removed: usize) {
        self.stored_blocks.fetch_add(stored as u64, Ordering::Relaxed);
        self.removed_blocks.fetch_add(removed as u64, Ordering::Relaxed);
    }

    /// What is known of the contract behind the hashes in its events.
    pub(crate) fn hash_contract(&self) -> Arc<HashContract> {
        self.hash_contract.load_full()
    }

    /// Plain blocks whose hash was checked, and those of them that failed, since the stream is
    /// followed.
    pub(crate) fn hashes_checked(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.hashes_checked), read(&self.hashes_failed))
    }

    /// Blocks that left, and whether they were missed, since the stream is followed.
    pub(crate) fn evictions(&self) -> EvictionCounts {
        *self.evictions.lock()
    }

    pub(crate) fn set_evictions(&self, counts: EvictionCounts) {
        *self.evictions.lock() = counts;
    }

    /// Takes in what was found; a change is a log line.
    pub(crate) fn set_hash_contract(&self, found: &HashContract, (checked, failed): (u64, u64)) {
        self.hashes_checked.store(checked, Ordering::Relaxed);
        self.hashes_failed.store(failed, Ordering::Relaxed);
        if **self.hash_contract.load() == *found {
            return;
        }
        self.hash_contract.store(Arc::new(found.clone()));
        let (endpoint, rank, now, detail) = (&self.url, self.rank, found, &found.detail);
        if found.state == HashState::Mismatch {
            tracing::warn!(%endpoint, rank, %now, detail, "hash contract");
        } else {
            tracing::info!(%endpoint, rank, %now, detail, "hash contract");
        }
    }

    /// See [`Credit::told_apart`].
    pub(crate) fn set_told_apart(&self, told_apart: bool) {
        self.credit.lock().told_apart = told_apart;
    }

    /// How far its events can be believed.
    pub(crate) fn trust(&self) -> Trust {
        self.credit.lock().effective()
    }

    /// Whether its blocks may be credited now.
    pub(crate) fn creditable(&self) -> Creditable {
        self.credit.lock().now()
    }

    /// Others may have taken the bytes of its blocks since its last update.
    pub(crate) fn note_budget(&self) {
        let budget = Trust::Partial(PartialReason::ByteBudget);
        let given_up = self.residency().given_up > 0;
        let trust = self.credit.lock().trust;
        if trust == Trust::Exact && given_up {
            self.set_trust(budget, "byte_budget");
        } else if trust == budget && !given_up {
            // All was forgotten meanwhile.
            self.set_trust(Trust::Exact, "events");
        }
    }

    /// A request whose blocks differ by more than tokens was sent there.
    pub(crate) fn carried_extras(&self) {
        self.credit.lock().carried_extras = true;
    }

    /// Credits nobody until a sound trust is told.
    pub(crate) fn withhold_credit(&self) {
        self.credit.lock().withhold();
    }

    /// See [`Credit::before`].
    pub(crate) fn before(&self, update: &Update) {
        self.credit.lock().before(update);
    }

    /// See [`Credit::after`].
    pub(crate) fn after(&self, update: &Update) {
        self.credit.lock().after(update);
    }

    /// Takes in the stream's trust; a change is a log line and counted.
    pub(crate) fn set_trust(&self, trust: Trust, why: &'static str) {
        let before = self.credit.lock().set_trust(trust);
        if before == trust {
            return;
        }
        let (endpoint, rank) = (&self.url, self.rank);
        tracing::info!(%endpoint, rank, %before, now = %trust, why, "trust changed");
        self.trust_changes.count(Some(rank), before, trust, why);
    }
}

impl Drop for RankStream {
    fn drop(&mut self) {
        self.inventory.unregister(self.slot);
    }
}
