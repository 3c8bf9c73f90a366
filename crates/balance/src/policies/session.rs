//! `session`: a conversation stays with one endpoint, whatever its load.
//!
//! As `LoxiLB`'s `persist` and rolter's session affinity: `pin(conversation)` while it is remembered
//! (by default 300 s after its last request), else rendezvous hashing of the name: the least
//! `-ln(u(key, e)) / weight(e)` ([`crate::hashed`]). A conversation is its name and the cache salt.

use crate::choice::{Choice, Reason};
use crate::hashed::{self, HashKey, KeyParts};
use crate::policy::{Moment, Outcome, Policy};
use crate::query::{Needs, Query};
use crate::sticky::{Pins, StickyOptions};
use crate::view::{EndpointId, FleetView};

/// Takes the candidate that the conversation is pinned to; a new one goes where its name hashes to,
/// so that gateways agree without talking to each other. Requests without a conversation are not its
/// business. A pin whose endpoint is not among the candidates is dropped.
#[derive(Clone, Debug)]
pub struct Session {
    pins: Pins,
}

impl Session {
    /// Remembers conversations within these limits.
    #[must_use]
    pub fn new(options: StickyOptions) -> Self {
        Self { pins: Pins::new(options) }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new(StickyOptions::default())
    }
}

impl Policy for Session {
    fn name(&self) -> &'static str {
        "session"
    }

    fn needs(&self) -> Needs {
        Needs { session: true, ..Needs::default() }
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        let session = query.pin()?;
        let pinned = self.pins.get(session, moment.now);
        let place = |id| view.candidates.iter().position(|candidate| candidate.id == id);
        let (index, reason) = if let Some(index) = pinned.and_then(place) {
            (index, Reason::Pinned)
        } else {
            let by_name = KeyParts { by: HashKey::Session, ..KeyParts::default() };
            (hashed::first(by_name.of(query)?, view.candidates)?, Reason::Hashed)
        };
        self.pins.set(session, view.candidates[index].id, moment.now);
        Some(Choice::plain(index, reason))
    }

    fn fork(&self, query: &Query<'_>) -> Box<dyn Policy> {
        Box::new(Self { pins: self.pins.only(query.pin()) })
    }

    fn observe(&mut self, outcome: &Outcome<'_>) {
        self.pins.observe(outcome);
    }

    fn forget(&mut self, endpoint: EndpointId) {
        self.pins.forget(endpoint);
    }
}
