//! The replay socket's part in a stream: histories, repairs, checks.
//!
//! One question is open at a time. A history (`Sync`) and a repair hold live batches back until
//! they are done; a check does not, and drops what came live meanwhile.

use std::time::{Duration, Instant};

use kvasir_inventory::PartialReason;

use super::backlog::Numbered;
use super::{Output, Stream, Why};

/// Times a replay with holes in it is taken up again before the holes are accepted.
const MAX_RESUMES: u32 = 64;
/// Starting over more often than this is slowed down.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The whole history, from 0.
    Sync,
    /// What is missing between the last batch applied and those that wait.
    Repair,
    /// Whether the last batch applied is still the last.
    Check,
}

/// An open question.
#[derive(Debug)]
pub(super) struct Ask {
    purpose: Purpose,
    /// When it is to be sent, or given up.
    pub(super) due: Instant,
    sent: bool,
    /// The batch that has to come first, byte for byte; taken when it did.
    proof: Option<Numbered>,
    /// Answers to this request.
    answers: u64,
    /// Batches applied from this request.
    applied: u64,
    /// A hole was met: the rest of the answers is of no use.
    hole: bool,
    /// The hole this request was meant to close.
    resumed_at: Option<u64>,
    resumes: u32,
    /// Requests without an answer in a row.
    unanswered: u32,
    /// Whether live batches waited before the request was sent.
    pending_before: bool,
}

impl Stream {
    /// An answer of the replay socket.
    pub fn replay_batch(&mut self, now: Instant, seq: u64, payload: Vec<u8>) {
        let timeout = self.config.replay_timeout;
        if self.unasked > 0 {
            return;
        }
        let Some(ask) = self.ask.as_mut().filter(|ask| ask.sent) else { return };
        ask.due = now + timeout;
        ask.answers += 1;
        ask.unanswered = 0;
        self.replay_silent = false;
        self.replay_empty = false;
        if ask.hole {
            return;
        }
        let batch = Numbered::new(seq, payload);
        if let Some(proof) = ask.proof.take() {
            if proof != batch {
                return self.unproven(now, seq == proof.seq);
            }
            if self.life.settle() {
                self.settle(Why::SameLife);
            }
            return;
        }
        let next = self.next_seq();
        if self.last.is_none() {
            self.complete = seq == 0;
            // A check after an empty history found one whose first batches did not come: the
            // picture was exact until now.
            if !self.complete && !self.holds_back() {
                self.partial = PartialReason::LostBatch;
                self.settle(Why::Gap);
            }
        } else if seq < next || (seq > next && !self.step_over_hole(next)) {
            return;
        }
        self.heard_at = Some(now);
        if self.contradicted_by_live(&batch) {
            return self.new_life(now, None);
        }
        self.apply(batch, true);
        if let Some(ask) = &mut self.ask {
            ask.applied += 1;
        }
    }

    /// The replay socket has sent all it has.
    pub fn replay_end(&mut self, now: Instant) {
        if self.unasked == 0 && self.ask.as_ref().is_some_and(|ask| ask.sent) {
            self.stats.replays += 1;
            self.replay_silent = false;
            self.ended(now);
        }
    }

    /// The replay socket sent what is no answer.
    pub fn replay_malformed(&mut self) {
        self.malformed();
    }

    /// Whether the replay socket may help.
    pub(super) fn may_ask(&self) -> bool {
        self.config.replay && !self.replay_empty
    }

    /// Whether live batches must wait.
    pub(super) fn holds_back(&self) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.purpose != Purpose::Check)
    }

    pub(super) fn start_sync(&mut self, now: Instant) {
        let hurried = self.started_over_at.is_some_and(|at| now - at < RESTART_INTERVAL);
        self.restarts_in_a_row = if hurried { self.restarts_in_a_row + 1 } else { 0 };
        self.started_over_at = Some(now);
        let delay = match self.restarts_in_a_row {
            0 => Duration::ZERO,
            again => self.backoff(again - 1),
        };
        self.ask(now, delay, Purpose::Sync);
    }

    pub(super) fn start_repair(&mut self, now: Instant, why: Why) {
        let purpose = if self.last.is_some() { Purpose::Repair } else { Purpose::Sync };
        self.ask(now, Duration::ZERO, purpose);
        self.settle(why);
    }

    pub(super) fn start_check(&mut self, now: Instant) {
        self.ask(now, Duration::ZERO, Purpose::Check);
    }

    fn ask(&mut self, now: Instant, delay: Duration, purpose: Purpose) {
        if self.ask.take().is_some() {
            self.outputs.push_back(Output::Abandon);
        }
        self.ask = Some(Ask {
            purpose,
            due: now + delay,
            sent: false,
            proof: None,
            answers: 0,
            applied: 0,
            hole: false,
            resumed_at: None,
            resumes: 0,
            unanswered: 0,
            pending_before: false,
        });
        if delay.is_zero() {
            self.send(now);
        }
    }

    /// Sends the open question, asking from the last batch applied.
    fn send(&mut self, now: Instant) {
        let from = self.last.as_ref().map_or(0, |last| last.seq);
        let Some(ask) = &mut self.ask else { return };
        ask.proof.clone_from(&self.last);
        ask.sent = true;
        ask.due = now + self.config.replay_timeout;
        ask.answers = 0;
        ask.applied = 0;
        ask.hole = false;
        ask.pending_before = !self.pending.is_empty();
        self.outputs.push_back(Output::Ask(from));
        self.unasked += 1;
    }

    /// The open question's time has come: to be sent, or to be given up.
    pub(super) fn ask_is_due(&mut self, now: Instant) {
        let Some(ask) = &self.ask else { return };
        if !ask.sent {
            return self.send(now);
        }
        self.stats.replay_failures += 1;
        let proved_and_nothing_new = ask.answers == 1 && ask.proof.is_none() && ask.applied == 0;
        let answered_check = ask.purpose == Purpose::Check && ask.answers > 0;
        if !ask.hole && (proved_and_nothing_new || answered_check) {
            // Only the end marker is missing.
            return self.ended(now);
        }
        self.retry(now);
    }

    fn retry(&mut self, now: Instant) {
        let Some(mut ask) = self.ask.take() else { return };
        self.outputs.push_back(Output::Abandon);
        let answered = ask.answers > 0;
        ask.resumes += u32::from(answered);
        ask.unanswered += u32::from(!answered);
        if ask.hole {
            ask.resumed_at = self.last.as_ref().map(|last| last.seq.saturating_add(1));
        }
        let limit = if self.replay_silent { 1 } else { self.config.replay_attempts };
        if ask.unanswered < limit && ask.resumes <= MAX_RESUMES {
            ask.sent = false;
            ask.due = now + self.backoff(ask.unanswered.saturating_sub(1));
            self.ask = Some(ask);
            return;
        }
        if !self.replay_silent {
            tracing::warn!(attempts = ask.unanswered, "replay socket does not answer");
        }
        self.replay_silent = true;
        self.check_at = Some(now + self.slow());
        if ask.purpose != Purpose::Check {
            self.owes_history = true;
            self.give_up(ask.purpose);
        }
    }

    /// Goes on without the replay socket after it failed.
    fn give_up(&mut self, purpose: Purpose) {
        if self.give_up_doubt() {
            return self.drain_unrepaired(Why::ReplaySilent);
        }
        let next = self.next_seq();
        let joined = self.pending.front().is_some_and(|front| front.seq == next);
        if !joined {
            // How much is missing is unknown, and may hold removals.
            self.complete = false;
            if purpose == Purpose::Repair {
                self.partial = PartialReason::LostBatch;
            }
            if !self.pending.is_empty() {
                self.last = None;
            }
            self.forget(Why::ReplaySilent);
        }
        self.drain_unrepaired(Why::ReplaySilent);
    }

    /// All answers to the open question are in.
    fn ended(&mut self, now: Instant) {
        let Some(ask) = &mut self.ask else { return };
        let resumes = ask.resumes;
        match ask.purpose {
            // From a socket that is known to hold nothing, nothing follows.
            Purpose::Check if ask.proof.is_some() && self.replay_empty => self.checked(now),
            _ if ask.proof.is_some() => self.unproven(now, true),
            Purpose::Check if ask.hole => {
                self.stats.gaps += 1;
                self.start_repair(now, Why::Gap);
            }
            Purpose::Check => self.checked(now),
            _ if ask.hole && resumes < MAX_RESUMES => {
                ask.resumed_at = self.last.as_ref().map(|last| last.seq.saturating_add(1));
                self.resume(now);
            }
            _ if ask.answers == 0 => self.nothing_replayed(now),
            _ => self.join(now),
        }
    }

    fn checked(&mut self, now: Instant) {
        self.ask = None;
        self.restarts_in_a_row = 0;
        let pause = if self.replay_empty { self.slow() } else { self.config.idle_check };
        self.check_at = Some(now + self.jittered(pause));
        self.settle(Why::Repaired);
        if !self.complete && self.owes_history {
            self.owes_history = false;
            self.start(now, PartialReason::JoinedLate, Why::Repaired);
        }
    }

    /// A history or repair ended without a single batch.
    fn nothing_replayed(&mut self, now: Instant) {
        let Some(ask) = &self.ask else { return };
        let next = self.next_seq();
        let waiting = self.pending.front().map(|front| front.seq);
        if waiting.is_none_or(|seq| seq == next) {
            // Nothing was published before what waits.
            self.complete = true;
            return self.join(now);
        }
        if !ask.pending_before && ask.resumes < MAX_RESUMES {
            // What waits was published after the answer: ask again.
            return self.resume(now);
        }
        tracing::warn!("replay socket holds none of the published batches; going on without it");
        self.replay_empty = true;
        self.ask = None;
        self.check_at = Some(now + self.slow());
        self.complete = false;
        self.drain_unrepaired(Why::Unrepaired);
    }

    /// Joins the live batches to what was replayed.
    fn join(&mut self, now: Instant) {
        while let Some(front) = self.pending.front() {
            let next = self.next_seq();
            let Some(ask) = &self.ask else { return };
            if front.seq > next {
                let reachable = ask.applied > 0 || !ask.pending_before;
                if reachable && ask.resumes < MAX_RESUMES {
                    return self.resume(now);
                }
                // The publisher itself does not have what is missing.
                self.lose(Why::Unrepaired);
            }
            let Some(batch) = self.pending.pop() else { return };
            if batch.seq >= next {
                self.apply(batch, false);
            } else if !self.replayed.holds(&batch) {
                return self.new_life(now, Some(batch));
            }
        }
        let why = match self.ask.take().map(|ask| ask.purpose) {
            Some(Purpose::Repair) => Why::Repaired,
            _ => Why::Joined,
        };
        self.check_at = Some(now + self.config.settle);
        self.settle(why);
    }

    /// Asks again, from where the answers so far lead.
    fn resume(&mut self, now: Instant) {
        if let Some(ask) = &mut self.ask {
            ask.resumes += 1;
        }
        self.send(now);
    }

    /// Applies what waits, with no way to fill holes.
    pub(super) fn drain_unrepaired(&mut self, why: Why) {
        while let Some(batch) = self.pending.pop() {
            let next = self.next_seq();
            if batch.seq < next {
                if self.replayed.holds(&batch) {
                    continue;
                }
                self.stats.restarts += 1;
                self.last = None;
                self.poisoned = false;
                self.complete = false;
                self.partial = PartialReason::JoinedLate;
                self.forget(Why::Restart);
            }
            if self.last.is_none() {
                self.complete = batch.seq == 0;
            } else if batch.seq > next {
                self.lose(Why::Unrepaired);
            }
            self.apply(batch, false);
        }
        self.settle(why);
    }

    /// The publisher does not confirm the last batch applied.
    fn unproven(&mut self, now: Instant, other_life: bool) {
        if other_life {
            self.stats.restarts += 1;
            if self.pending.is_empty() {
                self.last_live = None;
            }
            self.start(now, PartialReason::JoinedLate, Why::Restart);
        } else {
            // It may only have fallen out of the publisher's buffer.
            self.start(now, PartialReason::LostBatch, Why::Unrepaired);
        }
    }

    /// Whether a hole before `seq` has to be accepted; if not, the rest of the answers is skipped
    /// and the hole asked for again.
    fn step_over_hole(&mut self, next: u64) -> bool {
        let Some(ask) = &mut self.ask else { return false };
        let persists = ask.resumed_at == Some(next) || ask.resumes >= MAX_RESUMES;
        if ask.purpose == Purpose::Check || !persists {
            ask.hole = true;
            return false;
        }
        self.lose(Why::Unrepaired);
        true
    }

    /// Drops live copies of a replayed batch and older; whether one of them says something else.
    fn contradicted_by_live(&mut self, batch: &Numbered) -> bool {
        while self.pending.front().is_some_and(|front| front.seq <= batch.seq) {
            if self.pending.pop().is_some_and(|live| live.seq == batch.seq && live != *batch) {
                return true;
            }
        }
        false
    }

    /// The time between checks of a replay socket that is of no use.
    fn slow(&self) -> Duration {
        self.config.backoff_max.max(self.config.idle_check)
    }

    /// The delay after `failures` failures, spread by half.
    fn backoff(&mut self, failures: u32) -> Duration {
        let delay = self.config.backoff_min.saturating_mul(1 << failures.min(16));
        self.jittered(delay.min(self.config.backoff_max))
    }

    /// Between half of `delay` and all of it.
    fn jittered(&mut self, delay: Duration) -> Duration {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let share = (self.jitter >> 40) as u32 & 0xffff;
        delay / 2 + delay.saturating_mul(share) / 0x1_0000 / 2
    }
}
