//! The bounds and delays of a stream.

use std::time::Duration;

/// How a stream is followed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamConfig {
    /// Whether the publisher has a replay socket.
    pub replay: bool,
    /// Live batches that may wait behind a replay.
    pub pending_batches: usize,
    /// Bytes of live batches that may wait behind a replay.
    pub pending_bytes: usize,
    /// Silence after which the last batch is checked.
    pub idle_check: Duration,
    /// Delay of the first check after a join: a batch published before the subscription took
    /// effect is neither replayed nor live.
    pub settle: Duration,
    /// Silence after which the replay socket's answer is given up.
    pub replay_timeout: Duration,
    /// Unanswered requests before a repair is given up.
    pub replay_attempts: u32,
    /// How long after a new connection the engine's process is waited for to say that it is still
    /// the same, where there is no replay socket.
    pub witness_timeout: Duration,
    /// First delay between unanswered requests; doubles each time.
    pub backoff_min: Duration,
    /// Longest delay between requests.
    pub backoff_max: Duration,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            replay: false,
            pending_batches: 20_000,
            pending_bytes: 64 << 20,
            idle_check: Duration::from_secs(2),
            settle: Duration::from_millis(150),
            replay_timeout: Duration::from_secs(2),
            replay_attempts: 3,
            witness_timeout: Duration::from_secs(10),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
        }
    }
}
