//! Blocks that a prefill engine keeps for decode legs: counted from the end of the prefill leg until
//! the decode leg has fetched them, or the engine lets go of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::endpoint::Endpoint;

/// The leases of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// By their ends; one entry a request at most. What is over is taken out whenever it is looked at.
    live: BTreeSet<(Instant, u64)>,
    next: u64,
    expired: u64,
}

/// Blocks of one prompt that a prefill engine keeps. Dropped when the decode leg has them (its first
/// data came) or will never fetch them; held for longer than the engine keeps them, it counts as
/// expired.
#[derive(Debug)]
pub struct Lease {
    endpoint: Arc<Endpoint>,
    entry: (Instant, u64),
}

impl Lease {
    pub(crate) fn new(endpoint: Arc<Endpoint>, time: Duration, now: Instant) -> Self {
        let entry = endpoint.leases().add(time, now);
        Self { endpoint, entry }
    }

    /// The endpoint that keeps the blocks.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether the engine still keeps them, by the time it said it would.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.entry.0 > Instant::now()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.endpoint.leases().release(self.entry, Instant::now());
    }
}

impl Leases {
    fn add(&self, time: Duration, now: Instant) -> (Instant, u64) {
        let mut held = self.0.lock();
        held.expire(now);
        let entry = (now.checked_add(time).unwrap_or(now), held.next);
        held.next += 1;
        held.live.insert(entry);
        entry
    }

    fn release(&self, entry: (Instant, u64), now: Instant) {
        let mut held = self.0.lock();
        held.expire(now);
        held.live.remove(&entry);
    }

    /// How many there are, and how many ever expired.
    pub(crate) fn count(&self, now: Instant) -> (usize, u64) {
        let mut held = self.0.lock();
        held.expire(now);
        (held.live.len(), held.expired)
    }
}

impl Held {
    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.live.first().copied()
            && first.0 <= now
        {
            self.live.remove(&first);
            self.expired += 1;
        }
    }
}
