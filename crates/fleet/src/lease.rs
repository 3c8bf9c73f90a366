//! Blocks that a prefill engine keeps for decode legs: counted until a decode leg has fetched them, or
//! the engine lets go of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::endpoint::Endpoint;

/// The most that one endpoint is known to keep: what was given up on counts until its end, and a lease
/// may be long.
const MOST: usize = 1 << 16;
/// What is kept back of a lease, for the way of the decode leg and what clocks differ: a tenth, and
/// at least this.
const LEAST_MARGIN: Duration = Duration::from_secs(1);

/// The leases of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Held>);

/// By its end; one entry a request at most.
type Entry = (Instant, u64);

#[derive(Debug, Default)]
struct Held {
    /// What is over is taken out whenever it is looked at.
    live: BTreeMap<Entry, State>,
    next: u64,
    expired: u64,
    abandoned: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody is known to fetch it yet.
    Kept,
    /// A decode leg was sent for it, whose fetching shows only at the end of its answer.
    Sent,
    /// Nobody will go on from it, as far as is known; the engine has it until its end.
    Abandoned,
}

/// How many leases there are, and what became of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseCounts {
    pub(crate) live: usize,
    /// They ended while a decode leg was still to fetch them.
    pub(crate) expired: u64,
    /// They ended, and nobody had come for them or whoever did is not known to have fetched them.
    pub(crate) abandoned: u64,
}

/// Blocks of one prompt that a prefill engine keeps. [`fetched`](Self::fetched) ends it; where it is
/// dropped without, the engine keeps them all the same: it counts until its end, as abandoned then.
/// Held beyond its end, it counts as expired.
#[derive(Debug)]
pub struct Lease {
    endpoint: Arc<Endpoint>,
    entry: Entry,
    /// Until when a decode leg may be sent for it.
    usable: Instant,
}

impl Lease {
    pub(crate) fn new(endpoint: Arc<Endpoint>, time: Duration, since: Instant) -> Self {
        let entry = endpoint.leases().add(time, since, Instant::now());
        let margin = (time / 10).max(LEAST_MARGIN);
        let usable = entry.0.checked_sub(margin).unwrap_or(since);
        Self { endpoint, entry, usable }
    }

    /// The endpoint that keeps the blocks.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether the engine still keeps them, by the time it said it would, for long enough that a
    /// decode leg finds them: what is over may hold another prompt by now, and engines do not notice.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.usable > Instant::now()
    }

    /// A decode leg is sent for the blocks now, or (`false`) was not after all. `true` where its
    /// fetching does not show when it is done: an end meanwhile says nothing.
    pub fn set_sent(&self, sent: bool) {
        let state = if sent { State::Sent } else { State::Kept };
        self.endpoint.leases().set(self.entry, state);
    }

    /// The decode leg has them: its first data came. The engine lets go of them.
    pub fn fetched(self) {
        self.endpoint.leases().fetched(self.entry);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // One that came to its end unused stays one that was too short.
        if self.is_live() || self.endpoint.leases().is_sent(self.entry) {
            self.endpoint.leases().set(self.entry, State::Abandoned);
        }
    }
}

impl Leases {
    fn add(&self, time: Duration, since: Instant, now: Instant) -> Entry {
        let mut held = self.0.lock();
        held.expire(now);
        if held.live.len() >= MOST {
            held.end_first();
        }
        let entry = (since.checked_add(time).unwrap_or(since), held.next);
        held.next += 1;
        held.live.insert(entry, State::Kept);
        entry
    }

    fn set(&self, entry: Entry, state: State) {
        let mut held = self.0.lock();
        held.expire(Instant::now());
        if let Some(known) = held.live.get_mut(&entry) {
            *known = state;
        }
    }

    fn is_sent(&self, entry: Entry) -> bool {
        self.0.lock().live.get(&entry) == Some(&State::Sent)
    }

    fn fetched(&self, entry: Entry) {
        let mut held = self.0.lock();
        held.expire(Instant::now());
        held.live.remove(&entry);
    }

    pub(crate) fn count(&self, now: Instant) -> LeaseCounts {
        let mut held = self.0.lock();
        held.expire(now);
        LeaseCounts { live: held.live.len(), expired: held.expired, abandoned: held.abandoned }
    }
}

impl Held {
    fn expire(&mut self, now: Instant) {
        while self.live.first_key_value().is_some_and(|(entry, _)| entry.0 <= now) {
            self.end_first();
        }
    }

    /// The one that ends first is over.
    fn end_first(&mut self) {
        match self.live.pop_first().map(|(_, state)| state) {
            Some(State::Kept) => self.expired += 1,
            Some(State::Abandoned) => self.abandoned += 1,
            Some(State::Sent) | None => {}
        }
    }
}
