//! The life of one event stream, without sockets: sequence numbers, lives, replay, trust.
//!
//! [`Stream`] is fed what happens (connections, live batches, answers of the replay socket, time)
//! and puts out [`Output`]s: updates for the picture of the cache, and questions for the replay
//! socket. The rules:
//!
//! - A connection starts from nothing. With a replay socket the history is asked for from 0 while
//!   live batches wait; a history that begins at 0, or a publisher that has published nothing, is
//!   `Exact`, a shorter one `Partial(joined_late)`. Without one it is `Partial(joined_late)` until
//!   the cache is emptied, unless the first live batch is number 0.
//! - A lost connection puts the life in doubt: nothing is credited until the next connection shows
//!   that the publisher is still the same (see `life`), else everything is forgotten.
//! - A number that goes back, or the last number with other bytes, is a new life: forget, start
//!   over. The last batch repeated byte for byte is dropped.
//! - A gap is repaired from the replay socket, asking from the last batch applied, whose bytes
//!   prove the life. What cannot be reached is lost: forget, go on as `Partial(lost_batch)`.
//! - A batch is applied only as the successor of the one before, so nothing replayed can revive
//!   what a later batch removed.
//! - When nothing comes, the last batch is asked for now and then: its bytes prove the life, and
//!   anything after it was lost on the way and is applied.
//! - A known event that cannot be decoded means that the engine is not understood: forget, and
//!   `Suspect(schema)` until it empties its cache, starts a new life or reconnects.
//! - A second publisher on the same endpoint: nobody knows whose batch comes. Forget, take no batch,
//!   `Suspect(crowded)` until the connection is lost or made anew.
//!
//! An engine that empties its cache makes the picture `Exact`: nothing unknown is left.

mod asking;
mod backlog;
mod config;
mod life;
#[cfg(test)]
mod tests;
mod update;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use kvasir_inventory::{AbsentReason, PartialReason, SuspectReason, Trust};

use self::asking::Ask;
use self::backlog::{Numbered, Pending, Replayed};
pub use self::config::StreamConfig;
use self::life::Life;
pub use self::update::{Update, Why};
use crate::event::Event;
use crate::stats::StreamStats;
use crate::wire;

/// What a stream wants done, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Hand this on.
    Update(Update),
    /// Ask the replay socket for everything from this number on, dropping what a question before
    /// may still bring.
    Ask(u64),
    /// No answer is wanted any more.
    Abandon,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down(AbsentReason),
    Up,
    /// Two publishers on an endpoint that follows one.
    Crowded,
}

/// The state of one event stream.
#[derive(Debug)]
pub struct Stream {
    config: StreamConfig,
    link: Link,
    trust: Trust,
    /// Whether nothing before what is known can be missing.
    complete: bool,
    /// Why not, if so.
    partial: PartialReason,
    /// A known event could not be decoded.
    poisoned: bool,
    life: Life,
    last: Option<Numbered>,
    last_live: Option<Numbered>,
    replayed: Replayed,
    pending: Pending,
    ask: Option<Ask>,
    /// Questions among the outputs: until they are taken, answers are to earlier ones.
    unasked: u32,
    /// The replay socket has proved empty in spite of published batches.
    replay_empty: bool,
    /// The replay socket did not answer the last time.
    replay_silent: bool,
    /// A history was given up while the replay socket was silent.
    owes_history: bool,
    check_at: Option<Instant>,
    /// Where the first event since the connection that could not be decoded is wrong.
    schema_error: Option<Arc<str>>,
    /// Starts over since the last quiet time.
    restarts_in_a_row: u32,
    started_over_at: Option<Instant>,
    heard_at: Option<Instant>,
    jitter: u64,
    stats: StreamStats,
    outputs: VecDeque<Output>,
}

impl Stream {
    /// A stream that is not connected yet. `seed` spreads the delays of many streams.
    #[must_use]
    pub fn new(config: StreamConfig, seed: u64) -> Self {
        let mut stream = Self {
            config,
            link: Link::Down(AbsentReason::Connecting),
            trust: Trust::Absent(AbsentReason::Connecting),
            complete: false,
            partial: PartialReason::JoinedLate,
            poisoned: false,
            life: Life::default(),
            last: None,
            last_live: None,
            replayed: Replayed::default(),
            pending: Pending::new(config.pending_batches, config.pending_bytes),
            ask: None,
            unasked: 0,
            replay_empty: false,
            replay_silent: false,
            owes_history: false,
            check_at: None,
            schema_error: None,
            restarts_in_a_row: 0,
            started_over_at: None,
            heard_at: None,
            jitter: seed | 1,
            stats: StreamStats::default(),
            outputs: VecDeque::new(),
        };
        stream.forget(Why::Start);
        stream
    }

    /// The oldest output not taken yet.
    pub fn next_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if let Some(Output::Ask(_)) = output {
            self.unasked = self.unasked.saturating_sub(1);
        }
        output
    }

    /// How far the stream can be believed now.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// The counters, and when the last batch was heard.
    #[must_use]
    pub fn stats(&self) -> (StreamStats, Option<Instant>) {
        let last_seq = self.last.as_ref().map(|last| last.seq);
        let (trust, witnessed) = (self.trust, self.life.is_witnessed());
        (StreamStats { trust, witnessed, last_seq, ..self.stats }, self.heard_at)
    }

    /// Where the first event since the connection that could not be decoded is wrong, and how.
    #[must_use]
    pub fn schema_error(&self) -> Option<&Arc<str>> {
        self.schema_error.as_ref()
    }

    /// When [`Stream::tick`] wants to be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.ask {
            Some(ask) => Some(ask.due),
            None if self.config.replay => self.check_at,
            // Without a replay socket there is nobody to ask.
            None => self.life.deadline(),
        }
    }

    /// A connection to the publisher was made.
    pub fn connected(&mut self, now: Instant) {
        self.link = Link::Up;
        self.replay_empty = false;
        self.replay_silent = false;
        self.started_over_at = None;
        self.schema_error = None;
        if self.last.is_some() {
            return self.doubt(now);
        }
        self.reset();
        self.owes_history = false;
        self.start(now, PartialReason::JoinedLate, Why::Connected);
    }

    /// The connection was lost.
    pub fn disconnected(&mut self) {
        if matches!(self.link, Link::Down(_)) {
            return;
        }
        self.stats.disconnects += 1;
        self.link = Link::Down(AbsentReason::Disconnected);
        if self.may_be_proved() {
            self.suspend();
            self.settle(Why::Disconnected);
        } else {
            self.reset();
            self.forget(Why::Disconnected);
        }
    }

    /// A second publisher connected: whose batches come is unknown until one of them leaves.
    pub fn crowded(&mut self) {
        self.link = Link::Crowded;
        self.reset();
        self.forget(Why::TwoPublishers);
    }

    /// A message came that is no batch. If it was meant to be one, the next number tells.
    pub fn malformed(&mut self) {
        self.stats.malformed_messages += 1;
        if self.stats.malformed_messages == 1 {
            tracing::warn!("message that is no batch of events; counted from now on");
        }
    }

    /// A batch was published.
    pub fn live(&mut self, now: Instant, seq: u64, payload: Vec<u8>) {
        match self.link {
            Link::Up => {}
            // Whatever the monitor missed: a batch proves a connection.
            Link::Down(_) => self.connected(now),
            Link::Crowded => return,
        }
        self.heard_at = Some(now);
        if !(self.replay_silent || self.replay_empty) || self.check_at.is_none() {
            self.check_at = Some(now + self.config.idle_check);
        }
        let batch = Numbered::new(seq, payload);
        if let Some(before) = &self.last_live {
            if *before == batch {
                self.stats.duplicates += 1;
                return;
            }
            if seq <= before.seq {
                return self.new_life(now, Some(batch));
            }
        }
        self.last_live = Some(batch.clone());
        if self.holds_back() {
            self.stats.overflows += self.pending.push(batch);
        } else {
            self.follow(now, batch);
        }
    }

    /// Time passed: sends what is due, gives up what is overdue.
    pub fn tick(&mut self, now: Instant) {
        if self.ask.as_ref().is_some_and(|ask| ask.due <= now) {
            self.ask_is_due(now);
        } else if self.ask.is_none()
            && self.config.replay
            && self.check_at.is_some_and(|at| at <= now)
        {
            self.start_check(now);
        } else if !self.config.replay && self.life.deadline().is_some_and(|at| at <= now) {
            self.start(now, PartialReason::JoinedLate, Why::Unproven);
        }
    }

    /// Applies a live batch that nothing has to wait for.
    fn follow(&mut self, now: Instant, batch: Numbered) {
        let next = self.next_seq();
        if batch.seq < next {
            // Above the last live number, so a replay was faster than the live copy.
            if !self.replayed.holds(&batch) {
                self.new_life(now, Some(batch));
            }
        } else if batch.seq == next {
            let first = self.last.is_none();
            self.complete |= first;
            self.apply(batch, false);
            let why = if first { Why::FromStart } else { Why::Cleared };
            let why = if self.life.continues() { Why::SameLife } else { why };
            self.settle(why);
        } else if self.last.is_none() && !self.may_ask() {
            self.apply(batch, false);
            self.settle(Why::Cleared);
        } else {
            self.gap(now, batch);
        }
    }

    fn gap(&mut self, now: Instant, batch: Numbered) {
        self.stats.gaps += 1;
        if self.may_ask() {
            self.stats.overflows += self.pending.push(batch);
            self.start_repair(now, Why::Gap);
        } else {
            self.lose(Why::Gap);
            self.apply(batch, false);
            self.settle(Why::Cleared);
        }
    }

    /// The publisher is not the one the picture is of. `batch` is the live batch that told.
    fn new_life(&mut self, now: Instant, batch: Option<Numbered>) {
        self.stats.restarts += 1;
        self.reset();
        self.last_live.clone_from(&batch);
        if let Some(batch) = batch {
            self.pending.push(batch);
        }
        self.start(now, PartialReason::JoinedLate, Why::Restart);
    }

    /// Starts from nothing: from the replay socket if there is one, else from what comes live.
    fn start(&mut self, now: Instant, reason: PartialReason, why: Why) {
        self.complete = false;
        self.partial = reason;
        self.poisoned = false;
        self.life = Life::of(now);
        self.last = None;
        self.replayed.clear();
        if self.may_ask() {
            self.start_sync(now);
            self.forget(why);
        } else {
            self.forget(why);
            self.drain_unrepaired(Why::FromStart);
        }
    }

    /// Decodes and hands on the successor of everything before.
    fn apply(&mut self, batch: Numbered, replayed: bool) {
        match wire::decode(&batch.payload) {
            Ok(decoded) => {
                let cleared = decoded.events.iter().any(|e| matches!(e, Event::Cleared));
                if cleared {
                    self.complete = true;
                    self.poisoned = false;
                }
                self.stats.unknown_events += u64::from(decoded.unknown_events);
                if !self.poisoned {
                    self.stats.batches += 1;
                    self.stats.replayed_batches += u64::from(replayed);
                    self.stats.events += decoded.events.len() as u64;
                    let payload = Arc::clone(&batch.payload);
                    let update =
                        Update::Batch { seq: batch.seq, replayed, batch: decoded, payload };
                    self.outputs.push_back(Output::Update(update));
                }
            }
            Err(error) => {
                self.stats.schema_errors += 1;
                self.schema_error.get_or_insert_with(|| error.cause().into());
                if !self.poisoned {
                    tracing::warn!(seq = batch.seq, %error, "event that cannot be decoded");
                    self.poisoned = true;
                    self.complete = false;
                    self.forget(Why::Schema);
                }
            }
        }
        if replayed {
            self.replayed.push(&batch);
        } else {
            self.replayed.clear();
        }
        self.last = Some(batch);
    }

    /// A batch is lost for good: what was stored may be gone.
    fn lose(&mut self, why: Why) {
        self.complete = false;
        self.partial = PartialReason::LostBatch;
        // Nothing is left that could be of another life.
        self.life.settle();
        self.forget(why);
    }

    /// Drops what is known of the publisher's life, keeping the link.
    fn reset(&mut self) {
        self.suspend();
        self.last = None;
        self.complete = false;
        self.poisoned = false;
        self.partial = PartialReason::JoinedLate;
    }

    /// Drops what is under way, keeping the picture.
    fn suspend(&mut self) {
        if self.ask.take().is_some() {
            self.outputs.push_back(Output::Abandon);
        }
        self.pending.clear();
        self.replayed.clear();
        self.last_live = None;
        self.check_at = None;
    }

    fn next_seq(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.seq.saturating_add(1))
    }

    fn current_trust(&self) -> Trust {
        match self.link {
            Link::Down(reason) => Trust::Absent(reason),
            Link::Crowded => Trust::Suspect(SuspectReason::Crowded),
            Link::Up if self.poisoned => Trust::Suspect(SuspectReason::Schema),
            Link::Up if self.life.in_doubt() => Trust::Suspect(SuspectReason::LifeInDoubt),
            Link::Up if self.holds_back() => Trust::CatchingUp,
            Link::Up if self.complete => Trust::Exact,
            Link::Up => Trust::Partial(self.partial),
        }
    }

    fn forget(&mut self, why: Why) {
        self.trust = self.current_trust();
        tracing::info!(trust = %self.trust, %why, "forgetting blocks");
        self.outputs.push_back(Output::Update(Update::Forget { trust: self.trust, why }));
    }

    /// Tells the trust if it changed.
    fn settle(&mut self, why: Why) {
        let trust = self.current_trust();
        if trust != self.trust {
            tracing::info!(%trust, %why, "trust changed");
            self.trust = trust;
            self.outputs.push_back(Output::Update(Update::Trust { trust, why }));
        }
    }
}
