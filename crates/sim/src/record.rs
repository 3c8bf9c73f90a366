//! What became of each request.

use kvasir_balance::PairPlan;

use crate::gaps::Gaps;
use crate::queue::Time;
use crate::replica::ReplicaTotals;

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has not.
    #[default]
    Open,
    /// With its whole answer.
    Answered,
    /// Its engine was killed while it answered.
    CutOff,
    /// No engine was left to try.
    Failed,
    /// The engine did not take it.
    Refused,
}

/// One request's fate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) arrived: Time,
    /// Its first token.
    pub(crate) first: Option<Time>,
    pub(crate) ended_at: Time,
    pub(crate) ended: Ended,
    /// Tokens answered.
    pub(crate) outputs: u32,
    /// Prompt tokens that the engine that computed it found in its cache.
    pub(crate) cached: u32,
    /// Prompt tokens it was expected to find.
    pub(crate) predicted: u32,
    /// The last engine it was sent to.
    pub(crate) replica: Option<u16>,
    /// Whether another engine was known to hold more.
    pub(crate) spilled: bool,
    pub(crate) attempts: u8,
    /// How it was served in the end, where requests are split.
    pub(crate) plan: Option<PairPlan>,
}

/// Prompts that were handed over, all requests together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandOvers {
    /// Tokens that travelled.
    pub(crate) tokens: u64,
    /// Prompts whose time was over before anybody had fetched them.
    pub(crate) expired: u64,
    /// Prompts that are still kept.
    pub(crate) kept: u64,
}

impl Record {
    /// Whether its whole answer came.
    pub(crate) fn is_answered(&self) -> bool {
        self.ended == Ended::Answered
    }
}

/// A whole simulation.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) records: Vec<Record>,
    pub(crate) replicas: Vec<ReplicaTotals>,
    /// Between two tokens of an answer, of all answers.
    pub(crate) gaps: Gaps,
    pub(crate) hand_overs: HandOvers,
}
