//! One engine's address: what is known of the process behind it, whichever of its ranks is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::uri::Authority;
use kvasir_upstream::Origin;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::admission;
use crate::advice::Advised;
use crate::breaker::{BreakerSettings, BreakerState};
use crate::card::EngineCard;
use crate::exclusion::Exclusion;
use crate::hand_over::{HandOverCounts, HandOvers};
use crate::health::{Health, Probe, Standing};
use crate::identity::{BlockIdentity, Keying};
use crate::pool::Shared;
use crate::reopening::Reopening;
use crate::retired::Former;
use crate::spec::Part;
use crate::trust_changes::TrustChanges;

/// An engine behind one address. Its ranks share its health and what it says of itself.
#[derive(Debug)]
pub(crate) struct Engine {
    authority: Authority,
    url: String,
    /// How it is connected to: the URL is the same always.
    origin: ArcSwap<Origin>,
    card: ArcSwapOption<EngineCard>,
    identity: BlockIdentity,
    /// How its prompts are keyed, by what it says of itself; `None` where they cannot be.
    keying: ArcSwapOption<Keying>,
    health: Arc<Mutex<Health>>,
    asleep: AtomicBool,
    weight: AtomicU32,
    advised: Advised,
    /// Its part in disaggregated serving.
    part: ArcSwap<Part>,
    /// The start time its process last gave, as bits; 0 before that.
    process_start: AtomicU64,
    trust_changes: Arc<TrustChanges>,
    hand_overs: Arc<HandOvers>,
    hand_over_counts: Arc<HandOverCounts>,
    /// Requests at endpoints that it had.
    former: ArcSwap<Former>,
    reopening: Reopening,
    /// A request found that it answers.
    found: Notify,
}

impl Engine {
    pub(crate) fn new(origin: Origin, identity: BlockIdentity, shared: &Shared) -> Self {
        Self {
            authority: origin.authority().clone(),
            url: origin.url().to_owned(),
            trust_changes: shared.trust_changes.of(origin.url()),
            hand_overs: Arc::clone(&shared.hand_overs),
            hand_over_counts: shared.hand_over_counts.of(origin.url()),
            health: shared.healths.of(origin.url()),
            origin: ArcSwap::from_pointee(origin),
            card: ArcSwapOption::empty(),
            keying: ArcSwapOption::new(identity.keying(None).map(Arc::new)),
            identity,
            asleep: AtomicBool::new(false),
            process_start: AtomicU64::new(0),
            weight: AtomicU32::new(100),
            advised: Advised::default(),
            part: ArcSwap::default(),
            former: ArcSwap::default(),
            reopening: Reopening::default(),
            found: Notify::new(),
        }
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// How it is connected to.
    pub(crate) fn origin(&self) -> Arc<Origin> {
        self.origin.load_full()
    }

    /// It is connected to in another way from now on; what is under way stays where it is. Nothing
    /// happens where the way is the same: its connections are kept. The URL must be the same.
    pub(crate) fn connect_by(&self, origin: Origin) -> bool {
        let other = **self.origin.load() != origin;
        if other {
            self.origin.store(Arc::new(origin));
        }
        other
    }

    pub(crate) fn card(&self) -> Option<Arc<EngineCard>> {
        self.card.load_full()
    }

    pub(crate) fn set_card(&self, card: EngineCard) {
        self.keying.store(self.identity.keying(Some(&card)).map(Arc::new));
        self.card.store(Some(Arc::new(card)));
    }

    /// What its blocks are known by.
    pub(crate) fn identity(&self) -> &BlockIdentity {
        &self.identity
    }

    /// How prompts are keyed to be found among its blocks.
    pub(crate) fn keying(&self) -> Option<Keying> {
        self.keying.load().as_deref().copied()
    }

    /// What a weight controller advises of it.
    pub(crate) fn advised(&self) -> &Advised {
        &self.advised
    }

    /// Its share of the load, in percent of a full one's, as configured.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Its part in disaggregated serving.
    pub(crate) fn part(&self) -> Arc<Part> {
        self.part.load_full()
    }

    /// Has another part from now on.
    pub(crate) fn set_part(&self, part: Part) {
        self.part.store(Arc::new(part));
    }

    pub(crate) fn set_weight(&self, weight: u32) {
        self.weight.store(weight, Ordering::Relaxed);
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// What it was before.
    pub(crate) fn set_asleep(&self, asleep: bool) -> bool {
        self.asleep.swap(asleep, Ordering::Relaxed)
    }

    /// The engine says when its process started; whether that is another one than before.
    pub(crate) fn process_started(&self, seconds: f64) -> bool {
        let before = self.process_start.swap(seconds.to_bits(), Ordering::Relaxed);
        before != 0 && before != seconds.to_bits()
    }

    /// How faults are counted from now on, and health pages that do not come.
    pub(crate) fn set_breaker(&self, settings: BreakerSettings) {
        self.health.lock().configure(settings);
    }

    pub(crate) fn breaker(&self) -> BreakerState {
        self.health.lock().breaker()
    }

    pub(crate) fn unreachable(&self) -> Option<String> {
        self.health.lock().down().map(str::to_owned)
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.health.lock().has_answered()
    }

    pub(crate) fn mark_unreachable(&self, why: &str) {
        self.health.lock().mark_unreachable(self.url(), why);
    }

    /// Whether that is news.
    pub(crate) fn mark_reachable(&self) -> bool {
        let is_back = self.health.lock().mark_reachable(self.url());
        if is_back {
            admission::ring_all();
        }
        is_back
    }

    /// The same, found out by a request: its monitor, which may sleep for long still, has to ask it
    /// what it is.
    pub(crate) fn found_reachable(&self) {
        if self.mark_reachable() {
            self.found.notify_one();
        }
    }

    /// A request finds out that it answers, where that was not known.
    pub(crate) async fn is_found(&self) {
        self.found.notified().await;
    }

    /// A request is sent there.
    pub(crate) fn send(self: &Arc<Self>) -> Standing {
        let ticket = self.health.lock().send(self.url());
        self.ring_when_it_opens();
        Standing::new(Arc::clone(self), ticket)
    }

    pub(crate) fn health(&self) -> &Mutex<Health> {
        &self.health
    }

    /// It is busy, and says for how long.
    pub(crate) fn press_back(self: &Arc<Self>, time: Duration) {
        self.health.lock().press_back(self.url(), time);
        self.ring_when_it_opens();
    }

    /// Who waits hears of it when its quiet time, or its breaker's rest, is over.
    pub(crate) fn ring_when_it_opens(self: &Arc<Self>) {
        if self.health.lock().opens_at().is_some() {
            self.reopening.watch(self);
        }
    }

    pub(crate) fn reopening(&self) -> &Reopening {
        &self.reopening
    }

    /// An attempt to send a request there failed in this phase.
    pub(crate) fn note_failed_attempt(&self, cause: &'static str) {
        self.health.lock().note_failed_attempt(cause);
    }

    /// How often attempts failed, by the phase.
    pub(crate) fn failed_attempts(&self) -> BTreeMap<&'static str, u64> {
        self.health.lock().failed_attempts().clone()
    }

    /// How often its breaker changed, by what to and why.
    pub(crate) fn breaker_transitions(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.health.lock().transitions().clone()
    }

    /// How hand-overs of KV went, its own and others'.
    pub(crate) fn hand_overs(&self) -> &HandOvers {
        &self.hand_overs
    }

    pub(crate) fn hand_over_counts(&self) -> &HandOverCounts {
        &self.hand_over_counts
    }

    pub(crate) fn trust_changes(&self) -> &Arc<TrustChanges> {
        &self.trust_changes
    }

    /// What requests it has at endpoints that are none any more.
    pub(crate) fn former(&self) -> Arc<Former> {
        self.former.load_full()
    }

    pub(crate) fn set_former(&self, former: Former) {
        self.former.store(Arc::new(former));
    }

    /// How long it wants to be left alone still.
    pub(crate) fn back_pressure(&self) -> Option<Duration> {
        self.health.lock().back_pressure()
    }

    /// A metrics page came, or did not although the engine accepted the connection.
    pub(crate) fn note_page(&self, came: bool) {
        self.health.lock().note_page(self.url(), came);
    }

    /// What became of its health page.
    pub(crate) fn note_probe(&self, probe: Probe) {
        self.health.lock().note_probe(self.url(), probe);
    }

    /// Whether a request for `model` may go there; the reason if not.
    pub(crate) fn exclusion(&self, model: &str) -> Option<Exclusion> {
        if self.card.load().as_ref().is_some_and(|card| !card.serves(model)) {
            return Some(Exclusion::ModelNotServed);
        }
        self.own_exclusion()
    }

    /// What speaks against it, whatever is asked for.
    pub(crate) fn own_exclusion(&self) -> Option<Exclusion> {
        if self.is_asleep() {
            return Some(Exclusion::Asleep);
        }
        self.health.lock().exclusion()
    }
}
