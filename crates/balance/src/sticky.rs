//! Conversations that stay where they are.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Outcome;
use crate::view::EndpointId;

/// How conversations stick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StickyOptions {
    /// How long a conversation is remembered after its last request, in seconds.
    pub idle_s: u64,
    /// How many are remembered; above it the longest unused go first.
    pub capacity: usize,
}

impl Default for StickyOptions {
    fn default() -> Self {
        Self { idle_s: 300, capacity: 100_000 }
    }
}

/// Which endpoint each conversation is pinned to, bounded in number and time.
///
/// Pins live in two generations: a use moves a pin to the young one, and when that is half of the
/// capacity, the old one is dropped and the young one grows old. That is nearly least recently
/// used, at the cost of a map.
#[derive(Clone, Debug)]
pub struct Pins {
    options: StickyOptions,
    young: HashMap<u64, Pin>,
    old: HashMap<u64, Pin>,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    endpoint: EndpointId,
    used: Duration,
}

impl Pins {
    /// No pins yet.
    #[must_use]
    pub fn new(options: StickyOptions) -> Self {
        Self { options, young: HashMap::new(), old: HashMap::new() }
    }

    /// The pin of one conversation alone.
    #[must_use]
    pub(crate) fn only(&self, session: Option<u64>) -> Self {
        let mut pins = Self::new(self.options);
        if let Some(session) = session {
            let known = self.young.get(&session).or_else(|| self.old.get(&session));
            pins.young.extend(known.map(|pin| (session, *pin)));
        }
        pins
    }

    /// Where a conversation is, unless it was idle for too long.
    #[must_use]
    pub fn get(&self, session: u64, now: Duration) -> Option<EndpointId> {
        let pin = self.young.get(&session).or_else(|| self.old.get(&session))?;
        (now.saturating_sub(pin.used) <= Duration::from_secs(self.options.idle_s))
            .then_some(pin.endpoint)
    }

    /// The conversation is there now.
    pub fn set(&mut self, session: u64, endpoint: EndpointId, now: Duration) {
        self.old.remove(&session);
        self.young.insert(session, Pin { endpoint, used: now });
        if self.young.len() > self.options.capacity / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// The conversation is not there any more, if it was.
    pub fn remove(&mut self, session: u64, endpoint: EndpointId) {
        for pins in [&mut self.young, &mut self.old] {
            if pins.get(&session).is_some_and(|pin| pin.endpoint == endpoint) {
                pins.remove(&session);
            }
        }
    }

    /// A request that was not answered takes its conversation's pin with it.
    pub fn observe(&mut self, outcome: &Outcome<'_>) {
        if let (Some(session), false) = (outcome.query.pin(), outcome.answered) {
            self.remove(session, outcome.endpoint);
        }
    }

    /// Nobody is at that endpoint any more.
    pub fn forget(&mut self, endpoint: EndpointId) {
        for pins in [&mut self.young, &mut self.old] {
            pins.retain(|_, pin| pin.endpoint != endpoint);
        }
    }

    /// How many conversations are remembered, idle ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(1);
    const B: EndpointId = EndpointId(2);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_pin_lasts_from_its_last_use() {
        let mut pins = Pins::new(StickyOptions { idle_s: 10, capacity: 10 });
        pins.set(7, A, at(0));
        assert_eq!(pins.get(7, at(10)), Some(A));
        assert_eq!(pins.get(7, at(11)), None);
        pins.set(7, B, at(11));
        assert_eq!(pins.get(7, at(21)), Some(B));
        pins.remove(7, A);
        assert_eq!(pins.get(7, at(21)), Some(B));
        assert!(!pins.is_empty());
        pins.forget(B);
        assert!(pins.is_empty());
    }

    #[test]
    fn the_longest_unused_go_first_and_the_bound_holds() {
        let mut pins = Pins::new(StickyOptions { idle_s: 1000, capacity: 100 });
        pins.set(0, A, at(0));
        for n in 1..10_000_u64 {
            pins.set(n, B, at(1));
            pins.set(0, A, at(1));
            assert!(pins.len() <= 101);
        }
        assert_eq!(pins.get(0, at(1)), Some(A));
        assert_eq!(pins.get(9_999, at(1)), Some(B));
        assert_eq!(pins.get(1, at(1)), None);
    }
}
