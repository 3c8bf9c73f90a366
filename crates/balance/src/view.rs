//! What a policy may look at: every endpoint of a pool at one moment.

use kvasir_inventory::{AbsentReason, Overlap, Tier, Trust};

use crate::estimate::DEFAULT_PREFILL_RATE;
use crate::pair::{DEFAULT_TRANSFER_RATE, Role};
use crate::query::digest;

/// Who an endpoint is, whatever its place in a list: the same for every gateway, over reloads and
/// restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u64);

impl EndpointId {
    /// The id of an endpoint's name (URL, and rank where it is one).
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(digest(name.as_bytes()))
    }
}

/// The work an endpoint has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests sent there and not finished.
    pub in_flight: u32,
    /// Prompt tokens yet to be computed there before a new request's turn comes: dispatched and
    /// not yet answered, plus an estimate for waiting work that others sent.
    pub queued_prefill_tokens: u64,
    /// Work given to it lately, in tokens ([`RecentWork`](crate::RecentWork)).
    pub recent_work: f64,
    /// Requests waiting in the engine, as of its last metrics page; `None` where there is none.
    pub waiting: Option<u32>,
    /// Used share of the engine's KV cache, 0 to 1; `None` where it is not known.
    pub kv_usage: Option<f64>,
}

impl Load {
    /// What policies compare: requests first, then prompt tokens.
    pub(crate) fn key(self) -> (u32, u64) {
        (self.in_flight, self.queued_prefill_tokens)
    }
}

/// One endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Who it is.
    pub id: EndpointId,
    /// Tokens of the prompt it will find in its cache; all prompts of a batch together.
    pub overlap: Overlap,
    /// Tokens of the prompt, beyond those, that it is computing for requests sent there before:
    /// they will be in its cache when this request's turn comes.
    pub pending: u32,
    /// How far that overlap can be believed. Without credit the overlap is empty.
    pub trust: Trust,
    /// Its work in hand.
    pub load: Load,
    /// Prompt tokens it computes per second; always above zero.
    pub prefill_rate: f64,
    /// Prompt tokens it fetches per second from slower tiers of its cache; always above zero.
    pub fetch_rate: f64,
    /// Its part in pools that split requests; in others it has no say.
    pub role: Role,
    /// Tokens of KV per second that it fetches from where they were computed; always above zero.
    pub transfer_rate: f64,
    /// Time to first token seen there lately, in milliseconds; `None` until something was seen.
    pub ttft_ms: Option<f64>,
    /// Its capacity as configured or advised, 100 being that of a full one.
    pub weight: u32,
    /// Blocks its cache has room for; `None` where it is not known.
    pub capacity_blocks: Option<u64>,
    /// Blocks it is known to hold; `None` where nothing is known of its cache.
    pub resident_blocks: Option<u64>,
    /// Used share of its `LMCache` server, 0 to 1; `None` where there is none or it is silent.
    pub lmcache_occupancy: Option<f64>,
}

impl Default for Candidate {
    /// An idle endpoint nothing is known of.
    fn default() -> Self {
        Self {
            id: EndpointId::default(),
            overlap: Overlap::default(),
            pending: 0,
            trust: Trust::Absent(AbsentReason::NoStream),
            load: Load::default(),
            prefill_rate: DEFAULT_PREFILL_RATE,
            fetch_rate: DEFAULT_PREFILL_RATE,
            role: Role::default(),
            transfer_rate: DEFAULT_TRANSFER_RATE,
            ttft_ms: None,
            weight: 100,
            capacity_blocks: None,
            resident_blocks: None,
            lmcache_occupancy: None,
        }
    }
}

impl Candidate {
    /// Tokens of the prompt that it will not have to compute for it: resident, or pending.
    #[must_use]
    pub fn cached(&self) -> u64 {
        u64::from(self.overlap.resident()) + u64::from(self.pending)
    }

    /// Tokens of the prompt that it would fetch from slower tiers of its cache.
    #[must_use]
    pub fn fetched(&self) -> u32 {
        self.overlap.resident().saturating_sub(self.overlap.in_tier(Tier::Device))
    }

    /// Prompt tokens that it would have to compute.
    #[must_use]
    pub fn uncached(&self, prompt_tokens: u64) -> u64 {
        prompt_tokens.saturating_sub(self.cached())
    }
}

/// The endpoints a policy chooses among, in a stable order.
#[derive(Clone, Copy, Debug)]
pub struct FleetView<'a> {
    /// The candidates; a [`crate::Choice`] names one by its place here.
    pub candidates: &'a [Candidate],
}
