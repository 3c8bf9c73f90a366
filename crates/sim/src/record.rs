//! What became of each request.

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
    /// Prompt tokens the engine found in its cache.
    pub(crate) cached: u32,
    /// Prompt tokens it was expected to find.
    pub(crate) predicted: u32,
    /// The last engine it was sent to.
    pub(crate) replica: Option<u16>,
    /// Whether another engine was known to hold more.
    pub(crate) spilled: bool,
    pub(crate) attempts: u8,
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
}
