//! One engine is asked, and what its answer, or that there is none, means for the next try.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::response::Parts as ResponseParts;
use http_body::Frame;
use kvasir_fleet::{Chosen, Decision, Endpoint, PairPlan, Pool, Protocol, Reservation, Role};
use kvasir_upstream::{AnswerStream, Started};

use super::held::Held;
use super::retry_after::retry_after;
use super::{Answered, Cause, REQUEST_TIMEOUT, SOON, Tries};
use crate::forward::{Failure, Fault, Outgoing, Phase, Retry, attempt};
use crate::refusal::ENGINE_BROKE;
use crate::spans::Step;
use crate::split::{DECODE_DIED, Leg, PREFILL_DIED};

/// What an engine is asked.
pub(super) struct Asked<'b> {
    pub(super) body: &'b Bytes,
    /// Its part in a request that is split.
    pub(super) leg: Option<Leg>,
    /// How long it may take until the first data, where that is less than the pool allows.
    pub(super) limit: Option<Duration>,
}

/// Head, first frame and what follows; the last is `None` where all is there.
type Begun = (ResponseParts, Option<Frame<Bytes>>, Option<AnswerStream>);

impl Tries<'_> {
    /// Sends the request; the answer where it is one to pass on at once.
    pub(super) async fn send(&mut self, chosen: Chosen) -> Option<Answered> {
        let Chosen { reservation, prefill, decision } = chosen;
        match prefill {
            Some(prefill) => self.split_up(prefill, reservation, decision).await,
            None => self.go_on(reservation, decision).await,
        }
    }

    /// Sends the client's own bytes.
    pub(super) async fn send_whole(
        &mut self,
        mut reservation: Reservation,
        decision: Decision,
    ) -> Option<Answered> {
        self.split.recompute_here();
        reservation.computes_prompt();
        let body = self.plan.body.clone();
        let asked = Asked { body: &body, leg: None, limit: None };
        let started = self.ask(&mut reservation, &decision, asked).await?;
        self.answered(started, reservation, decision).await
    }

    /// Asks one engine; `None` where it did not begin to answer, which is noted then.
    pub(super) async fn ask(
        &mut self,
        reservation: &mut Reservation,
        decision: &Decision,
        asked: Asked<'_>,
    ) -> Option<Started> {
        let Asked { body, leg, limit } = asked;
        let endpoint = Arc::clone(reservation.endpoint());
        self.begin(&endpoint, decision, leg);
        let began = Instant::now();
        let (pool, left) = (Arc::clone(&self.pool), self.left());
        let (plan, limits) = (self.plan, self.settings.budget);
        // The id that a context leg is given is for one engine, once; what was handed over a decode engine
        // may have fetched.
        let is_context =
            leg == Some(Leg::Prefill) && pool.protocol(&endpoint) == Some(Protocol::Trtllm);
        let repeatable = plan.repeatable && leg != Some(Leg::Decode) && !is_context;
        // The engine may get it twice then.
        let may_repeat = || repeatable && plan.resolved.pool.retries().take(limits, Instant::now());
        let left = left.into_iter().chain(limit).min();
        let outgoing =
            Outgoing { pool: &pool, endpoint: &endpoint, request: self.parts, body, leg };
        match attempt(&self.app.upstream, outgoing, may_repeat, left).await {
            Ok(started) => {
                endpoint.mark_reachable();
                if let Some(trace) = &mut self.log.trace {
                    trace.answered(started.head.status.as_u16());
                }
                Some(started)
            }
            Err(failure) => {
                // A late decode leg may wait for what the prefill engine does not send.
                let waits = leg == Some(Leg::Decode) && self.log.stream;
                if !waits || failure.phase() != Phase::FirstData {
                    self.fault(reservation, &failure);
                }
                self.failed(endpoint, &failure, began.elapsed(), leg);
                None
            }
        }
    }

    /// An engine is about to get the request.
    pub(super) fn begin(&mut self, endpoint: &Endpoint, decision: &Decision, leg: Option<Leg>) {
        self.log.attempts += 1;
        self.tell_where(endpoint, decision);
        if leg == Some(Leg::Prefill) {
            self.log.prefill_endpoint = Some(endpoint.url().to_owned());
        }
        if let Some(trace) = &mut self.log.trace {
            trace.attempt(&mut self.parts.headers, endpoint, decision, leg);
        }
        if self.plan.has_extras() {
            endpoint.carried_extras();
        }
    }

    pub(super) fn fault(&self, reservation: &mut Reservation, failure: &Failure) {
        if self.is_the_engines(failure) {
            reservation.faulted(failure.why());
        }
    }

    /// Whether it says anything about the engine: a limit of our own, or the end of the time for the whole
    /// request, does not.
    fn is_the_engines(&self, failure: &Failure) -> bool {
        failure.fault() == Fault::Engine && !self.is_over()
    }

    /// An engine began to answer: the answer where it is one to pass on at once.
    pub(super) async fn answered(
        &mut self,
        started: Started,
        reservation: Reservation,
        decision: Decision,
    ) -> Option<Answered> {
        let Started { head, first, rest } = started;
        self.answer((head, first, Some(rest)), reservation, decision).await
    }

    /// The same of an answer that may be there as a whole.
    pub(super) async fn answer(
        &mut self,
        begun: Begun,
        mut reservation: Reservation,
        decision: Decision,
    ) -> Option<Answered> {
        let status = begun.0.status;
        match Cause::of(status) {
            // A 503 or 429 says that the engine is busy, not that it fails.
            Some(Cause::Busy) => {}
            // It could not fetch what another engine has, which may be the other one's fault.
            Some(Cause::Error) if self.split.may_recompute_here() => {}
            _ if status.is_server_error() => reservation.faulted(status.as_str()),
            _ => reservation.answered(),
        }
        self.passed_on(begun, reservation, decision).await
    }

    /// The same where the answer says nothing about the engine, or that was noted.
    pub(super) async fn passed_on(
        &mut self,
        (head, first, rest): Begun,
        reservation: Reservation,
        decision: Decision,
    ) -> Option<Answered> {
        let (status, cause) = (head.status, Cause::of(head.status));
        let answered = Answered {
            head,
            first,
            rest,
            endpoint: Arc::clone(reservation.endpoint()),
            pool: Arc::clone(&self.pool),
            decision,
            reservation: Some(reservation),
            ride: None,
        };
        let Some(cause) = cause else {
            self.count_retry("ok");
            return Some(answered);
        };
        let retry_after = retry_after(&answered.head.headers).filter(|_| cause == Cause::Busy);
        self.said_no(&answered.endpoint, cause, retry_after);
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
            self.last_break = Some((ENGINE_BROKE, format!("its answer {status} broke off")));
        }
        None
    }

    /// An engine answered with an error that another one may not.
    pub(super) fn said_no(
        &mut self,
        endpoint: &Endpoint,
        cause: Cause,
        retry_after: Option<Duration>,
    ) {
        self.count_retry("failed");
        self.cause = Some(cause);
        self.sent += 1;
        self.taken += 1;
        // One that could not fetch what another engine computed has not been broken by the request.
        self.faults += u32::from(cause == Cause::Error && !self.split.may_recompute_here());
        if let Some(time) = retry_after {
            endpoint.press_back(time);
        }
    }

    /// In the metrics and the trace, if there is one.
    pub(super) fn note_failure(&mut self, endpoint: &Endpoint, cause: &'static str, why: &str) {
        if let Some(trace) = &mut self.log.trace {
            trace.failed(cause, why);
        }
        endpoint.note_failed_attempt(cause);
    }

    pub(super) fn tell_where(&mut self, endpoint: &Endpoint, decision: &Decision) {
        self.log.endpoint = Some(endpoint.url().to_owned());
        self.log.rank = endpoint.rank();
        self.log.plan = self.split.whole.or(decision.plan.map(PairPlan::as_str));
        self.log.decision = Some(decision.clone());
    }

    pub(super) fn failed(
        &mut self,
        endpoint: Arc<Endpoint>,
        failure: &Failure,
        after: Duration,
        leg: Option<Leg>,
    ) {
        let phase = failure.phase();
        let why = format!("{}{}", part(&self.pool, &endpoint, leg), failure.why());
        tracing::warn!(endpoint = endpoint.url(), why, "attempt failed before an answer began");
        // The phase, but for the limit of the whole request, which is none.
        let is_late = phase == Phase::FirstData;
        let cause = match leg {
            _ if is_late && self.is_over() => REQUEST_TIMEOUT,
            Some(leg) if is_late => leg.timeout(),
            _ => phase.as_str(),
        };
        self.note_failure(&endpoint, cause, &why);
        self.count_retry("failed");
        if phase.is_connect() {
            if self.is_the_engines(failure) {
                endpoint.mark_unreachable(&why);
            }
            self.cause = Some(Cause::Connect);
            self.connecting += after;
            self.last_refusal = Some((told(phase).to_owned(), failure.fault().into()));
        } else if failure.retry() == Retry::Never {
            self.cause = Some(Cause::Broke);
            self.invalid = Some(why);
        } else if phase == Phase::Refused {
            // As an answer of 503 is.
            self.cause = Some(Cause::Busy);
            self.sent += 1;
            self.last_refusal = Some((told(phase).to_owned(), failure.fault().into()));
        } else {
            self.cause = Some(Cause::Broke);
            self.sent += 1;
            self.faults += 1;
            // Asked twice already, it is not asked again.
            self.broke_soon = after <= SOON && !failure.was_repeated();
            if is_late {
                self.late = Some((cause, why));
            } else {
                self.last_break = Some((broke(&self.pool, &endpoint, leg), why));
            }
        }
        self.taken += u32::from(failure.retry() != Retry::Safe);
        self.tried.push(endpoint);
    }

    /// How a retry went, or why there was none. A first attempt is none.
    pub(super) fn count_retry(&self, result: &'static str) {
        if let Some(cause) = self.cause {
            metrics::counter!("kvasir_retries_total",
                "model" => self.plan.resolved.pool.model().to_owned(),
                "cause" => cause.as_str(), "result" => result)
            .increment(1);
        }
    }
}

/// The code of the error where an engine broke off without a byte.
fn broke(pool: &Pool, endpoint: &Endpoint, leg: Option<Leg>) -> &'static str {
    match leg {
        Some(Leg::Prefill) => PREFILL_DIED,
        _ if is_decode_engine(pool, endpoint) => DECODE_DIED,
        _ => ENGINE_BROKE,
    }
}

/// What an engine was to do in a pool that splits requests, to begin a message with.
fn part(pool: &Pool, endpoint: &Endpoint, leg: Option<Leg>) -> &'static str {
    match leg {
        Some(Leg::Prefill) => "prefill leg: ",
        Some(Leg::Decode) => "decode leg: ",
        None if is_decode_engine(pool, endpoint) => "decode engine, for the whole request: ",
        None => "",
    }
}

fn is_decode_engine(pool: &Pool, endpoint: &Endpoint) -> bool {
    pool.split().is_some() && pool.role(endpoint) == Role::Decode
}

/// Why no engine got it, as clients may know it: addresses and certificates are for the log.
fn told(phase: Phase) -> &'static str {
    match phase {
        Phase::Pool => "as many connections as are allowed are in use",
        Phase::Refused => "those there are refuse it for now",
        _ => "none of those tried could be connected to",
    }
}
