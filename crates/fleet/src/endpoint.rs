//! One engine and everything known about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::uri::Authority;
use kvasir_inventory::{Inventory, Slot, SlotStats, Trust};
use kvasir_kv_events::StatsHandle;
use parking_lot::Mutex;

use crate::card::EngineCard;
use crate::credit::{Credit, Creditable, Extras};
use crate::evidence::BlockShape;
use crate::load::{LoadCounters, PrefillRate};
use crate::signals::Signals;

/// Failed requests in a row after which an endpoint is left alone, and for how long.
const FAILURES: u32 = 3;
const COOLING: Duration = Duration::from_secs(5);
/// Metrics pages in a row, each waited for, without which an endpoint counts as silent.
const SILENT_PAGES: u32 = 3;

/// One routable engine.
#[derive(Debug)]
pub struct Endpoint {
    authority: Authority,
    url: String,
    /// Freed when the last holder of this endpoint is gone, so that no late event can reach a
    /// slot's next owner.
    slot: Slot,
    inventory: Arc<Inventory>,
    load: LoadCounters,
    prefill_rate: PrefillRate,
    card: ArcSwapOption<EngineCard>,
    signals: Mutex<Scrape>,
    reach: Mutex<Reach>,
    credit: Mutex<Credit>,
    /// Whether the engine was seen to report cached tokens: from then on no number means 0.
    reports_cached_tokens: AtomicBool,
    stream: ArcSwapOption<StatsHandle>,
    refused_blocks: AtomicU64,
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
struct Reach {
    /// Why the last connection failed; `None` while the engine answers or was never tried.
    down: Option<String>,
    /// Requests in a row that the engine answered with a 5xx or broke off.
    failures: u32,
    /// No requests before this, after too many failures.
    cooling_until: Option<Instant>,
    /// Metrics pages in a row that did not come.
    unread_pages: u32,
    answered: bool,
}

/// Why an endpoint is not among a request's candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The last connection to it failed.
    Unreachable(String),
    /// It says it does not serve this model or adapter.
    ModelNotServed,
    /// It sleeps: it holds no cache and answers nothing.
    Asleep,
    /// It failed several requests in a row, just now.
    Failing,
    /// It accepts connections and answers nothing.
    Silent,
    /// This request already failed there.
    Tried,
}

impl Exclusion {
    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::ModelNotServed => "model_not_served",
            Self::Asleep => "asleep",
            Self::Failing => "failing",
            Self::Silent => "silent",
            Self::Tried => "tried",
        }
    }
}

impl Endpoint {
    /// `None` when the inventory has no place left.
    pub(crate) fn new(authority: Authority, inventory: Arc<Inventory>) -> Option<Self> {
        Some(Self {
            url: format!("http://{authority}"),
            authority,
            slot: inventory.register()?,
            inventory,
            load: LoadCounters::default(),
            prefill_rate: PrefillRate::default(),
            card: ArcSwapOption::empty(),
            signals: Mutex::new(Scrape::default()),
            reach: Mutex::new(Reach::default()),
            credit: Mutex::new(Credit::new()),
            reports_cached_tokens: AtomicBool::new(false),
            stream: ArcSwapOption::empty(),
            refused_blocks: AtomicU64::new(0),
            block_size: AtomicU32::new(0),
            lookahead: AtomicU32::new(0),
        })
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// `http://host:port`, the name used in headers, metrics and logs.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its place in the inventory.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Requests sent there and not finished.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.load.in_flight()
    }

    /// Prompt tokens sent there whose answer has not begun.
    #[must_use]
    pub fn queued_prefill_tokens(&self) -> u64 {
        self.load.queued_prefill_tokens()
    }

    /// What the engine says of itself; `None` before it was first asked.
    #[must_use]
    pub fn card(&self) -> Option<Arc<EngineCard>> {
        self.card.load_full()
    }

    /// How far its events can be believed.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.credit.lock().effective()
    }

    /// A request whose blocks differ by more than tokens (salt, adapter, image) was sent there.
    /// Where the engine does not publish such differences, its blocks can no longer be told apart.
    pub fn carried_extras(&self) {
        self.credit.lock().carried_extras = true;
    }

    /// The cached tokens an answer reports: `number`, or 0 for an answer without a number from an
    /// engine that has reported one before (vLLM 0.20 says null for none). `None` where the engine
    /// does not report.
    pub fn reported_cached_tokens(&self, number: Option<u64>) -> Option<u64> {
        if number.is_some() {
            self.reports_cached_tokens.store(true, Ordering::Relaxed);
            return number;
        }
        self.reports_cached_tokens.load(Ordering::Relaxed).then_some(0)
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
        self.prefill_rate.get()
    }

    /// Waiting requests that this gateway did not send, as of the last scrape.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    pub fn foreign_waiting(&self) -> u32 {
        let Scrape { signals, own_in_flight } = *self.signals.lock();
        let waiting = signals.waiting.unwrap_or(0.0);
        let foreign = waiting + signals.running.unwrap_or(0.0) - f64::from(own_in_flight);
        foreign.min(waiting).clamp(0.0, f64::from(u32::MAX)) as u32
    }

    /// Why the engine cannot be reached; `None` while nothing speaks against it.
    #[must_use]
    pub fn unreachable(&self) -> Option<String> {
        self.reach.lock().down.clone()
    }

    /// Whether it has ever answered: nothing speaks against one that was not asked yet, nor for it.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.reach.lock().answered
    }

    /// A connection failed: no new requests until something answers again.
    pub fn mark_unreachable(&self, why: &str) {
        let mut reach = self.reach.lock();
        if reach.down.is_none() {
            tracing::warn!(endpoint = self.url, why, "endpoint is unreachable");
        }
        reach.down = Some(why.to_owned());
    }

    /// Something answered.
    pub fn mark_reachable(&self) {
        let mut reach = self.reach.lock();
        reach.answered = true;
        if reach.down.take().is_some() {
            tracing::info!(endpoint = self.url, "endpoint answers again");
        }
    }

    /// An engine answered a request, or `failed`: an error of its own, or it broke off before it
    /// answered. A few
    /// failures in a row leave it alone for a while: an engine that fails at once always looks
    /// idle, and would draw all the traffic.
    pub fn note_answer(&self, failed: bool) {
        let mut reach = self.reach.lock();
        reach.failures = if failed { reach.failures.saturating_add(1) } else { 0 };
        if reach.failures >= FAILURES {
            if reach.cooling_until.is_none() {
                tracing::warn!(endpoint = self.url, "endpoint fails; left alone for a while");
            }
            reach.cooling_until = Some(Instant::now() + COOLING);
            // One more failure after the rest is enough.
            reach.failures = FAILURES - 1;
        } else if !failed && reach.cooling_until.take().is_some() {
            tracing::info!(endpoint = self.url, "endpoint does well again");
        }
    }

    /// A metrics page came, or did not although the engine accepted the connection.
    pub(crate) fn note_page(&self, came: bool) {
        let mut reach = self.reach.lock();
        reach.unread_pages = if came { 0 } else { reach.unread_pages.saturating_add(1) };
        if reach.unread_pages == SILENT_PAGES {
            tracing::warn!(endpoint = self.url, "endpoint accepts connections and answers nothing");
        }
    }

    /// Whether a request for `model` may go there; the reason if not.
    #[must_use]
    pub fn exclusion(&self, model: &str) -> Option<Exclusion> {
        if self.card.load().as_ref().is_some_and(|card| !card.serves(model)) {
            return Some(Exclusion::ModelNotServed);
        }
        if self.signals.lock().signals.asleep {
            return Some(Exclusion::Asleep);
        }
        let reach = self.reach.lock();
        if let Some(why) = &reach.down {
            return Some(Exclusion::Unreachable(why.clone()));
        }
        if reach.cooling_until.is_some_and(|until| until > Instant::now()) {
            return Some(Exclusion::Failing);
        }
        (reach.unread_pages >= SILENT_PAGES).then_some(Exclusion::Silent)
    }

    /// Sizes of its part of the inventory.
    #[must_use]
    pub fn residency(&self) -> SlotStats {
        self.inventory.stats(self.slot)
    }

    /// Counters of its event stream; `None` while none is followed.
    #[must_use]
    pub fn stream(&self) -> Option<Arc<StatsHandle>> {
        self.stream.load_full()
    }

    /// Stored blocks that were left out because the events did not describe them well enough.
    #[must_use]
    pub fn refused_blocks(&self) -> u64 {
        self.refused_blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_refused_blocks(&self, blocks: u64) {
        self.refused_blocks.store(blocks, Ordering::Relaxed);
    }

    pub(crate) fn set_stream(&self, stats: Option<StatsHandle>) {
        self.stream.store(stats.map(Arc::new));
    }

    pub(crate) fn load(&self) -> &LoadCounters {
        &self.load
    }

    pub(crate) fn prefill_rate(&self) -> &PrefillRate {
        &self.prefill_rate
    }

    pub(crate) fn signals(&self) -> Signals {
        self.signals.lock().signals
    }

    pub(crate) fn set_signals(&self, signals: Signals, own_in_flight: u32) {
        *self.signals.lock() = Scrape { signals, own_in_flight };
    }

    pub(crate) fn set_card(&self, card: EngineCard) {
        if let Some(size) = card.block_size
            && self.block_size().is_none()
        {
            self.set_block_size(size);
        }
        self.card.store(Some(Arc::new(card)));
    }

    pub(crate) fn set_block_size(&self, size: u32) {
        self.block_size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn set_lookahead(&self, tokens: u32) {
        self.lookahead.store(tokens, Ordering::Relaxed);
    }

    /// Whether its blocks may be credited now.
    pub(crate) fn creditable(&self) -> Creditable {
        self.credit.lock().now()
    }

    /// Credits nobody until [`Endpoint::grant_credit`].
    pub(crate) fn withhold_credit(&self) {
        let mut credit = self.credit.lock();
        credit.withheld = true;
        credit.epoch += 1;
    }

    /// What is known is sound again, as far as the trust goes.
    pub(crate) fn grant_credit(&self) {
        self.credit.lock().withheld = false;
    }

    pub(crate) fn set_extras(&self, extras: Extras) {
        self.credit.lock().extras = extras;
    }

    pub(crate) fn set_trust(&self, trust: Trust, why: &str) {
        let before = std::mem::replace(&mut self.credit.lock().trust, trust);
        if before != trust {
            tracing::info!(endpoint = self.url, %before, now = %trust, why, "trust changed");
            metrics::counter!("kvasir_trust_transitions_total",
                "endpoint" => self.url.clone(), "to" => trust.state(), "reason" => trust.reason())
            .increment(1);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.inventory.unregister(self.slot);
    }
}
