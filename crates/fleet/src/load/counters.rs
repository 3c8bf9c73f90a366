//! What one endpoint has in hand, as counters that many requests change and every choice reads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kvasir_balance::RecentWork;
use parking_lot::Mutex;

use super::Work;

/// What this gateway has sent to one endpoint and not seen finished. Changed by
/// [`Reservation`](super::Reservation)s only.
#[derive(Debug)]
pub(crate) struct LoadCounters {
    /// Changed under the lock of `hand`, read without it.
    in_flight: AtomicU32,
    /// Ever sent.
    sent: AtomicU32,
    hand: Mutex<Hand>,
    /// When the clock of the recent work began.
    began: Instant,
}

#[derive(Debug, Default)]
struct Hand {
    recent: RecentWork,
    /// Requests whose prefill is not over, and the tokens they have to compute.
    prefilling: u32,
    queued: u64,
    /// Tokens of requests whose answer has not begun, whatever was predicted of them.
    unanswered: u64,
    /// When the prefill of answers that come as a whole is over, as predicted, with its tokens: one
    /// entry a request at most. What is due is taken out whenever the load is looked at.
    due: BTreeMap<Due, u64>,
    next: u64,
}

/// A request's place among those whose prefill ends by prediction.
type Due = (Instant, u64);

/// One request's part in the counters.
#[derive(Debug)]
pub(super) struct Part {
    /// Whether nothing else waited for its answer to begin.
    pub(super) alone: bool,
    due: Option<Due>,
}

/// An endpoint's load at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LoadNow {
    /// Requests sent and not finished.
    pub(crate) in_flight: u32,
    /// Those of them whose prefill is over: the endpoint generates for them.
    pub(crate) decoding: u32,
    /// Tokens that the others have to compute.
    pub(crate) queued_prefill_tokens: u64,
    /// [`RecentWork::get`] and [`RecentWork::missing`].
    pub(crate) recent: (f64, f64),
}

impl Default for LoadCounters {
    fn default() -> Self {
        let (in_flight, sent) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { in_flight, sent, hand: Mutex::default(), began: Instant::now() }
    }
}

impl LoadCounters {
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Requests ever sent; begins anew beyond its range.
    pub(crate) fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn at(&self, now: Instant) -> LoadNow {
        let age = self.age(now);
        let mut hand = self.hand.lock();
        hand.expire(now);
        let in_flight = self.in_flight();
        LoadNow {
            in_flight,
            decoding: in_flight.saturating_sub(hand.prefilling),
            queued_prefill_tokens: hand.queued,
            recent: (hand.recent.get(age), hand.recent.missing(age)),
        }
    }

    /// The engine is another one, or begins anew.
    pub(crate) fn reset_recent_work(&self) {
        let age = self.age(Instant::now());
        self.hand.lock().recent = RecentWork::new(age);
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// A request is sent there.
    pub(super) fn add(&self, work: Work, now: Instant) -> Part {
        let age = self.age(now);
        let ends = work.prefill_ends_after.and_then(|after| now.checked_add(after));
        let mut hand = self.hand.lock();
        let alone = hand.unanswered == 0;
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(1, Ordering::Relaxed);
        hand.recent.add(work.computed, work.prompt, age);
        hand.unanswered += work.computed;
        hand.queued += work.computed;
        hand.prefilling += 1;
        let due = ends.map(|at| (at, hand.next));
        if let Some(due) = due {
            hand.next += 1;
            hand.due.insert(due, work.computed);
        }
        Part { alone, due }
    }

    /// It has this to compute after all, of which nothing was known when it was sent. To be said before
    /// its answer begins.
    pub(super) fn grows(&self, work: Work, part: &mut Part, now: Instant) {
        let (age, computed) = (self.age(now), work.computed);
        let ends = work.prefill_ends_after.and_then(|after| now.checked_add(after));
        let mut hand = self.hand.lock();
        part.alone = hand.unanswered == 0;
        hand.recent.add(computed, 0, age);
        hand.unanswered += computed;
        hand.queued += computed;
        // What ended by prediction begins again.
        if part.due.take().is_some_and(|due| hand.due.remove(&due).is_none()) {
            hand.prefilling += 1;
        }
        part.due = ends.map(|at| (at, hand.next));
        if let Some(due) = part.due {
            hand.next += 1;
            hand.due.insert(due, computed);
        }
    }

    /// Its prefill is over then, as predicted. To be said before its answer begins; only the first time
    /// counts.
    pub(super) fn prefill_ends(&self, work: Work, part: &mut Part, at: Instant) {
        if part.due.is_some() {
            return;
        }
        let mut hand = self.hand.lock();
        let due = (at, hand.next);
        hand.next += 1;
        hand.due.insert(due, work.computed);
        part.due = Some(due);
    }

    /// Its answer begins, or will not. To be said once.
    pub(super) fn answered(&self, work: Work, part: &Part) {
        let mut hand = self.hand.lock();
        hand.unanswered -= work.computed;
        // What ended by prediction is not there any more.
        if part.due.is_none_or(|due| hand.due.remove(&due).is_some()) {
            hand.ended(work.computed);
        }
    }

    /// It is over. To be said once, after its answer began or will not.
    pub(super) fn finished(&self) {
        let _hand = self.hand.lock();
        // Read by who waits without the lock.
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// It was not computed after all.
    pub(super) fn take_back(&self, work: Work, since: Instant) {
        let (since, now) = (self.age(since), self.age(Instant::now()));
        self.hand.lock().recent.take_back(work.computed, work.prompt, since, now);
    }
}

impl Hand {
    fn ended(&mut self, tokens: u64) {
        self.queued -= tokens;
        self.prefilling -= 1;
    }

    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.due.first_entry()
            && first.key().0 <= now
        {
            let tokens = first.remove();
            self.ended(tokens);
        }
    }
}

#[cfg(test)]
mod tests;
