//! What a policy may look at, and what it answers.

use std::fmt;

use kvasir_inventory::{Overlap, Trust};

use crate::rng::Rng;

/// One request, as far as routing cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Prompt tokens, all prompts of a batch together: exact where the prompt was tokenised, else
    /// an estimate from the body's size.
    pub prompt_tokens: u64,
}

/// The work an endpoint has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests sent there and not finished.
    pub in_flight: u32,
    /// Prompt tokens yet to be computed there before a new request's turn comes: dispatched and
    /// not yet answered, plus an estimate for waiting work that others sent.
    pub queued_prefill_tokens: u64,
}

impl Load {
    /// What policies compare: requests first, then prompt tokens.
    pub(crate) fn key(self) -> (u32, u64) {
        (self.in_flight, self.queued_prefill_tokens)
    }
}

/// One eligible endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Tokens of the prompt it will find in its cache; all prompts of a batch together.
    pub overlap: Overlap,
    /// Tokens of the prompt beyond that prefix which the endpoint is computing for requests chosen
    /// before, or has just computed: it will find them too when its turn comes, unless those
    /// requests fail. The longest prefix that will be there is `overlap.resident() + pending`. How
    /// long they still take is part of `load`.
    pub pending: u32,
    /// How far that overlap can be believed. Without credit the overlap is empty.
    pub trust: Trust,
    /// Its work in hand.
    pub load: Load,
    /// Prompt tokens it computes per second; always above zero.
    pub prefill_rate: f64,
}

impl Candidate {
    /// Prompt tokens it would have to compute for the request.
    #[must_use]
    pub fn uncached(&self, query: &Query) -> u64 {
        let cached = u64::from(self.overlap.resident()) + u64::from(self.pending);
        query.prompt_tokens.saturating_sub(cached)
    }
}

/// Every eligible endpoint for one request, in a stable order.
#[derive(Clone, Copy, Debug)]
pub struct FleetView<'a> {
    /// The candidates; a [`Choice`] names one by its place here.
    pub candidates: &'a [Candidate],
}

/// Why a candidate was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its turn in the rotation.
    Turn,
    /// It had the least load.
    LeastLoad,
    /// It holds the longest prefix, or will first.
    LongestPrefix,
    /// No candidate holds or computes any of the prompt: the least loaded was taken.
    NoOverlap,
    /// It adds the least latency, with some of the prompt cached.
    LeastLatencyWarm,
    /// It adds the least latency although it holds none of the prompt yet.
    LeastLatencyCold,
}

impl Reason {
    /// The word used in headers, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::LeastLoad => "least_load",
            Self::LongestPrefix => "longest_prefix",
            Self::NoOverlap => "no_overlap",
            Self::LeastLatencyWarm => "least_latency_warm",
            Self::LeastLatencyCold => "least_latency_cold",
        }
    }
}

/// A policy's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The chosen candidate's place in the view.
    pub index: usize,
    /// Why.
    pub reason: Reason,
    /// One score per candidate, in the policy's own unit; lower is better. Empty for policies that
    /// do not compare.
    pub scores: Vec<f64>,
}

/// What a policy remembers between decisions of one pool.
#[derive(Clone, Debug)]
pub struct PolicyState {
    /// Breaks ties.
    pub rng: Rng,
    /// Decisions made so far.
    pub turn: u64,
}

impl PolicyState {
    /// A fresh state; the same seed gives the same decisions.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), turn: 0 }
    }
}

/// A routing policy.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Its name in configuration, headers and metrics.
    fn name(&self) -> &'static str;

    /// Picks a candidate; `None` when there is none.
    fn choose(
        &self,
        query: &Query,
        view: &FleetView<'_>,
        state: &mut PolicyState,
    ) -> Option<Choice>;
}
