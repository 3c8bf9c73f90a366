//! Whether an engine that failed several requests in a row is asked again: closed, open, half-open.
//!
//! Pure: the caller passes the clock in and says how each request ended. [`crate::health`] keeps one
//! for every engine URL, whichever of its ranks are asked.

use std::time::{Duration, Instant};

/// How soon a breaker opens and how long it stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Requests in a row that must end in a fault; at least 1.
    pub failures: u32,
    /// How long it stays open at first; twice as long after each trial that fails.
    pub open: Duration,
    /// The longest it stays open, [`open`](Self::open) at least.
    pub longest_open: Duration,
    /// How many requests may try an engine at one time while it is half-open; at least 1. One that
    /// takes longer than [`open`](Self::open) counts no more, though its end still does.
    pub trials: u32,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            open: Duration::from_secs(5),
            longest_open: Duration::from_secs(60),
            trials: 1,
        }
    }
}

/// Where a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Requests pass.
    Closed,
    /// No request is meant to pass.
    Open,
    /// A few requests find out whether the engine is well again.
    HalfOpen,
}

impl BreakerState {
    /// The word used in metrics and logs.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// How a request ended, as far as its engine is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The engine answered it.
    Answered,
    /// It did not: no connection, broken off before the first data, an error of its own.
    Fault,
    /// Nothing can be said: the client left, or the engine was busy.
    Nothing,
}

/// Counts faults in a row, and lets trials through.
///
/// A request's verdict counts only while the breaker has not opened since the request was sent:
/// what was sent before says nothing about the engine after.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    /// How often it opened.
    openings: u64,
    /// How many trials there were.
    trials: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Closed { faults: u32 },
    Open { until: Instant, rest: Duration },
    HalfOpen { trials: Vec<Trial>, rest: Duration },
}

/// A request that finds out whether the engine is well again.
#[derive(Clone, Copy, Debug)]
struct Trial {
    number: u64,
    since: Instant,
}

/// A request that was let through. To be given back with its verdict exactly once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    openings: u64,
    /// Its number, where it is one.
    trial: Option<u64>,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Self {
        Self { settings, openings: 0, trials: 0, state: State::Closed { faults: 0 } }
    }

    pub(crate) fn state(&self, now: Instant) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { until, .. } if until > now => BreakerState::Open,
            State::Open { .. } | State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Why no further request is meant to pass now; `None` where one is.
    pub(crate) fn bars(&self, now: Instant) -> Option<BreakerState> {
        match (self.state(now), &self.state) {
            (BreakerState::Open, _) => Some(BreakerState::Open),
            (_, State::HalfOpen { trials, .. }) => {
                let under_way = trials.iter().filter(|trial| !self.has_lapsed(trial, now)).count();
                let most = self.settings.trials.max(1) as usize;
                (under_way >= most).then_some(BreakerState::HalfOpen)
            }
            _ => None,
        }
    }

    /// A trial that takes long says nothing yet, and keeps no other from finding out.
    fn has_lapsed(&self, trial: &Trial, now: Instant) -> bool {
        now.saturating_duration_since(trial.since) >= self.settings.open
    }

    /// A request is sent: a trial where one is due, and otherwise for want of another engine.
    pub(crate) fn send(&mut self, now: Instant) -> Ticket {
        let barred = self.bars(now).is_some();
        if let (&State::Open { rest, .. }, false) = (&self.state, barred) {
            self.state = State::HalfOpen { trials: Vec::new(), rest };
        }
        let (mut trial, open) = (None, self.settings.open);
        if let (State::HalfOpen { trials, .. }, false) = (&mut self.state, barred) {
            self.trials += 1;
            trials.retain(|trial| now.saturating_duration_since(trial.since) < open);
            trials.push(Trial { number: self.trials, since: now });
            trial = Some(self.trials);
        }
        Ticket { openings: self.openings, trial }
    }

    /// What became of a request; the state it is in now, where that is another.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is given back once")]
    pub(crate) fn settle(
        &mut self,
        ticket: Ticket,
        verdict: Verdict,
        now: Instant,
    ) -> Option<BreakerState> {
        if ticket.openings != self.openings {
            return None;
        }
        if let (State::HalfOpen { trials, .. }, Some(number)) = (&mut self.state, ticket.trial) {
            trials.retain(|trial| trial.number != number);
        }
        match (verdict, &self.state) {
            (Verdict::Nothing, _) => None,
            (Verdict::Answered, before) => {
                let is_news = !matches!(before, State::Closed { .. });
                self.state = State::Closed { faults: 0 };
                is_news.then_some(BreakerState::Closed)
            }
            (Verdict::Fault, &State::Closed { faults }) => {
                let faults = faults.saturating_add(1);
                if faults < self.settings.failures.max(1) {
                    self.state = State::Closed { faults };
                    return None;
                }
                Some(self.open(self.settings.open, now))
            }
            (Verdict::Fault, &State::HalfOpen { rest, .. }) if ticket.trial.is_some() => {
                let longest = self.settings.longest_open.max(self.settings.open);
                Some(self.open(rest.saturating_mul(2).min(longest), now))
            }
            // Sent there for want of another engine: no trial.
            (Verdict::Fault, State::Open { .. } | State::HalfOpen { .. }) => None,
        }
    }

    /// The engine was gone and is there again: trials need not wait any longer. Whether that is
    /// news.
    pub(crate) fn reappeared(&mut self) -> bool {
        let State::Open { rest, .. } = self.state else { return false };
        self.state = State::HalfOpen { trials: Vec::new(), rest };
        true
    }

    /// When it lets a request pass that it bars now, if nothing more is said.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Closed { .. } => None,
            State::Open { until, .. } => Some(*until).filter(|until| *until > now),
            State::HalfOpen { trials, .. } => {
                let lapse = trials.iter().filter_map(|t| t.since.checked_add(self.settings.open));
                lapse.filter(|at| *at > now).min()
            }
        }
    }

    /// Whether it is open and nobody has tried the engine since, however long ago it opened.
    pub(crate) fn is_resting(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Other settings from now on; what it counted stands.
    pub(crate) fn configure(&mut self, settings: BreakerSettings) {
        self.settings = settings;
    }

    fn open(&mut self, rest: Duration, now: Instant) -> BreakerState {
        self.openings += 1;
        self.state = State::Open { until: now + rest, rest };
        BreakerState::Open
    }
}

impl Ticket {
    /// Whether the request finds out if its engine is well again.
    pub(crate) fn is_trial(&self) -> bool {
        self.trial.is_some()
    }
}

#[cfg(test)]
mod tests;
