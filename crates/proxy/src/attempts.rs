//! Which engines get a request, until one begins to answer.
//!
//! A request goes to another engine while the client has seen nothing: where an engine could not be
//! connected to, broke off before the first data, answered with an error of its own, or said that it
//! is busy. How often is bounded for one request (`retries.attempts`, [`MAX_FAULTS`]) and for all of a
//! pool together (its budget). An engine's own error is kept meanwhile: where nobody does better, it
//! is the answer.

mod admission;
mod cause;
mod choosing;
mod ending;
mod held;
mod legs;
mod pair;
mod pair_failed;
mod retry_after;
mod sending;
mod whole;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::response::Parts as ResponseParts;
use http_body::Frame;
use kvasir_fleet::{
    Chosen, Decision, Endpoint, Pool, Reservation, RetryBudget, RetryLimits, TurnedAway,
};
use kvasir_upstream::AnswerStream;
use tokio::sync::Semaphore;

use self::cause::Cause;
use self::held::Held;
use self::legs::Split;
use self::pair::MAX_PAIRS;
use crate::access_log::AccessLog;
use crate::app::{App, Retries};
use crate::fault::Fault;
use crate::plan::Plan;
use crate::reading;
use crate::refusal::Refusal;
use crate::relay::{Break, is_plain};
use crate::spans::Step;
use crate::split::{self, Details, Ride};

/// Engines that may take one request and break off or answer with an error of their own, the first
/// included: a request that kills its engine must not go through the whole pool. Engines that cannot
/// be connected to got nothing of it and do not count.
const MAX_FAULTS: u32 = 2;
/// Those that are known to be unreachable are tried until connecting took as often the pool's limit for
/// one connection, all of a request's attempts together: refusals are quick, and all are tried; of those
/// that are silent, two.
const CONNECT_TIMEOUTS: u32 = 2;
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
    /// Of a split request.
    pub(crate) ride: Option<Ride>,
}

impl Answered {
    /// What its usage has to say of the prompt, where that is known better than its engine does. What is
    /// compressed passes as it is.
    pub(crate) fn details(&self) -> Option<&Details> {
        let details = self.ride.as_ref()?.details.as_ref();
        details.filter(|_| self.head.status.is_success() && is_plain(&self.head))
    }

    /// Says so in an answer of JSON that is there as a whole. The permits are for long ones.
    async fn merge_whole(&mut self, permits: &Arc<Semaphore>) {
        let Some(details) = self.details().filter(|_| self.rest.is_none()) else { return };
        let Some(data) = self.first.as_ref().and_then(Frame::data_ref) else { return };
        let (details, data) = (details.clone(), data.clone());
        let merge = reading::on(permits, data.len(), move || split::merged(&data, &details));
        let Some(text) = merge.await.flatten() else { return };
        if self.head.headers.contains_key(CONTENT_LENGTH) {
            self.head.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
        }
        self.first = Some(Frame::data(text.into()));
    }
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
    /// What attempts took that found no connection.
    connecting: Duration,
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
    /// Why the last engine broke off, by the error's code and for people, and why the last could not be
    /// connected to.
    last_break: Option<(&'static str, String)>,
    last_refusal: Option<(String, Fault)>,
    /// The last engine's own error.
    held: Option<Held>,
    /// It was waited once for a busy engine.
    waited: bool,
    /// Why the pool did not let it in, where it did not.
    turned_away: Option<TurnedAway>,
    /// How far it has come, where it is split.
    split: Split,
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
            connecting: Duration::ZERO,
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
            split: Split::default(),
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
        } else if !self.plan.repeatable && self.taken > 0 {
            Some("not_repeatable")
        } else if self.split.pairs >= MAX_PAIRS {
            Some("pairs")
        } else if self.sent == 0 {
            None
        } else if self.faults >= MAX_FAULTS + self.split.forgiven() {
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
}
