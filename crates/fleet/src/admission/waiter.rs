//! One request on its way through a queue: it enters, tries when it is called, comes back to its place
//! where that was in vain, and leaves, however that comes.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use tokio::sync::oneshot;

use super::queue::{Place, Waiting};
use super::{Admission, Asker, NoRoom, TurnedAway, WAITING};

/// How many that can do nothing with room pass it on at one bell: each of them costs a choice. The
/// next bell goes on behind them, so that everybody's turn comes.
pub(super) const MAX_PASSES: u64 = 64;
/// So many may be served before one that found too little room for itself; then what becomes free
/// is kept for it.
pub(super) const MAX_OVERTAKEN: u64 = 32;

/// One that waits. However it ends, its place is free.
pub(super) struct Waiter<'a> {
    admission: &'a Admission,
    asker: Asker,
    place: Option<Place>,
    came: Duration,
    /// The last bell it knows of.
    heard: u64,
    /// How many had been served when it first found too little room.
    failed_at: Option<u64>,
    /// What became of its last attempt.
    tried: Tried,
    /// What became of it is counted.
    ended: bool,
    /// It was called and served: it has no place any more.
    has_left: bool,
}

/// What came of an attempt in vain, for those behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    No,
    /// They may have better luck, and are tried first until the next bell.
    Passed,
    /// There is no room for anybody.
    Full,
    /// What room there is, is kept for it.
    Keeps,
}

impl<'a> Waiter<'a> {
    pub(super) fn new(admission: &'a Admission, asker: Asker) -> Self {
        WAITING.fetch_add(1, Ordering::SeqCst);
        admission.waiting.fetch_add(1, Ordering::SeqCst);
        // From here on bells are rung; what was set free before them is seen by the next attempt.
        fence(Ordering::SeqCst);
        let heard = admission.bells.load(Ordering::SeqCst);
        let came = admission.now();
        Self {
            admission,
            asker,
            place: None,
            came,
            heard,
            failed_at: None,
            tried: Tried::No,
            ended: false,
            has_left: false,
        }
    }

    /// `tried` says what came of the attempt before, where there was one.
    pub(super) async fn wait<T>(
        &mut self,
        tried: Option<NoRoom>,
        mut attempt: impl FnMut() -> Result<T, NoRoom>,
    ) -> Result<T, TurnedAway> {
        let mut why = tried.unwrap_or(NoRoom::Full);
        if tried.is_some() && !self.admission.patience(self.asker, why).is_zero() {
            match attempt() {
                Ok(found) => {
                    self.ended = true;
                    return Ok(found);
                }
                Err(none) => why = none,
            }
        }
        loop {
            let patience = self.admission.patience(self.asker, why);
            let left = patience.saturating_sub(self.admission.now().saturating_sub(self.came));
            if left.is_zero() {
                return Err(self.turned_away(why));
            }
            let called = self.stand(self.came + patience)?;
            // Nobody else drops the other end.
            let in_time = tokio::time::timeout(left, called).await.is_ok();
            self.heard = self.admission.bells.load(Ordering::SeqCst);
            if !in_time {
                return Err(self.turned_away(why));
            }
            match attempt() {
                Ok(found) => {
                    self.served();
                    // There may be room for more than one.
                    self.admission.call_next();
                    return Ok(found);
                }
                Err(none) => {
                    why = none;
                    // Room that is no room for this one may be for the next.
                    if self.pass_on(why) {
                        self.admission.call_next();
                    }
                }
            }
        }
    }

    /// Enters the queue, or comes back to its old place there.
    fn stand(&mut self, deadline: Duration) -> Result<oneshot::Receiver<()>, TurnedAway> {
        let (bell, called) = oneshot::channel();
        let Asker { tenant, cost, goes_ahead, .. } = self.asker;
        let priority = if goes_ahead { i32::MAX } else { self.asker.priority };
        let now = self.admission.now();
        let (is_next, nobody_tries, bells) = {
            let mut state = self.admission.queue.lock();
            // A bell that is not counted yet finds it where it is put now.
            let bells = self.admission.bells.load(Ordering::SeqCst);
            if let Some(place) = self.place {
                let rests = self.tried == Tried::Passed && bells == self.heard;
                if rests {
                    state.queue.set_aside(place, cost, bell);
                } else {
                    state.queue.put_back(place, cost, bell);
                }
                state.called -= 1;
                // One that was not back yet when this one passed the room on.
                let may_pass = self.admission.passes.load(Ordering::Relaxed) < MAX_PASSES;
                let passes = rests && may_pass && state.queue.untried() > 0;
                (passes, state.called == 0, bells)
            } else {
                let waiting = Waiting { priority, tenant, deadline, cost };
                self.place = state.queue.enter(waiting, bell);
                if self.place.is_none() {
                    let retry_after = state.until_room(now);
                    state.tally.queue_full += 1;
                    self.ended = true;
                    return Err(TurnedAway::QueueFull { retry_after });
                }
                // Those it came behind are gone meanwhile, and what they left nobody took; or all of
                // them have tried what there is.
                (state.queue.untried() == 1, state.called == 0, bells)
            }
        };
        // Nor must a bell between the last attempt and the entry be missed.
        let bells = bells.max(self.admission.bells.load(Ordering::SeqCst));
        if nobody_tries && (is_next || bells != self.heard) {
            self.admission.call_next();
        }
        Ok(called)
    }

    /// Notes what the attempt says to those behind; whether the next of them is to be called.
    fn pass_on(&mut self, why: NoRoom) -> bool {
        self.tried = Tried::Passed;
        if why == NoRoom::FullForAll {
            self.tried = Tried::Full;
            return false;
        }
        let (served, untried) = {
            let state = self.admission.queue.lock();
            (state.tally.served, state.queue.untried())
        };
        if why == NoRoom::Full && served - *self.failed_at.get_or_insert(served) >= MAX_OVERTAKEN {
            self.tried = Tried::Keeps;
            return false;
        }
        untried > 0 && self.admission.passes.fetch_add(1, Ordering::Relaxed) < MAX_PASSES
    }

    /// How long it has been in the queue; `None` where it never was.
    pub(super) fn waited(&self) -> Option<Duration> {
        self.place.map(|_| self.admission.now().saturating_sub(self.came))
    }

    fn served(&mut self) {
        let now = self.admission.now();
        let mut state = self.admission.queue.lock();
        state.tally.served += 1;
        state.pace.count(now);
        state.called -= 1;
        self.ended = true;
        self.has_left = true;
    }

    fn turned_away(&mut self, why: NoRoom) -> TurnedAway {
        let now = self.admission.now();
        let mut state = self.admission.queue.lock();
        self.ended = true;
        match why {
            NoRoom::Nobody => {
                state.tally.nobody += 1;
                TurnedAway::Nobody
            }
            NoRoom::Full | NoRoom::FullForIt | NoRoom::FullForAll => {
                state.tally.waited_too_long += 1;
                TurnedAway::WaitedTooLong { retry_after: state.until_room(now) }
            }
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let (was_called, nobody_tries) = {
            let mut state = self.admission.queue.lock();
            state.tally.left += u64::from(!self.ended);
            let place = self.place.filter(|_| !self.has_left);
            let was_called = place.is_some_and(|place| state.queue.remove(place).is_none());
            state.called -= usize::from(was_called);
            (was_called, state.called == 0)
        };
        self.admission.waiting.fetch_sub(1, Ordering::SeqCst);
        WAITING.fetch_sub(1, Ordering::SeqCst);
        // It was called and did not take what it was called for, or room was kept for it: that is for
        // the next.
        let kept = self.tried == Tried::Keeps && !self.has_left && nobody_tries;
        if was_called || kept {
            self.admission.call_next();
        }
    }
}
