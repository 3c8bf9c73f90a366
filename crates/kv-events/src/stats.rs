//! What a subscriber counts.

use std::time::Duration;

use kvasir_inventory::{AbsentReason, Trust};

/// A snapshot of one subscriber's counters. All counts are since it was started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamStats {
    /// The stream's trust now.
    pub trust: Trust,
    /// Batches delivered.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// Events of unknown kinds that were skipped.
    pub unknown_events: u64,
    /// Times the numbers jumped forward.
    pub gaps: u64,
    /// Requests to the replay socket that were answered to the end.
    pub replays: u64,
    /// Requests to the replay socket that were not.
    pub replay_failures: u64,
    /// Batches delivered that came from the replay socket.
    pub replayed_batches: u64,
    /// Times the publisher turned out to be in a new life without a disconnect.
    pub restarts: u64,
    /// Connections lost.
    pub disconnects: u64,
    /// Batches that could not be decoded.
    pub schema_errors: u64,
    /// Messages that are no batch: wrong number of parts, no sequence number.
    pub malformed_messages: u64,
    /// Exact repetitions of the last batch that were dropped.
    pub duplicates: u64,
    /// Live batches given up because too many waited behind a replay.
    pub overflows: u64,
    /// Whether it is known when the engine's process started, so that another one is noticed.
    pub witnessed: bool,
    /// The number of the last batch applied.
    pub last_seq: Option<u64>,
    /// Time since the last batch arrived, live or replayed.
    pub last_event_age: Option<Duration>,
}

impl Default for StreamStats {
    fn default() -> Self {
        Self {
            trust: Trust::Absent(AbsentReason::Connecting),
            batches: 0,
            events: 0,
            unknown_events: 0,
            gaps: 0,
            replays: 0,
            replay_failures: 0,
            replayed_batches: 0,
            restarts: 0,
            disconnects: 0,
            schema_errors: 0,
            malformed_messages: 0,
            duplicates: 0,
            overflows: 0,
            witnessed: false,
            last_seq: None,
            last_event_age: None,
        }
    }
}
