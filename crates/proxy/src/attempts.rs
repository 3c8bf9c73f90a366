//! Which engines get a request, until one begins to answer.
//!
//! A request goes to another engine while the client has seen nothing: where an engine could not be
//! connected to, broke off before the first data, answered with an error of its own, or said that it
//! is busy. How often is bounded for one request (`retries.attempts`, [`MAX_FAULTS`]) and for all of a
//! pool together (its budget). An engine's own error is kept meanwhile: where nobody does better, it
//! is the answer.

mod admission;
mod choosing;
mod held;
mod retry_after;
mod whole;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use http::response::Parts as ResponseParts;
use http_body::Frame;
use kvasir_fleet::{
    Chosen, Decision, Endpoint, Pool, Reservation, RetryBudget, RetryLimits, TurnedAway,
};
use kvasir_upstream::{AnswerStream, Started};

use self::held::Held;
use self::retry_after::retry_after;
use self::whole::Incomplete;
use crate::access_log::AccessLog;
use crate::app::{App, Retries};
use crate::forward::{Failure, Fault, Phase, Retry, attempt};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::relay::Break;
use crate::spans::Step;

/// Engines that may take one request and break off or answer with an error of their own, the first
/// included: a request that kills its engine must not go through the whole pool. Engines that cannot
/// be connected to got nothing of it and do not count.
const MAX_FAULTS: u32 = 2;
/// The code of the error where the whole request took too long.
const REQUEST_TIMEOUT: &str = Break::Deadline.code();
/// Why, where no engine got it.
const OVER: &str = "no engine could be connected to in the time for the whole request";
/// A lone engine that breaks off this soon may just have closed an idle connection under us; later
/// it was at work on the request.
const SOON: Duration = Duration::from_secs(1);

/// An engine's answer as it begins.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) head: ResponseParts,
    /// The first frame; `None` when the answer has no body.
    pub(crate) first: Option<Frame<Bytes>>,
    /// `None` where all of it is there.
    pub(crate) rest: Option<AnswerStream>,
    pub(crate) endpoint: Arc<Endpoint>,
    /// The pool it was chosen in.
    pub(crate) pool: Arc<Pool>,
    pub(crate) decision: Decision,
    /// `None` where the engine is done with it.
    pub(crate) reservation: Option<Reservation>,
}

/// Chooses and tries, until an engine begins to answer. No endpoint is tried twice while there is
/// another.
pub(crate) async fn try_engines(
    app: &App,
    retries: Retries,
    parts: &mut Parts,
    plan: &Plan,
    log: &mut AccessLog,
) -> Result<Answered, Refusal> {
    plan.resolved.pool.retries().note_request(Instant::now());
    let mut tries = Tries::new(app, retries, parts, plan, log);
    loop {
        tries.log.note(Step::Choosing);
        let Some(chosen) = tries.next().await else { return tries.give_up() };
        tries.log.note(Step::Chosen);
        if let Some(answered) = tries.send(chosen).await {
            return tries.whole(answered).await;
        }
    }
}

/// What failed, and is reason to try another engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Connect,
    Broke,
    Error,
    Busy,
}

impl Cause {
    /// The word used in metrics.
    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Broke => "broke",
            Self::Error => "error",
            Self::Busy => "busy",
        }
    }

    /// Of an answer that another engine may do better.
    fn of(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Some(Self::Busy),
            StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT => Some(Self::Error),
            _ => None,
        }
    }
}

/// The attempts of one request.
struct Tries<'a> {
    app: &'a App,
    parts: &'a mut Parts,
    /// What it goes by, whatever is reloaded meanwhile.
    settings: Retries,
    plan: &'a Plan,
    log: &'a mut AccessLog,
    /// The pool of the last choice: the plan's, or the one that took its place while the request
    /// waited for room. Its key is for its engines, and for no others.
    pool: Arc<Pool>,
    tried: Vec<Arc<Endpoint>>,
    /// How often an engine got the request.
    sent: u32,
    /// How often one of them may have worked on it.
    taken: u32,
    /// Why it would fail everywhere.
    invalid: Option<String>,
    /// How often one that got it was at fault.
    faults: u32,
    /// What failed last.
    cause: Option<Cause>,
    /// The last engine broke off as soon as it got the request.
    broke_soon: bool,
    /// An engine took the request and said nothing for as long as is waited for: the client has
    /// waited, and would again.
    late: Option<(&'static str, String)>,
    /// When the whole request has to be over.
    deadline: Option<Instant>,
    /// Why the last engine broke off, and why the last could not be connected to.
    last_break: Option<String>,
    last_refusal: Option<String>,
    /// The last engine's own error.
    held: Option<Held>,
    /// It was waited once for a busy engine.
    waited: bool,
    /// Why the pool did not let it in, where it did not.
    turned_away: Option<TurnedAway>,
}

impl<'a> Tries<'a> {
    fn new(
        app: &'a App,
        settings: Retries,
        parts: &'a mut Parts,
        plan: &'a Plan,
        log: &'a mut AccessLog,
    ) -> Self {
        let deadline = log.started().checked_add(plan.resolved.pool.timeouts().request);
        Self {
            app,
            settings,
            parts,
            plan,
            log,
            pool: Arc::clone(&plan.resolved.pool),
            tried: Vec::new(),
            sent: 0,
            taken: 0,
            invalid: None,
            faults: 0,
            cause: None,
            broke_soon: false,
            late: None,
            deadline,
            last_break: None,
            last_refusal: None,
            held: None,
            waited: false,
            turned_away: None,
        }
    }

    /// The engine that gets the request next, if any.
    async fn next(&mut self) -> Option<Chosen> {
        if !self.may_go_on() || !self.is_within_budget(RetryBudget::allows) {
            return None;
        }
        let others_will_do = self.held.is_none() || self.plan.owner.is_none();
        let chosen = if others_will_do { self.find().await } else { None };
        let chosen = match chosen {
            Some(chosen) => self.when_not_busy(chosen).await,
            None => self.once_more().await,
        };
        let Some(chosen) = chosen else {
            let why = if self.no_room().is_some() { "no_room" } else { "no_endpoint" };
            self.log.no_retry = self.cause.map(|_| why);
            return None;
        };
        self.is_within_budget(RetryBudget::take).then_some(chosen)
    }

    /// Who could not be connected to got nothing: that puts no load on anybody, and takes nothing
    /// of the budget.
    fn is_within_budget(&mut self, ask: fn(&RetryBudget, RetryLimits, Instant) -> bool) -> bool {
        let (retries, limits) = (self.plan.resolved.pool.retries(), self.settings.budget);
        let is_within = self.sent == 0 || ask(retries, limits, Instant::now());
        if !is_within {
            self.count_retry("no_budget");
            self.log.no_retry = Some("budget");
        }
        is_within
    }

    fn may_go_on(&mut self) -> bool {
        // Nothing has failed yet.
        if self.cause.is_none() {
            return true;
        }
        self.log.no_retry = if self.late.is_some() || self.is_over() {
            // What an engine did with it says more than that time is up.
            if self.sent == 0 {
                self.late = Some((REQUEST_TIMEOUT, OVER.to_owned()));
            }
            Some("late")
        } else if self.invalid.is_some() {
            Some("invalid")
        } else if self.sent == 0 {
            None
        } else if !self.plan.repeatable && self.taken > 0 {
            Some("not_repeatable")
        } else if self.faults >= MAX_FAULTS {
            Some("faults")
        } else if self.sent >= self.settings.attempts {
            Some("attempts")
        } else {
            None
        };
        self.log.no_retry.is_none()
    }

    /// Whether the time for the whole request is up.
    fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// What is left of the time for the whole request; `None` where that is without end.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Sends the request; the answer where it is one to pass on at once.
    async fn send(&mut self, chosen: Chosen) -> Option<Answered> {
        let Chosen { mut reservation, decision, .. } = chosen;
        let endpoint = Arc::clone(reservation.endpoint());
        self.log.attempts += 1;
        self.tell_where(&endpoint, &decision);
        if let Some(trace) = &mut self.log.trace {
            trace.attempt(&mut self.parts.headers, &endpoint, &decision);
        }
        if self.plan.has_extras() {
            endpoint.carried_extras();
        }
        let began = Instant::now();
        let (pool, left) = (Arc::clone(&self.pool), self.left());
        let (plan, limits) = (self.plan, self.settings.budget);
        // The engine may get it twice then.
        let may_repeat =
            || plan.repeatable && plan.resolved.pool.retries().take(limits, Instant::now());
        let (body, parts) = (&plan.body, &*self.parts);
        let begun = attempt(self.app, &pool, &endpoint, parts, body, may_repeat, left).await;
        let started = match begun {
            Ok(started) => started,
            Err(failure) => {
                // What is no fault of its own says nothing about the engine.
                if failure.fault() == Fault::Engine && !self.is_over() {
                    reservation.faulted(failure.why());
                }
                self.failed(endpoint, &failure, began.elapsed());
                return None;
            }
        };
        endpoint.mark_reachable();
        let Started { head, first, rest } = started;
        let status = head.status;
        if let Some(trace) = &mut self.log.trace {
            trace.answered(status.as_u16());
        }
        let cause = Cause::of(status);
        match cause {
            // A 503 or 429 says that the engine is busy, not that it fails.
            Some(Cause::Busy) => {}
            _ if status.is_server_error() => reservation.faulted(status.as_str()),
            _ => reservation.answered(),
        }
        let answered = Answered {
            head,
            first,
            rest: Some(rest),
            endpoint,
            pool,
            decision,
            reservation: Some(reservation),
        };
        let Some(cause) = cause else {
            self.count_retry("ok");
            return Some(answered);
        };
        self.count_retry("failed");
        self.cause = Some(cause);
        self.sent += 1;
        self.taken += 1;
        self.faults += u32::from(cause == Cause::Error);
        let retry_after = retry_after(&answered.head.headers).filter(|_| cause == Cause::Busy);
        if let Some(time) = retry_after {
            answered.endpoint.press_back(time);
        }
        if !self.may_go_on() || !self.has_others(&answered.endpoint, retry_after) {
            return Some(answered);
        }
        self.tried.push(Arc::clone(&answered.endpoint));
        self.held = Held::keep(answered, retry_after).await;
        if self.held.is_some() {
            self.log.note(Step::Held);
        } else {
            if let Some(trace) = &mut self.log.trace {
                trace.failed("broke", "its answer broke off");
            }
            self.last_break = Some(format!("its answer {status} broke off"));
        }
        None
    }

    /// The answer, complete where it is not streamed. Where the rest does not come no other engine is
    /// asked: this one has done the work, and may break off because of it.
    async fn whole(&mut self, mut answered: Answered) -> Result<Answered, Refusal> {
        let idle = answered.pool.timeouts().idle;
        let Err(incomplete) = whole::complete(&mut answered, idle, self.deadline).await else {
            return Ok(answered);
        };
        if let Some(reservation) = &mut answered.reservation {
            reservation.uncounted();
        }
        let (model, kind) = (self.plan.model.clone(), incomplete.kind());
        tracing::warn!(
            endpoint = answered.endpoint.url(),
            why = incomplete.why(),
            "an answer that had begun does not come to its end"
        );
        self.note_failure(&answered.endpoint, kind.as_str(), incomplete.why());
        Err(match incomplete {
            Incomplete::Broke(why) => Refusal::EngineBroke { model, why },
            Incomplete::Idle | Incomplete::Deadline => {
                Refusal::EngineLate { model, phase: kind.code(), why: incomplete.why().to_owned() }
            }
        })
    }

    /// In the metrics and the trace, if there is one.
    fn note_failure(&mut self, endpoint: &Endpoint, cause: &'static str, why: &str) {
        if let Some(trace) = &mut self.log.trace {
            trace.failed(cause, why);
        }
        endpoint.note_failed_attempt(cause);
    }

    fn tell_where(&mut self, endpoint: &Endpoint, decision: &Decision) {
        self.log.endpoint = Some(endpoint.url().to_owned());
        self.log.rank = endpoint.rank();
        self.log.decision = Some(decision.clone());
    }

    fn failed(&mut self, endpoint: Arc<Endpoint>, failure: &Failure, after: Duration) {
        let (phase, why) = (failure.phase(), failure.why().to_owned());
        tracing::warn!(endpoint = endpoint.url(), why, "attempt failed before an answer began");
        // The phase, but for the limit of the whole request, which is none.
        let is_late = phase == Phase::FirstData;
        let cause = if is_late && self.is_over() { REQUEST_TIMEOUT } else { phase.as_str() };
        self.note_failure(&endpoint, cause, &why);
        self.count_retry("failed");
        if phase.is_connect() {
            // A limit of our own says nothing about the engine.
            if failure.fault() == Fault::Engine && !self.is_over() {
                endpoint.mark_unreachable(&why);
            }
            self.cause = Some(Cause::Connect);
            self.last_refusal = Some(why);
        } else if failure.retry() == Retry::Never {
            self.cause = Some(Cause::Broke);
            self.invalid = Some(why);
        } else if phase == Phase::Refused {
            // As an answer of 503 is.
            self.cause = Some(Cause::Busy);
            self.sent += 1;
            self.last_refusal = Some(why);
        } else {
            self.cause = Some(Cause::Broke);
            self.sent += 1;
            self.faults += 1;
            // Asked twice already, it is not asked again.
            self.broke_soon = after <= SOON && !failure.was_repeated();
            if is_late {
                self.late = Some((cause, why));
            } else {
                self.last_break = Some(why);
            }
        }
        self.taken += u32::from(failure.retry() != Retry::Safe);
        self.tried.push(endpoint);
    }

    /// How a retry went, or why there was none. A first attempt is none.
    fn count_retry(&self, result: &'static str) {
        if let Some(cause) = self.cause {
            metrics::counter!("kvasir_retries_total",
                "model" => self.plan.resolved.pool.model().to_owned(),
                "cause" => cause.as_str(), "result" => result)
            .increment(1);
        }
    }

    /// The last error an engine answered with, else why there is none. An engine that took the
    /// request weighs more than one that was not there.
    fn give_up(mut self) -> Result<Answered, Refusal> {
        let model = self.plan.model.clone();
        if let Some(why) = self.invalid {
            return Err(Refusal::BadHead(why));
        }
        if let Some((phase, why)) = self.late {
            return Err(Refusal::EngineLate { model, phase, why });
        }
        if let Some(Held { answered, .. }) = self.held.take() {
            self.tell_where(&answered.endpoint, &answered.decision);
            return Ok(answered);
        }
        if let (Some(refusal), None) = (self.no_room(), &self.last_break) {
            return Err(refusal);
        }
        Err(match (self.last_break, self.last_refusal) {
            (Some(why), _) => Refusal::EngineBroke { model, why },
            (None, Some(why)) => Refusal::NoEndpoint { model, why },
            (None, None) => Refusal::NoEndpoint {
                model,
                why: self.plan.resolved.pool.why_none(&self.plan.model),
            },
        })
    }
}
