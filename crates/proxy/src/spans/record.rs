//! What is noted of one request while it goes on.

use std::time::{Instant, SystemTime};

use kvasir_fleet::{Decision, Endpoint};
use kvasir_prompt::beginning;

use super::Step;
use super::context::Context;
use crate::split::Leg;

/// Engines of one request that get spans. Further ones are attempted without.
const MOST_ATTEMPTS: usize = 32;
/// Longer texts are cut.
const LONGEST: usize = 256;

/// One request.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) context: Context,
    /// The server span's.
    pub(super) id: u64,
    pub(super) route: Pattern,
    pub(super) scheme: &'static str,
    /// One moment in both clocks.
    clocks: (Instant, SystemTime),
    pub(super) received: Option<Instant>,
    pub(super) tokenise: Option<Phase>,
    pub(super) choices: Vec<Choice>,
    pub(super) attempts: Vec<Attempt>,
    /// There is none before the end.
    pub(super) ended: Option<(Ended, Instant)>,
}

/// A request's path as one of few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// It is one.
    Path,
    Fixed(&'static str),
    /// There may be many.
    None,
}

/// A time that has begun, and may have ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) began: Instant,
    pub(super) ended: Option<Instant>,
}

/// An engine was looked for.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) phase: Phase,
    /// `None` where there was none.
    pub(super) decision: Option<Decided>,
}

/// What was decided, as far as spans say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(super) policy: &'static str,
    pub(super) reason: &'static str,
    /// Tokens that the engine is credited with holding, of so many.
    pub(super) overlap_tokens: u64,
    pub(super) prompt_tokens: u64,
}

/// The request was sent to an engine.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) id: u64,
    pub(super) url: String,
    pub(super) rank: Option<u32>,
    /// Its part in a split request.
    pub(super) leg: Option<Leg>,
    pub(super) phase: Phase,
    pub(super) status: Option<u16>,
    pub(super) first_data: Option<Instant>,
    /// In a word, and for people.
    pub(super) error: Option<(&'static str, String)>,
}

/// What is known of a request when it is over.
#[derive(Debug)]
pub(crate) struct Ended {
    /// When its head was read.
    pub(crate) started: Instant,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) request_id: String,
    pub(crate) model: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// Where the prompt of a split request was computed.
    pub(crate) prefill_endpoint: Option<String>,
    /// How it was served, in pools that split requests.
    pub(crate) plan: Option<&'static str>,
    /// 0 where nothing was answered.
    pub(crate) status: u16,
    pub(crate) outcome: &'static str,
    /// The answer began and did not end: why.
    pub(crate) broken: Option<&'static str>,
    pub(crate) decision: Option<Decided>,
    pub(crate) tokens: &'static str,
    pub(crate) attempts: u32,
    /// How long it waited for room, in milliseconds, where it did.
    pub(crate) waited_ms: Option<u64>,
    pub(crate) reported_prompt_tokens: Option<u64>,
    pub(crate) reported_cached_tokens: Option<u64>,
}

impl Record {
    pub(super) fn begin(
        context: Context,
        id: u64,
        route: Pattern,
        scheme: &'static str,
        clocks: (Instant, SystemTime),
    ) -> Self {
        Self {
            context,
            id,
            route,
            scheme,
            clocks,
            received: None,
            tokenise: None,
            choices: Vec::new(),
            attempts: Vec::new(),
            ended: None,
        }
    }

    pub(super) fn note(&mut self, step: Step, now: Instant) {
        match step {
            Step::Received => self.received = Some(now),
            Step::Tokenising => self.tokenise = Some(Phase::from(now)),
            Step::Tokenised => self.tokenise.iter_mut().for_each(|phase| phase.ended = Some(now)),
            Step::Choosing if self.choices.len() < MOST_ATTEMPTS => {
                self.choices.push(Choice { phase: Phase::from(now), decision: None });
            }
            Step::Choosing => {}
            Step::Chosen => {
                if let Some(choice) = self.choices.last_mut() {
                    choice.phase.ended.get_or_insert(now);
                }
            }
            Step::Held => {
                if let Some(attempt) = self.open_attempt() {
                    attempt.phase.ended = Some(now);
                }
            }
        }
    }

    /// What the engine is told.
    pub(super) fn attempt(
        &mut self,
        id: u64,
        endpoint: &Endpoint,
        decision: &Decision,
        leg: Option<Leg>,
        now: Instant,
    ) -> String {
        if self.attempts.len() < MOST_ATTEMPTS {
            if let Some(choice) = self.choices.last_mut() {
                choice.decision = Some(Decided::of(decision));
            }
            let (url, rank) = (cut(endpoint.url()), endpoint.rank());
            let phase = Phase::from(now);
            let (status, first_data, error) = (None, None, None);
            self.attempts.push(Attempt { id, url, rank, leg, phase, status, first_data, error });
        }
        self.context.header(id)
    }

    pub(super) fn answered(&mut self, status: u16, now: Instant) {
        if let Some(attempt) = self.open_attempt() {
            (attempt.status, attempt.first_data) = (Some(status), Some(now));
        }
    }

    pub(super) fn failed(&mut self, phase: &'static str, why: &str, now: Instant) {
        if let Some(attempt) = self.open_attempt() {
            attempt.phase.ended = Some(now);
            attempt.error = Some((phase, cut(why)));
        }
    }

    pub(super) fn aborted(&mut self, leg: Leg, now: Instant) {
        let is_it =
            |attempt: &&mut Attempt| attempt.leg == Some(leg) && attempt.phase.ended.is_none();
        if let Some(attempt) = self.attempts.iter_mut().rev().find(is_it) {
            attempt.phase.ended = Some(now);
            attempt.error = Some(("aborted", "the other leg failed".to_owned()));
        }
    }

    pub(super) fn end(&mut self, mut ended: Ended, now: Instant) {
        for text in [Some(&mut ended.path), ended.model.as_mut(), Some(&mut ended.method)] {
            if let Some(text) = text.filter(|text| text.len() > LONGEST) {
                *text = cut(text);
            }
        }
        self.ended = Some((ended, now));
    }

    /// How many spans it is.
    pub(super) fn spans(&self) -> usize {
        2 + usize::from(self.tokenise.is_some()) + self.choices.len() + self.attempts.len()
    }

    /// Nanoseconds since 1970.
    pub(super) fn unix_nanos(&self, at: Instant) -> u128 {
        let (instant, wall) = self.clocks;
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let after = at.saturating_duration_since(instant).as_nanos();
        (wall + after).saturating_sub(instant.saturating_duration_since(at).as_nanos())
    }

    /// The last attempt that has not ended: of legs that go on at once, the other one where one has.
    fn open_attempt(&mut self) -> Option<&mut Attempt> {
        self.attempts.iter_mut().rev().find(|attempt| attempt.phase.ended.is_none())
    }
}

impl Phase {
    fn from(began: Instant) -> Self {
        Self { began, ended: None }
    }
}

impl Decided {
    pub(crate) fn of(decision: &Decision) -> Self {
        Self {
            policy: decision.policy,
            reason: decision.reason.as_str(),
            overlap_tokens: decision.overlap.resident().into(),
            prompt_tokens: decision.prompt_tokens,
        }
    }
}

/// The beginning of a text.
fn cut(text: &str) -> String {
    beginning(text, LONGEST).to_owned()
}
