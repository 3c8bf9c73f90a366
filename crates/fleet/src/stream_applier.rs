//! Updates of one rank's stream, applied: blocks into the inventory, trust and credit to the rank.

use std::sync::Arc;

use kvasir_inventory::{AbsentReason, Inventory, Trust};
use kvasir_kv_events::{Event, Update};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::apply::Applier;
use crate::card::EngineCard;
use crate::endpoint::Endpoint;
use crate::hash_contract::HashContract;
use crate::rank_stream::RankStream;
use crate::refill::Refill;

/// Blocks in a batch above which applying it counts as long work.
const HEAVY_BLOCKS: usize = 1_024;
/// The same where the hash of each block is computed.
const HEAVY_CHECKED_BLOCKS: usize = 128;

/// The stream to follow, and the endpoint it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) stream: Arc<RankStream>,
}

/// What applies one stream's updates.
#[derive(Debug)]
pub(crate) struct StreamApplier {
    to: Followed,
    applier: Applier,
    refill: Refill,
    unknown: Arc<EngineCard>,
}

impl StreamApplier {
    pub(crate) fn new(to: Followed, inventory: Arc<Inventory>) -> Self {
        let identity = to.endpoint.identity().clone();
        let applier =
            Applier::new(inventory, to.stream.slot(), to.stream.trust()).known_by(identity);
        Self { to, applier, refill: Refill::default(), unknown: Arc::default() }
    }

    pub(crate) fn apply(&mut self, update: &Update) {
        let Followed { endpoint, stream } = &self.to;
        let why = match update {
            Update::Forget { why, .. } | Update::Trust { why, .. } => why.as_str(),
            Update::Batch { .. } => "events",
        };
        stream.before(update);
        endpoint.before(update);
        let card = endpoint.card().unwrap_or_else(|| Arc::clone(&self.unknown));
        let applier = &mut self.applier;
        let heavy = is_heavy(update, applier);
        if let Update::Batch { batch, .. } = update {
            let (stored, removed) = blocks(&batch.events);
            stream.tell_blocks(stored, removed);
        }
        if off_the_scheduler(heavy, || applier.apply(update, &card)) {
            stream.emptied();
            endpoint.pending().end_computed();
        }
        self.refill.note(update);
        let why =
            if self.refill.is_full(card.blocks) && applier.complete() { "refilled" } else { why };
        if let Some(size) = applier.block_size() {
            endpoint.set_block_size(size);
        }
        endpoint.set_lookahead(applier.lookahead());
        stream.set_refused_blocks(applier.refused_blocks());
        stream.set_hash_contract(applier.hash_contract(), applier.hashes_checked());
        stream.set_evictions(applier.evictions());
        stream.set_told_apart(applier.tells_apart());
        stream.set_trust(applier.trust(), why);
        stream.after(update);
    }

    /// Nothing comes any more.
    pub(crate) fn end(mut self, why: &'static str) {
        self.to.stream.set_trust(Trust::Absent(AbsentReason::NoStream), why);
        self.to.stream.set_hash_contract(&HashContract::default(), self.applier.hashes_checked());
        self.applier.forget();
    }
}

/// Whether applying an update may take milliseconds.
fn is_heavy(update: &Update, applier: &Applier) -> bool {
    let Update::Batch { batch, .. } = update else {
        return matches!(update, Update::Forget { .. });
    };
    let most = if applier.checks_every() { HEAVY_CHECKED_BLOCKS } else { HEAVY_BLOCKS };
    let (stored, removed) = blocks(&batch.events);
    let clears = batch.events.iter().any(|event| matches!(event, Event::Cleared));
    clears || stored + removed > most || applier.may_search(&batch.events)
}

/// How many blocks these events store, and remove.
fn blocks(events: &[Event]) -> (usize, usize) {
    events.iter().fold((0, 0), |(stored, removed), event| match event {
        Event::Stored(more) => (stored + more.block_hashes.len(), removed),
        Event::Removed(gone) => (stored, removed + gone.block_hashes.len()),
        Event::Cleared => (stored, removed),
    })
}

/// Runs `work`; where it is heavy, other tasks of the runtime's thread go on elsewhere meanwhile.
pub(crate) fn off_the_scheduler<R>(heavy: bool, work: impl FnOnce() -> R) -> R {
    let several =
        Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    if heavy && several { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests;
