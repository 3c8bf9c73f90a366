//! An endpoint's health, which is its engine's.

use std::time::Duration;

use super::Endpoint;
use crate::breaker::BreakerState;
use crate::engine::Engine;
use crate::health::Standing;

impl Endpoint {
    /// Why the engine cannot be reached; `None` while nothing speaks against it.
    #[must_use]
    pub fn unreachable(&self) -> Option<String> {
        self.engine.unreachable()
    }

    /// Whether the engine has ever answered: nothing speaks against one that was not asked yet,
    /// nor for it.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.engine.has_answered()
    }

    /// A connection failed: no new requests to the engine until something answers again.
    pub fn mark_unreachable(&self, why: &str) {
        self.engine.mark_unreachable(why);
    }

    /// Something answered.
    pub fn mark_reachable(&self) {
        self.engine.found_reachable();
    }

    /// Whether its engine's breaker lets requests pass.
    #[must_use]
    pub(crate) fn breaker(&self) -> BreakerState {
        self.engine.breaker()
    }

    /// Whether its engine's breaker is closed, as it usually is: no clock is read.
    pub(crate) fn breaker_is_closed(&self) -> bool {
        self.engine.health().lock().breaker_is_closed()
    }

    /// The engine says that it is busy and when to come again (`retry-after`): no new requests to
    /// it for that time, 30 s at most, while there is another.
    pub fn press_back(&self, time: Duration) {
        self.engine.press_back(time);
    }

    /// How long the engine wants no new requests still; `None` where it does not say.
    #[must_use]
    pub fn back_pressure(&self) -> Option<Duration> {
        self.engine.back_pressure()
    }

    /// An attempt to have it answer a request failed, in the phase `cause`: counted, by the engine.
    pub fn note_failed_attempt(&self, cause: &'static str) {
        self.engine.note_failed_attempt(cause);
    }

    /// Its engine, for what is counted of that.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A request is sent there.
    pub(crate) fn send(&self) -> Standing {
        self.engine.send()
    }
}
