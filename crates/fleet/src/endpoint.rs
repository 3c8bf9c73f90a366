//! One place a request can be sent to: an engine, or one data-parallel rank of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use http::uri::Authority;
use kvasir_balance::EndpointId;
use kvasir_inventory::{AbsentReason, Overlap, Overlaps, SuspectReason, Tier, Trust};
use kvasir_kv_events::{Event, Update};
use kvasir_upstream::Origin;
use parking_lot::{Mutex, RwLock};

use crate::card::EngineCard;
use crate::credit::Creditable;
use crate::engine::Engine;
use crate::evidence::BlockShape;
use crate::hash_contract::HashContract;
use crate::identity::{BlockIdentity, Keying};
use crate::load::{FirstTokens, LoadCounters, Rates};
use crate::parity::Stamp;
use crate::parity::hits::HitParity;
use crate::pending::PendingSlot;
use crate::pool::Shared;
use crate::rank_stream::RankStream;
use crate::retired::Former;
use crate::signals::Signals;
use crate::spec::AdminState;

mod health;
mod parity;
mod state;

/// One routable engine, or one of its data-parallel ranks where they can be addressed.
///
/// An engine whose ranks cannot be addressed is one endpoint with a stream a rank. Which of them
/// gets a request is the engine's choice, so it is credited with what the least of them holds.
#[derive(Debug)]
pub struct Endpoint {
    engine: Arc<Engine>,
    /// The rank, where the endpoint is one.
    rank: Option<u32>,
    /// Whether requests must name the rank in a header.
    by_header: bool,
    /// By the newest configuration.
    configured: AtomicU8,
    /// What was said since, of more weight than any configuration; [`state::BY_CONFIGURATION`] for nothing.
    by_hand: AtomicU8,
    load: Arc<LoadCounters>,
    pending: PendingSlot,
    rates: Rates,
    first_tokens: FirstTokens,
    id: EndpointId,
    /// Grows when the engine's process is another one, or its cache was emptied.
    lives: AtomicU64,
    signals: Mutex<Scrape>,
    streams: RwLock<Streams>,
    /// Of the engine, whichever of its ranks and by whichever fleet.
    carried_extras: Arc<AtomicBool>,
    parity: HitParity,
    /// Tokens per block, 0 while unknown.
    block_size: AtomicU32,
    /// Tokens behind a block that are part of its identity.
    lookahead: AtomicU32,
}

/// The last scrape and how much of what it counts was ours.
#[derive(Clone, Copy, Debug, Default)]
struct Scrape {
    signals: Signals,
    own_in_flight: u32,
}

#[derive(Debug, Default)]
struct Streams {
    list: Vec<Arc<RankStream>>,
    /// Not all ranks could be given a stream.
    incomplete: bool,
    /// Grows whenever the list changes, by at least the epochs of those that left.
    retired: u64,
    /// Grows likewise.
    gone: Stamp,
    /// Blocks that the ranks which left had removed, ever.
    removed: u64,
}

impl Endpoint {
    pub(crate) fn new(
        engine: Arc<Engine>,
        rank: Option<u32>,
        by_header: bool,
        streams: Vec<Arc<RankStream>>,
        configured: AdminState,
        shared: &Shared,
    ) -> Self {
        let name = name_of(engine.url(), rank);
        let (load, pending) = (shared.accounts.of(&name), shared.pending.slot());
        let id = EndpointId::of(&name);
        let carried_extras = shared.carried_extras.of(engine.url());
        Self {
            engine,
            rank,
            by_header,
            configured: AtomicU8::new(configured as u8),
            by_hand: AtomicU8::new(state::BY_CONFIGURATION),
            load,
            pending,
            rates: Rates::default(),
            first_tokens: FirstTokens::default(),
            id,
            lives: AtomicU64::new(0),
            signals: Mutex::new(Scrape::default()),
            streams: RwLock::new(Streams { list: streams, ..Streams::default() }),
            carried_extras,
            parity: HitParity::new(),
            block_size: AtomicU32::new(0),
            lookahead: AtomicU32::new(0),
        }
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        self.engine.authority()
    }

    /// How it is connected to.
    #[must_use]
    pub fn origin(&self) -> Arc<Origin> {
        self.engine.origin()
    }

    /// `http://host:port` or `https://host:port`, used in headers, metrics and logs.
    #[must_use]
    pub fn url(&self) -> &str {
        self.engine.url()
    }

    /// The data-parallel rank this endpoint is; `None` where it is a whole engine.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// The URL, and `#rank` where the endpoint is one rank: a name no other endpoint has.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(self.url(), self.rank)
    }

    /// The rank that requests must name in the header `X-data-parallel-rank`; what a client says
    /// there is not passed on.
    #[must_use]
    pub fn rank_to_name(&self) -> Option<u32> {
        self.rank.filter(|_| self.by_header)
    }

    /// Whether both are behind one address.
    #[must_use]
    pub fn same_engine(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.engine, &other.engine)
    }

    /// Requests sent there and not finished.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.load.in_flight()
    }

    /// Those of them whose prompt is computed: it generates for them. Of answers that come as a
    /// whole the moment is predicted.
    #[must_use]
    pub fn decoding(&self) -> u32 {
        self.load.at(Instant::now()).decoding
    }

    /// Prompt tokens sent there and not computed yet: until the answer begins, or, where it comes as
    /// a whole, until the predicted end of the prefill.
    #[must_use]
    pub fn queued_prefill_tokens(&self) -> u64 {
        self.load.at(Instant::now()).queued_prefill_tokens
    }

    /// What the engine says of itself; `None` before it was first asked.
    #[must_use]
    pub fn card(&self) -> Option<Arc<EngineCard>> {
        self.engine.card()
    }

    /// The longest prompt it takes for a model, in tokens; `u64::MAX` where it does not say.
    pub(crate) fn longest_prompt(&self, model: &str) -> u64 {
        let length = |card: Arc<EngineCard>| {
            card.models.iter().find(|served| served.id == model)?.max_model_len
        };
        self.card().and_then(length).unwrap_or(u64::MAX)
    }

    /// What is known of the contracts behind the hashes in its events, one for each of its streams.
    #[must_use]
    pub fn hash_contracts(&self) -> Vec<Arc<HashContract>> {
        self.streams.read().list.iter().map(|stream| stream.hash_contract()).collect()
    }

    /// What its blocks are known by.
    #[must_use]
    pub fn identity(&self) -> &BlockIdentity {
        self.engine.identity()
    }

    /// How prompts are keyed to be found among its blocks; `None` where they cannot be.
    pub(crate) fn keying(&self) -> Option<Keying> {
        self.engine.keying()
    }

    /// How far its events can be believed: as far as those of its least believable rank.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.creditable().trust
    }

    /// A request whose blocks differ by more than tokens (salt, adapter, image) was sent there.
    /// Where the engine does not publish such differences, its blocks can no longer be told apart.
    pub fn carried_extras(&self) {
        self.carried_extras.store(true, Ordering::Relaxed);
    }

    /// Tokens per block; `None` while unknown.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        Some(self.block_size.load(Ordering::Relaxed)).filter(|size| *size > 0)
    }

    /// How it cuts prompts into blocks, as far as is known; lookahead (vLLM 0.33 with EAGLE or MTP)
    /// is told by events only.
    pub(crate) fn block_shape(&self) -> BlockShape {
        let lookahead = self.lookahead.load(Ordering::Relaxed);
        BlockShape { size: self.block_size(), lookahead }
    }

    /// Prompt tokens per second it was seen to compute.
    #[must_use]
    pub fn learned_prefill_rate(&self) -> Option<f64> {
        self.rates.prefill()
    }

    /// Waiting requests that this gateway did not send, as of the last scrape.
    #[must_use]
    pub fn foreign_waiting(&self) -> u32 {
        let Scrape { signals, own_in_flight } = *self.signals.lock();
        kvasir_balance::foreign_waiting(signals.running, signals.waiting, own_in_flight)
    }

    pub(crate) fn load(&self) -> &Arc<LoadCounters> {
        &self.load
    }

    /// What its engine has in hand besides what its endpoints have.
    pub(crate) fn former(&self) -> Arc<Former> {
        self.engine.former()
    }

    /// The prompts that are being computed there.
    pub(crate) fn pending(&self) -> &PendingSlot {
        &self.pending
    }

    /// Whether what is being computed there can be counted on by the next request: the engine caches
    /// prefixes, as its events show (where they are `credited`) or its metrics say, and has one cache.
    /// Which of several ranks gets a request is the engine's choice, and the others do not have it.
    pub(crate) fn shares_pending(&self, card: Option<&EngineCard>, credited: bool) -> bool {
        let told = card.and_then(|card| card.prefix_caching);
        let caches = told != Some(false) && (credited || told == Some(true));
        let streams = self.streams.read();
        caches && !streams.incomplete && streams.list.len() == 1
    }

    pub(crate) fn first_tokens(&self) -> &FirstTokens {
        &self.first_tokens
    }

    /// Who it is to policies.
    pub(crate) fn id(&self) -> EndpointId {
        self.id
    }

    /// How often it was seen to begin with an empty cache.
    pub(crate) fn lives(&self) -> u64 {
        self.lives.load(Ordering::Relaxed)
    }

    /// Its engine begins anew: nothing that was sent there is computed, or will be.
    pub(crate) fn begins_anew(&self) {
        self.pending.end_all();
        self.lives.fetch_add(1, Ordering::Relaxed);
    }

    /// An update of its event stream is about to be applied: its cache may be empty after it.
    pub(crate) fn before(&self, update: &Update) {
        self.pending.before(update);
        let empties = match update {
            Update::Forget { .. } => true,
            Update::Batch { batch, .. } => batch.events.contains(&Event::Cleared),
            Update::Trust { .. } => false,
        };
        if empties {
            self.lives.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Blocks its events have told of; `None` where they tell nothing.
    pub(crate) fn resident_blocks(&self) -> Option<u64> {
        if !self.creditable().credits {
            return None;
        }
        let of_one = |stream: &Arc<RankStream>| stream.residency().blocks.iter().sum::<usize>();
        Some(self.streams.read().list.iter().map(of_one).sum::<usize>() as u64)
    }

    /// Its share of the load, in percent of a full one's.
    pub(crate) fn weight(&self) -> u32 {
        self.engine.weight()
    }

    /// The engine behind the address may be another one: nothing is known of its pace.
    pub(crate) fn forget_pace(&self) {
        self.rates.reset();
        self.load.reset_recent_work();
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    pub(crate) fn signals(&self) -> Signals {
        self.signals.lock().signals
    }

    pub(crate) fn set_signals(&self, signals: Signals, own_in_flight: u32) {
        *self.signals.lock() = Scrape { signals, own_in_flight };
    }

    pub(crate) fn set_block_size(&self, size: u32) {
        self.block_size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn set_lookahead(&self, tokens: u32) {
        self.lookahead.store(tokens, Ordering::Relaxed);
    }

    /// Its streams: one, or one a rank.
    pub(crate) fn streams(&self) -> Vec<Arc<RankStream>> {
        self.streams.read().list.clone()
    }

    /// Follows these streams from now on. `incomplete` says that there are ranks without one.
    pub(crate) fn set_streams(&self, list: Vec<Arc<RankStream>>, incomplete: bool) {
        let mut streams = self.streams.write();
        let gone = streams.list.iter().map(|stream| stream.creditable().epoch).sum::<u64>();
        let retired = streams.retired + gone + 1;
        let another = Stamp { life: 1, picture: 1, breaks: 1 };
        let gone = streams
            .list
            .iter()
            .fold(streams.gone.and(another), |gone, stream| gone.and(stream.creditable().stamp));
        let of_gone = streams.list.iter().map(|stream| stream.creditable().removed);
        let removed = streams.removed + of_gone.sum::<u64>();
        *streams = Streams { list, incomplete, retired, gone, removed };
    }

    /// Whether its blocks may be credited now: those of all ranks or none.
    pub(crate) fn creditable(&self) -> Creditable {
        let mut all = self.streams_creditable();
        if all.trust.credits() && self.parity.suspects(all.stamp) {
            all.trust = Trust::Suspect(SuspectReason::HitMismatch);
            all.credits = false;
        }
        all
    }

    /// [`creditable`](Self::creditable), as far as the event streams go.
    fn streams_creditable(&self) -> Creditable {
        let streams = self.streams.read();
        if self.carried_extras.load(Ordering::Relaxed) {
            streams.list.iter().for_each(|stream| stream.carried_extras());
        }
        let nothing = Creditable {
            trust: Trust::Exact,
            credits: !streams.incomplete,
            predicts: !streams.incomplete,
            judged: !streams.incomplete,
            epoch: streams.retired,
            stamp: streams.gone,
            removed: streams.removed,
        };
        let mut all = streams.list.iter().fold(nothing, |all, stream| {
            let one = stream.creditable();
            Creditable {
                trust: least(all.trust, one.trust),
                credits: all.credits && one.credits,
                predicts: all.predicts && one.predicts,
                judged: all.judged && one.judged,
                epoch: all.epoch + one.epoch,
                stamp: all.stamp.and(one.stamp),
                removed: all.removed + one.removed,
            }
        });
        if streams.incomplete || streams.list.is_empty() {
            all.trust = Trust::Absent(AbsentReason::TooManyRanks);
            all.credits = false;
            all.predicts = false;
            all.judged = false;
        }
        all
    }

    /// What it holds of a prompt, whichever of its ranks gets it.
    pub(crate) fn held(&self, overlaps: &Overlaps) -> Overlap {
        let streams = self.streams.read();
        let mut held = streams.list.iter().map(|stream| overlaps.get(stream.slot()));
        let first = held.next().unwrap_or_default();
        held.fold(first, common)
    }
}

fn name_of(url: &str, rank: Option<u32>) -> String {
    match rank {
        Some(rank) => format!("{url}#{rank}"),
        None => url.to_owned(),
    }
}

/// The less believable of two.
fn least(one: Trust, other: Trust) -> Trust {
    let order = |trust: Trust| match trust {
        Trust::Exact => 0,
        Trust::Partial(_) => 1,
        Trust::CatchingUp => 2,
        Trust::Suspect(_) => 3,
        Trust::Absent(_) => 4,
    };
    if order(other) > order(one) { other } else { one }
}

/// What both hold, each block in the slower of its tiers at worst.
fn common(one: Overlap, other: Overlap) -> Overlap {
    let mut common = Overlap::default();
    let (mut of_one, mut of_other) = (0, 0);
    for tier in Tier::ALL {
        of_one += one.in_tier(tier);
        of_other += other.in_tier(tier);
        common.add(tier, of_one.min(of_other) - common.resident());
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(device: u32, host: u32) -> Overlap {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, device);
        overlap.add(Tier::Host, host);
        overlap
    }

    #[test]
    fn of_two_ranks_the_least_counts_tier_by_tier() {
        assert_eq!(common(overlap(64, 0), overlap(32, 0)), overlap(32, 0));
        assert_eq!(common(overlap(64, 0), overlap(0, 48)), overlap(0, 48));
        assert_eq!(common(overlap(16, 64), overlap(32, 16)), overlap(16, 32));
        assert_eq!(common(overlap(16, 64), overlap(0, 0)), overlap(0, 0));
    }

    #[test]
    fn trust_is_that_of_the_least_believable() {
        let absent = Trust::Absent(AbsentReason::Disconnected);
        assert_eq!(least(Trust::Exact, absent), absent);
        assert_eq!(least(Trust::CatchingUp, Trust::Exact), Trust::CatchingUp);
        assert_eq!(least(absent, Trust::CatchingUp), absent);
    }
}
