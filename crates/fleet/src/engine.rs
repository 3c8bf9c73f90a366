//! One engine's address: what is known of the process behind it, whichever of its ranks is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::uri::Authority;
use parking_lot::Mutex;

use crate::card::EngineCard;
use crate::identity::{BlockIdentity, Keying};

/// Failed requests in a row after which an engine is left alone, and for how long.
const FAILURES: u32 = 3;
const COOLING: Duration = Duration::from_secs(5);
/// Metrics pages in a row, each waited for, without which an engine counts as silent.
const SILENT_PAGES: u32 = 3;

/// An engine behind one address. Its ranks share its health and what it says of itself.
#[derive(Debug)]
pub(crate) struct Engine {
    authority: Authority,
    url: String,
    card: ArcSwapOption<EngineCard>,
    identity: BlockIdentity,
    /// How its prompts are keyed, by what it says of itself; `None` where they cannot be.
    keying: ArcSwapOption<Keying>,
    reach: Mutex<Reach>,
    asleep: AtomicBool,
    /// The start time its process last gave, as bits; 0 before that.
    weight: AtomicU32,
    process_start: AtomicU64,
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
    /// The prompt is longer than its context.
    ContextTooLong,
    /// It takes no new conversations; those pinned to it go on.
    Draining,
    /// It was taken out of service.
    Disabled,
    /// This request already failed there.
    Tried,
    /// The request goes on from what another engine has stored.
    NotOwner,
}

impl From<&Exclusion> for kvasir_balance::Exclusion {
    fn from(exclusion: &Exclusion) -> Self {
        match exclusion {
            Exclusion::Unreachable(_) => Self::Unreachable,
            Exclusion::ModelNotServed => Self::ModelNotServed,
            Exclusion::Asleep => Self::Asleep,
            Exclusion::Failing => Self::Failing,
            Exclusion::Silent => Self::Silent,
            Exclusion::ContextTooLong => Self::ContextTooLong,
            Exclusion::Draining => Self::Draining,
            Exclusion::Disabled => Self::Disabled,
            Exclusion::Tried => Self::Tried,
            Exclusion::NotOwner => Self::NotOwner,
        }
    }
}

impl Exclusion {
    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        kvasir_balance::Exclusion::from(self).as_str()
    }
}

impl Engine {
    pub(crate) fn new(authority: Authority, identity: BlockIdentity) -> Self {
        Self {
            url: format!("http://{authority}"),
            authority,
            card: ArcSwapOption::empty(),
            keying: ArcSwapOption::new(identity.keying(None).map(Arc::new)),
            identity,
            reach: Mutex::new(Reach::default()),
            asleep: AtomicBool::new(false),
            process_start: AtomicU64::new(0),
            weight: AtomicU32::new(100),
        }
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
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

    /// Its share of the load, in percent of a full one's.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
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

    pub(crate) fn unreachable(&self) -> Option<String> {
        self.reach.lock().down.clone()
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.reach.lock().answered
    }

    pub(crate) fn mark_unreachable(&self, why: &str) {
        let mut reach = self.reach.lock();
        if reach.down.is_none() {
            tracing::warn!(endpoint = self.url, why, "endpoint is unreachable");
        }
        reach.down = Some(why.to_owned());
    }

    pub(crate) fn mark_reachable(&self) {
        let mut reach = self.reach.lock();
        reach.answered = true;
        if reach.down.take().is_some() {
            tracing::info!(endpoint = self.url, "endpoint answers again");
        }
    }

    pub(crate) fn note_answer(&self, failed: bool) {
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
    pub(crate) fn exclusion(&self, model: &str) -> Option<Exclusion> {
        if self.card.load().as_ref().is_some_and(|card| !card.serves(model)) {
            return Some(Exclusion::ModelNotServed);
        }
        if self.is_asleep() {
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
}
