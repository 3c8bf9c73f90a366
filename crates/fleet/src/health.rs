//! What is known of an engine's health, from requests, metrics pages and health pages alike: one
//! state, in which everything that is learned counts at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admission;
use crate::breaker::{Breaker, BreakerSettings, BreakerState, Ticket, Verdict};
use crate::engine::Engine;
use crate::exclusion::Exclusion;

/// Metrics pages in a row, each waited for, without which an engine counts as silent.
const SILENT_PAGES: u32 = 3;
/// The longest an engine is left alone because it says that it is busy.
const LONGEST_PRESSURE: Duration = Duration::from_secs(30);

/// What became of a health page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// It came, with a status of success.
    Well,
    /// It came and says otherwise.
    Unwell(u16),
    /// It did not come in time, although the engine accepted the connection.
    Late,
    /// It is not asked for.
    None,
}

#[derive(Debug)]
pub(crate) struct Health {
    /// Why the last connection failed; `None` while the engine answers or was never tried.
    down: Option<String>,
    breaker: Breaker,
    settings: BreakerSettings,
    /// It wants no requests before this.
    busy_until: Option<Instant>,
    /// Metrics pages in a row that did not come.
    unread_pages: u32,
    /// Health pages in a row that did not come; the limit at once where one says that it is not well.
    bad_probes: u32,
    answered: bool,
    /// How often the breaker changed, by what to and why.
    transitions: BTreeMap<(&'static str, &'static str), u64>,
    /// How often attempts failed, by the phase they were in.
    failed_attempts: BTreeMap<&'static str, u64>,
}

impl Default for Health {
    fn default() -> Self {
        let settings = BreakerSettings::default();
        Self {
            down: None,
            breaker: Breaker::new(settings),
            settings,
            busy_until: None,
            unread_pages: 0,
            bad_probes: 0,
            answered: false,
            transitions: BTreeMap::new(),
            failed_attempts: BTreeMap::new(),
        }
    }
}

impl Health {
    pub(crate) fn configure(&mut self, settings: BreakerSettings) {
        self.settings = settings;
        self.breaker.configure(settings);
    }

    pub(crate) fn breaker(&self) -> BreakerState {
        self.breaker.state(Instant::now())
    }

    pub(crate) fn breaker_is_closed(&self) -> bool {
        self.breaker.is_closed()
    }

    pub(crate) fn down(&self) -> Option<&str> {
        self.down.as_deref()
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    pub(crate) fn mark_unreachable(&mut self, url: &str, why: &str) {
        if self.down.is_none() {
            tracing::warn!(endpoint = url, why, "endpoint is unreachable");
        }
        self.down = Some(why.to_owned());
    }

    /// Whether that is news.
    pub(crate) fn mark_reachable(&mut self, url: &str) -> bool {
        let mut is_back = !std::mem::replace(&mut self.answered, true);
        if self.down.take().is_some() {
            tracing::info!(endpoint = url, "endpoint answers again");
            is_back = true;
            // That something answers is no proof that requests are.
            if self.breaker.reappeared() {
                self.told(url, BreakerState::HalfOpen, "reappeared");
            }
        }
        is_back
    }

    pub(crate) fn send(&mut self, url: &str) -> Ticket {
        let was_resting = self.breaker.is_resting();
        let ticket = self.breaker.send(Instant::now());
        if was_resting && !self.breaker.is_resting() {
            self.told(url, BreakerState::HalfOpen, "rest_over");
        }
        ticket
    }

    /// Whether its breaker closed.
    fn settle(&mut self, url: &str, ticket: Ticket, verdict: Verdict, why: &str) -> bool {
        let trial = ticket.is_trial();
        match self.breaker.settle(ticket, verdict, Instant::now()) {
            Some(BreakerState::Open) => {
                let reason = if trial { "trial_failed" } else { "faults" };
                self.count(BreakerState::Open, reason);
                tracing::warn!(
                    endpoint = url,
                    reason,
                    why,
                    "endpoint's breaker is open: it is left alone for a while"
                );
            }
            Some(to) => {
                self.told(url, to, "answered");
                return true;
            }
            None => {}
        }
        false
    }

    fn told(&mut self, url: &str, to: BreakerState, reason: &'static str) {
        self.count(to, reason);
        tracing::info!(endpoint = url, to = to.as_str(), reason, "endpoint's breaker changes");
    }

    fn count(&mut self, to: BreakerState, reason: &'static str) {
        *self.transitions.entry((to.as_str(), reason)).or_default() += 1;
    }

    pub(crate) fn transitions(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.transitions
    }

    pub(crate) fn note_failed_attempt(&mut self, cause: &'static str) {
        *self.failed_attempts.entry(cause).or_default() += 1;
    }

    pub(crate) fn failed_attempts(&self) -> &BTreeMap<&'static str, u64> {
        &self.failed_attempts
    }

    /// The next moment at which, with nothing more said, it may take more than now: a quiet time or
    /// a rest ends, or a trial has taken too long.
    pub(crate) fn opens_at(&self) -> Option<Instant> {
        if self.breaker.is_closed() && self.busy_until.is_none() {
            return None;
        }
        let now = Instant::now();
        let quiet_ends = self.busy_until.filter(|until| *until > now);
        quiet_ends.into_iter().chain(self.breaker.opens_at(now)).min()
    }

    /// The longest wish counts.
    pub(crate) fn press_back(&mut self, url: &str, time: Duration) {
        let until = Instant::now() + time.min(LONGEST_PRESSURE);
        if self.back_pressure().is_none() {
            let seconds = time.as_secs();
            tracing::info!(endpoint = url, seconds, "endpoint is busy and says when to come again");
        }
        self.busy_until = self.busy_until.max(Some(until));
    }

    pub(crate) fn back_pressure(&self) -> Option<Duration> {
        let left = self.busy_until?.checked_duration_since(Instant::now())?;
        (!left.is_zero()).then_some(left)
    }

    pub(crate) fn note_page(&mut self, url: &str, came: bool) {
        self.unread_pages = if came { 0 } else { self.unread_pages.saturating_add(1) };
        if self.unread_pages == SILENT_PAGES {
            tracing::warn!(endpoint = url, "endpoint accepts connections and answers nothing");
        }
    }

    pub(crate) fn note_probe(&mut self, url: &str, probe: Probe) {
        let limit = self.settings.failures.max(1);
        let was_bad = self.bad_probes >= limit;
        self.bad_probes = match probe {
            Probe::Well | Probe::None => 0,
            Probe::Unwell(_) => limit,
            Probe::Late => self.bad_probes.saturating_add(1),
        };
        match (was_bad, self.bad_probes >= limit) {
            (false, true) => tracing::warn!(endpoint = url, ?probe, "endpoint is unhealthy"),
            (true, false) if probe == Probe::None => {
                tracing::info!(endpoint = url, "endpoint's health page is asked for no more");
            }
            (true, false) => tracing::info!(endpoint = url, "endpoint is healthy again"),
            _ => {}
        }
    }

    pub(crate) fn exclusion(&self) -> Option<Exclusion> {
        if let Some(why) = &self.down {
            return Some(Exclusion::Unreachable(why.clone()));
        }
        if self.breaker.is_closed() && self.busy_until.is_none() {
            // The usual case: no clock is read.
        } else if let Some(state) = self.breaker.bars(Instant::now()) {
            return Some(match state {
                BreakerState::Open => Exclusion::BreakerOpen,
                BreakerState::HalfOpen | BreakerState::Closed => Exclusion::HalfOpen,
            });
        } else if self.back_pressure().is_some() {
            return Some(Exclusion::BackPressure);
        }
        if self.bad_probes >= self.settings.failures.max(1) {
            return Some(Exclusion::Unhealthy);
        }
        (self.unread_pages >= SILENT_PAGES).then_some(Exclusion::Silent)
    }
}

/// One request's part in its engine's health. Dropping it without a word says that nothing is
/// known of how it ended, and frees its place where it was a trial.
#[derive(Debug)]
pub(crate) struct Standing {
    engine: Arc<Engine>,
    ticket: Option<Ticket>,
}

impl Standing {
    pub(crate) fn new(engine: Arc<Engine>, ticket: Ticket) -> Self {
        Self { engine, ticket: Some(ticket) }
    }

    /// Whether it goes to an engine although its breaker is not closed, and is no trial.
    pub(crate) fn is_surplus(&self) -> bool {
        let trial = self.ticket.as_ref().is_some_and(Ticket::is_trial);
        !trial && !self.engine.health().lock().breaker.is_closed()
    }

    pub(crate) fn settle(&mut self, verdict: Verdict, why: &str) {
        if let Some(ticket) = self.ticket.take() {
            let closed =
                self.engine.health().lock().settle(self.engine.url(), ticket, verdict, why);
            if closed {
                admission::ring_all();
            }
            self.engine.ring_when_it_opens();
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.settle(Verdict::Nothing, "");
    }
}

#[cfg(test)]
mod tests;
