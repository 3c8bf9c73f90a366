//! Whether a publisher is still in the life the picture is of, after its connection was lost.
//!
//! The first witness is the replay socket: it confirms the last batch applied byte for byte, or the
//! life is another. Where there is none, the second witness decides: the engine's process started
//! when it did before, and the next batch is the successor of the last one. Until then the blocks
//! are kept and not credited.

use std::time::Instant;

use kvasir_inventory::PartialReason;

use super::{Link, Stream, Why};

/// What is known of the publisher's life.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// When it was first followed; `None` before any was.
    since: Option<Instant>,
    /// When the engine's process started, as it says itself: the bits of a number of seconds.
    process: Option<u64>,
    doubt: Option<Doubt>,
}

/// A life that may be over.
#[derive(Debug)]
struct Doubt {
    /// When the new connection was made: what was asked before says nothing.
    since: Instant,
    /// When it is given up, unless the second witness has spoken.
    due: Instant,
    same_process: bool,
    /// The first batch of the new connection followed the last one of the old.
    continued: bool,
}

impl Life {
    /// One that is followed from now on.
    pub(super) fn of(now: Instant) -> Self {
        Self { since: Some(now), ..Self::default() }
    }

    pub(super) fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    pub(super) fn is_witnessed(&self) -> bool {
        self.process.is_some()
    }

    /// When a doubt is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.doubt.as_ref().filter(|doubt| !doubt.same_process).map(|doubt| doubt.due)
    }

    /// It is the same; whether that was in doubt.
    pub(super) fn settle(&mut self) -> bool {
        self.doubt.take().is_some()
    }

    /// The successor of the last batch was applied; whether that ends a doubt.
    pub(super) fn continues(&mut self) -> bool {
        let Some(doubt) = &mut self.doubt else { return false };
        doubt.continued = true;
        doubt.same_process && self.settle()
    }
}

impl Stream {
    /// The engine says when its process started, in seconds since the epoch
    /// (`process_start_time_seconds` of its metrics), in an answer to a question of `asked`. To be
    /// called whenever it says so: another number is another life, and the same number can prove a
    /// life where there is no replay socket.
    pub fn process_started(&mut self, now: Instant, asked: Instant, seconds: f64) {
        let number = seconds.to_bits();
        match self.life.process {
            None => {
                if self.life.since.is_some_and(|since| since <= asked) {
                    self.life.process = Some(number);
                }
            }
            Some(known) if known != number => self.replaced(now),
            Some(_) => {
                let Some(doubt) = &mut self.life.doubt else { return };
                if doubt.since > asked {
                    return;
                }
                doubt.same_process = true;
                if doubt.continued && !self.config.replay && self.life.settle() {
                    self.settle(Why::SameLife);
                }
            }
        }
    }

    /// Another process runs in place of the one the picture is of.
    fn replaced(&mut self, now: Instant) {
        match self.link {
            Link::Up => self.new_life(now, None),
            Link::Down(_) if self.last.is_some() => {
                self.stats.restarts += 1;
                self.reset();
                self.life = Life::default();
                self.forget(Why::Restart);
            }
            Link::Down(_) | Link::Crowded => self.life = Life::default(),
        }
    }

    /// Whether a later connection can show that the life goes on.
    pub(super) fn may_be_proved(&self) -> bool {
        let witness = self.config.replay || self.life.process.is_some();
        witness && self.last.is_some() && !self.poisoned
    }

    /// A connection was made to what may be another publisher than that of the picture.
    pub(super) fn doubt(&mut self, now: Instant) {
        let due = now + self.config.witness_timeout;
        self.life.doubt = Some(Doubt { since: now, due, same_process: false, continued: false });
        if self.may_ask() {
            self.start_repair(now, Why::Connected);
        } else {
            self.settle(Why::Connected);
        }
    }

    /// The replay socket does not answer and cannot prove a life in doubt: it is given up.
    pub(super) fn give_up_doubt(&mut self) -> bool {
        if !self.life.settle() {
            return false;
        }
        self.last = None;
        self.complete = false;
        self.partial = PartialReason::JoinedLate;
        self.forget(Why::ReplaySilent);
        true
    }
}
