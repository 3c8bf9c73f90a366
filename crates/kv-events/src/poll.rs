//! TensorRT-LLM's events, which are not published but fetched: each answer takes them away, so only
//! one consumer can know all of them.
//!
//! A [`PollStream`] is fed answers and failures and yields the same [`Update`]s as a subscriber, for
//! each attention data-parallel rank. The rules:
//!
//! - Each rank numbers its events from 0. A number too high means that events were dropped or taken
//!   by somebody else: everything is forgotten, `Partial(lost_batch)`. A lower one is a new life.
//! - `created` empties the cache: from then on, and from number 0 on, the picture is `Exact`; from a
//!   later number it is `Partial(joined_late)`.
//! - A failed question may have taken events with it, or the engine is another: nothing is credited
//!   until the next event turns out to be the successor of the last.
//! - A known event that is malformed is `Suspect(schema)`, until a cache is created.
//! - Blocks with fewer tokens than the engine's blocks have are never credited. How many those are is
//!   learned from a block that has a successor; until then events wait.

mod json;
mod rank;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use kvasir_inventory::{AbsentReason, Trust};

pub use self::json::{Change, PollError, Polled, PolledBlock, decode_polled};
use self::rank::RankPoll;
use crate::stream::{Update, Why};
use crate::subscriber::StatsHandle;

/// An update, and the rank it is for.
pub type RankUpdate = (u32, Update);

/// The events of one engine, by rank; knows no HTTP.
#[derive(Debug)]
pub struct PollStream {
    ranks: BTreeMap<u32, RankPoll>,
    /// Events of a rank came that nobody told of.
    stranger: bool,
}

impl PollStream {
    /// A stream of an engine with these ranks, and what it has to say at first.
    #[must_use]
    pub fn new(ranks: &[u32]) -> (Self, Vec<RankUpdate>) {
        let stream = Self {
            ranks: ranks.iter().map(|rank| (*rank, RankPoll::default())).collect(),
            stranger: false,
        };
        let start =
            Update::Forget { trust: Trust::Absent(AbsentReason::Connecting), why: Why::Start };
        let updates = stream.ranks.keys().map(|rank| (*rank, start.clone())).collect();
        (stream, updates)
    }

    /// The counters of one rank's stream: as a subscriber's, but nothing can be replayed. A
    /// disconnect is a question that failed after one that did not.
    #[must_use]
    pub fn stats(&self, rank: u32) -> Option<StatsHandle> {
        self.ranks.get(&rank).map(RankPoll::stats)
    }

    /// The engine answered.
    pub fn answered(&mut self, body: &[u8]) -> Vec<RankUpdate> {
        let mut updates = Vec::new();
        match decode_polled(body) {
            Ok(events) => {
                self.each(&mut updates, RankPoll::connected);
                for event in events {
                    match self.ranks.get_mut(&event.rank) {
                        Some(rank) => rank.take(&event),
                        None => {
                            if !std::mem::replace(&mut self.stranger, true) {
                                tracing::error!(rank = event.rank, "events of an unknown rank");
                            }
                        }
                    }
                }
                let stranger = self.stranger;
                let now = Instant::now();
                self.each(&mut updates, |rank| rank.finish(stranger, now));
            }
            Err(error) => {
                tracing::warn!(%error, "cache events lost");
                self.each(&mut updates, RankPoll::garbled);
            }
        }
        updates
    }

    /// A question failed: events may be lost, or the engine is gone.
    pub fn failed(&mut self) -> Vec<RankUpdate> {
        let mut updates = Vec::new();
        self.each(&mut updates, RankPoll::failed);
        updates
    }

    /// The engine has no such path.
    pub fn refused(&mut self) -> Vec<RankUpdate> {
        let mut updates = Vec::new();
        self.each(&mut updates, RankPoll::refused);
        updates
    }

    fn each(&mut self, updates: &mut Vec<RankUpdate>, mut act: impl FnMut(&mut RankPoll)) {
        for (number, rank) in &mut self.ranks {
            act(rank);
            rank.publish();
            updates.extend(rank.take_updates().map(|update| (*number, update)));
        }
    }
}
