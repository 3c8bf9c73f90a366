//! One place a request can be sent to: an engine, or one data-parallel rank of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use http::uri::Authority;
use kvasir_balance::{EndpointId, Role};
use kvasir_kv_events::{Event, Update};
use kvasir_upstream::Origin;
use parking_lot::{Mutex, RwLock};

use self::streams::Streams;
use crate::card::EngineCard;
use crate::engine::Engine;
use crate::evidence::BlockShape;
use crate::identity::{BlockIdentity, Keying};
use crate::lease::Leases;
use crate::load::{FirstTokens, LoadCounters, Rates};
use crate::parity::hits::HitParity;
use crate::pending::PendingSlot;
use crate::pool::Shared;
use crate::rank_stream::RankStream;
use crate::retired::Former;
use crate::signals::Signals;
use crate::spec::AdminState;
use crate::transfer::Transfers;

mod health;
mod parity;
mod state;
mod streams;

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
    /// Prompts it keeps for decode legs.
    leases: Leases,
    /// What it fetches as a decode endpoint.
    transfers: Transfers,
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
            streams: RwLock::new(Streams::of(streams)),
            carried_extras,
            leases: Leases::default(),
            transfers: Transfers::default(),
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
    pub(crate) fn decoding(&self) -> u32 {
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

    /// What its blocks are known by.
    #[must_use]
    pub fn identity(&self) -> &BlockIdentity {
        self.engine.identity()
    }

    /// How prompts are keyed to be found among its blocks; `None` where they cannot be.
    pub(crate) fn keying(&self) -> Option<Keying> {
        self.engine.keying()
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
    pub(crate) fn learned_prefill_rate(&self) -> Option<f64> {
        self.rates.prefill()
    }

    /// Waiting requests that this gateway did not send, as of the last scrape.
    #[must_use]
    pub(crate) fn foreign_waiting(&self) -> u32 {
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

    /// Its part in disaggregated serving, as configured.
    #[must_use]
    pub fn role(&self) -> Role {
        self.engine.part().role
    }

    /// The host of its bootstrap server (`SGLang`): as configured, else its URL's.
    #[must_use]
    pub fn bootstrap_host(&self) -> String {
        let configured = self.engine.part().bootstrap_host.clone();
        configured.unwrap_or_else(|| self.authority().host().to_owned())
    }

    /// The port of its bootstrap server, where one is configured for it; else the pool's holds
    /// ([`SplitSettings::bootstrap_port`](crate::SplitSettings::bootstrap_port)).
    #[must_use]
    pub fn bootstrap_port(&self) -> Option<u16> {
        self.engine.part().bootstrap_port
    }

    /// Prompts whose blocks it keeps for decode legs now.
    #[must_use]
    pub fn leased(&self) -> usize {
        self.leases.count(Instant::now()).live
    }

    /// Tokens of KV per second that it fetches as a decode endpoint, as seen; `None` until enough was
    /// seen.
    #[must_use]
    pub fn learned_transfer_rate(&self) -> Option<f64> {
        self.transfers.learned()
    }

    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Its share of the load, in percent of a full one's: as configured, scaled by what is advised.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.advice().weigh(self.engine.weight())
    }

    /// The same as configured.
    #[must_use]
    pub fn configured_weight(&self) -> u32 {
        self.engine.weight()
    }

    /// The engine behind the address may be another one: nothing is known of its pace.
    pub(crate) fn forget_pace(&self) {
        self.rates.reset();
        self.transfers.reset();
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
}

fn name_of(url: &str, rank: Option<u32>) -> String {
    match rank {
        Some(rank) => format!("{url}#{rank}"),
        None => url.to_owned(),
    }
}
