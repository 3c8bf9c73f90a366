//! Whether an operator lets requests go to an endpoint, and what else speaks against that.

use std::sync::atomic::Ordering;

use super::Endpoint;
use crate::exclusion::Exclusion;
use crate::spec::AdminState;

/// No state was set by hand.
pub(super) const BY_CONFIGURATION: u8 = u8::MAX;

impl Endpoint {
    /// Whether an operator lets requests go there.
    #[must_use]
    pub fn state(&self) -> AdminState {
        self.state_in(AdminState::of(self.configured.load(Ordering::Relaxed)))
    }

    /// The same to a pool that was told so of it: a request that is under way while the configuration
    /// changes goes by the one it began with.
    pub(crate) fn state_in(&self, configured: AdminState) -> AdminState {
        match self.by_hand.load(Ordering::Relaxed) {
            BY_CONFIGURATION => configured,
            state => AdminState::of(state),
        }
    }

    /// Lets requests go there, or only those of pinned conversations, or none, at once and in all
    /// pools. It holds until the configuration says something else than before.
    pub fn set_state(&self, state: AdminState) {
        let before = self.state();
        self.by_hand.store(state as u8, Ordering::Relaxed);
        self.note_state(before);
    }

    /// The configuration says something else than before.
    pub(crate) fn configure_state(&self, state: AdminState) {
        let before = self.state();
        self.configured.store(state as u8, Ordering::Relaxed);
        self.by_hand.store(BY_CONFIGURATION, Ordering::Relaxed);
        self.note_state(before);
    }

    fn note_state(&self, before: AdminState) {
        let now = self.state();
        if before != now {
            let (endpoint, before, now) = (self.name(), before.as_str(), now.as_str());
            tracing::info!(endpoint, before, now, "administrative state changed");
        }
    }

    /// Whether a request for `model` may go there; the reason if not.
    #[must_use]
    pub fn exclusion(&self, model: &str) -> Option<Exclusion> {
        self.exclusion_in(self.state(), model)
    }

    /// The same in this state.
    pub(crate) fn exclusion_in(&self, state: AdminState, model: &str) -> Option<Exclusion> {
        match state {
            AdminState::Active => self.engine.exclusion(model).or(self.advice().state.exclusion()),
            AdminState::Drain => self.engine.exclusion(model).or(Some(Exclusion::Draining)),
            AdminState::Disabled => Some(Exclusion::Disabled),
        }
    }
}
