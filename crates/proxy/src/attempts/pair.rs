//! A split request whose legs are sent at once (`SGLang`): the client gets the decode engine's answer. One
//! leg that fails ends the other one; once more it is tried, by another pair in another room.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use kvasir_fleet::{Decision, Endpoint, Reservation, SplitSettings};
use kvasir_upstream::Started;
use tokio::sync::oneshot::Receiver;
use tokio::time::timeout;

use super::legs::NOT_MADE;
use super::retry_after::retry_after;
use super::{Answered, Cause, Tries};
use crate::fault::Fault;
use crate::forward::{Failure, Outgoing, Retry, attempt};
use crate::relay::is_event_stream;
use crate::split::{
    self, Bootstrap, Companion, Leg, PAIR_FAILED, PrefillEnd, Request, Ride, Sending,
};

/// Pairs that may get one request.
pub(super) const MAX_PAIRS: u32 = 2;
/// How long a decode leg that failed is held, to see whether its prefill leg did first.
const GRACE: Duration = Duration::from_millis(50);

/// What came first.
enum First {
    /// Its first data or failure; whether the prompt was computed by then.
    Decode(Box<Result<Started, Failure>>, bool),
    Prefill(PrefillEnd),
}

impl Tries<'_> {
    pub(super) async fn pair(
        &mut self,
        prefill: Reservation,
        mut decode: Reservation,
        decision: Decision,
        settings: &SplitSettings,
    ) -> Option<Answered> {
        self.split.pairs += 1;
        let (began, at) = (Instant::now(), Arc::clone(prefill.endpoint()));
        let room = self.app.rooms.take();
        let bootstrap = Bootstrap {
            host: at.bootstrap_host(),
            port: at.bootstrap_port().unwrap_or(settings.bootstrap_port),
        };
        let number = room.number;
        let make = move |request: &Request| Some(split::pair_body(request, &bootstrap, number));
        let Some(body) = self.spliced(make).await else {
            self.split.whole = Some(NOT_MADE);
            return self.send_whole(decode, decision).await;
        };
        self.begin(&at, &decision, Some(Leg::Prefill));
        let sending = self.sending(body.clone(), settings.prefill_timeout, &decision);
        let (companion, mut end) = Companion::send(sending, prefill, room);
        self.begin(&Arc::clone(decode.endpoint()), &decision, Some(Leg::Decode));
        let first = self.first(&mut decode, &body, &mut end, settings).await;
        match first {
            First::Prefill(end) => {
                drop((companion, decode));
                self.abort(Leg::Decode);
                self.prefill_ended(at, end, decision, began.elapsed()).await
            }
            First::Decode(begun, computed) => match *begun {
                Ok(started) if started.head.status.is_success() => {
                    self.decode_begun(started, decode, decision, (companion, &at, began)).await
                }
                Ok(started) => {
                    drop(companion);
                    self.decode_said_no(started, decode, decision, (computed, &at)).await
                }
                Err(failure) => {
                    drop(companion);
                    self.decode_failed(&failure, decode, (computed, &at), began.elapsed());
                    None
                }
            },
        }
    }

    /// The decode leg is answered; its prefill leg ends with the answer.
    async fn decode_begun(
        &mut self,
        started: Started,
        decode: Reservation,
        decision: Decision,
        (companion, prefill, began): (Companion, &Arc<Endpoint>, Instant),
    ) -> Option<Answered> {
        self.note_decode(&started, &decode);
        if !split::begins_with_error(&started) {
            Leg::Decode.took(began, is_event_stream(&started.head));
            decode.has_fetched_from(prefill);
        }
        let mut answered = self.answered(started, decode, decision).await?;
        answered.ride = Some(Ride { details: None, both: Some(companion) });
        Some(answered)
    }

    /// The decode leg is answered with an error. Where its prompt was not computed by then, either engine
    /// may be why.
    async fn decode_said_no(
        &mut self,
        started: Started,
        decode: Reservation,
        decision: Decision,
        (computed, prefill): (bool, &Arc<Endpoint>),
    ) -> Option<Answered> {
        self.note_decode(&started, &decode);
        self.abort(Leg::Prefill);
        if computed || !started.head.status.is_server_error() {
            return self.answered(started, decode, decision).await;
        }
        decode.could_not_fetch_from(prefill);
        let endpoint = Arc::clone(decode.endpoint());
        let Started { head, first, rest } = started;
        let answered = self.passed_on((head, first, Some(rest)), decode, decision).await;
        if answered.is_none() {
            self.suspect(prefill, &endpoint);
        }
        answered
    }

    fn note_decode(&mut self, started: &Started, decode: &Reservation) {
        decode.endpoint().mark_reachable();
        if let Some(trace) = &mut self.log.trace {
            trace.answered(started.head.status.as_u16());
        }
    }

    /// The decode leg failed before it was answered.
    fn decode_failed(
        &mut self,
        failure: &Failure,
        mut decode: Reservation,
        (computed, prefill): (bool, &Arc<Endpoint>),
        after: Duration,
    ) {
        let endpoint = Arc::clone(decode.endpoint());
        // Whoever cannot be connected to, is gone by itself.
        let is_its_own = computed || failure.phase().is_connect();
        if is_its_own {
            self.fault(&mut decode, failure);
        }
        self.leg_failed(Arc::clone(&endpoint), failure, after, Leg::Decode);
        self.abort(Leg::Prefill);
        if !is_its_own {
            decode.could_not_fetch_from(prefill);
            self.suspect(prefill, &endpoint);
        }
    }

    /// Waits for the decode leg's first data, or for what ends the pair before.
    async fn first(
        &self,
        decode: &mut Reservation,
        body: &Bytes,
        end: &mut Receiver<PrefillEnd>,
        settings: &SplitSettings,
    ) -> First {
        let endpoint: Arc<Endpoint> = Arc::clone(decode.endpoint());
        let (pool, request, leg) = (&*self.pool, &*self.parts, Some(Leg::Decode));
        let outgoing = Outgoing { pool, endpoint: &endpoint, request, body, leg };
        // A room is never entered twice.
        let mut sent = pin!(attempt(&self.app.upstream, outgoing, || false, self.left()));
        let mut computed = false;
        // Its own time begins when the prompt is computed.
        let limit = settings.decode_timeout;
        let begun = loop {
            let is_limited = computed && self.log.stream;
            tokio::select! {
                biased;
                ended = &mut *end, if !computed => match ended {
                    Ok(PrefillEnd::Computed) => {
                        computed = true;
                        if !self.log.stream {
                            decode.generates();
                        }
                    }
                    Ok(ended) => return First::Prefill(ended),
                    Err(_) => return First::Prefill(PrefillEnd::Lost),
                },
                begun = &mut sent => break begun,
                () = tokio::time::sleep(limit), if is_limited => break Err(Failure::late(limit)),
            }
        };
        let failed = begun.as_ref().map_or(true, |started| started.head.status.is_server_error());
        if failed && !computed {
            // A decode leg fails because its prefill leg did, and may be the first to say so.
            match timeout(GRACE, end).await {
                Ok(Ok(PrefillEnd::Computed)) => computed = true,
                Err(_) | Ok(Err(_)) => {}
                Ok(Ok(ended)) => return First::Prefill(ended),
            }
        }
        First::Decode(Box::new(begun), computed)
    }

    fn sending(&self, body: Bytes, limit: Duration, decision: &Decision) -> Sending {
        let judge = self.plan.judge.as_ref();
        Sending {
            judge: judge.map(|judge| judge.of_prefill(decision, self.log, self.log.stream)),
            upstream: self.app.upstream.clone(),
            pool: Arc::clone(&self.pool),
            request: self.parts.clone(),
            body,
            left: self.left().map_or(limit, |left| left.min(limit)),
        }
    }

    /// The prefill leg failed, or was answered with an error.
    async fn prefill_ended(
        &mut self,
        at: Arc<Endpoint>,
        end: PrefillEnd,
        decision: Decision,
        after: Duration,
    ) -> Option<Answered> {
        match end {
            PrefillEnd::Computed | PrefillEnd::Lost => {
                self.prefill_said_no(&at, Cause::Error, None, "its leg was lost");
                None
            }
            PrefillEnd::Failed(failure, mut reservation) => {
                self.fault(&mut reservation, &failure);
                self.leg_failed(at, &failure, after, Leg::Prefill);
                if let Some((code, _)) = &mut self.last_break {
                    *code = PAIR_FAILED;
                }
                None
            }
            PrefillEnd::Errored(why, mut reservation) => {
                reservation.faulted(&why);
                self.tell_where(&at, &decision);
                self.prefill_said_no(&at, Cause::Error, None, &why);
                None
            }
            PrefillEnd::Answered(started, mut reservation) => {
                let status = started.head.status;
                self.tell_where(&at, &decision);
                if let Some(trace) = &mut self.log.trace {
                    trace.answered(status.as_u16());
                }
                if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS {
                    return self.answered(*started, *reservation, decision).await;
                }
                let cause = Cause::of(status).unwrap_or(Cause::Error);
                if cause == Cause::Error {
                    reservation.faulted(status.as_str());
                }
                let wait = retry_after(&started.head.headers).filter(|_| cause == Cause::Busy);
                let why = format!("the prefill engine answered {status}");
                self.prefill_said_no(&at, cause, wait, &why);
                None
            }
        }
    }

    fn prefill_said_no(
        &mut self,
        at: &Arc<Endpoint>,
        cause: Cause,
        wait: Option<Duration>,
        why: &str,
    ) {
        self.said_no(at, cause, wait);
        if let Some(trace) = &mut self.log.trace {
            trace.failed(cause.as_str(), why);
        }
        if cause == Cause::Busy {
            self.last_refusal = Some((why.to_owned(), Fault::Engine));
        } else {
            self.last_break = Some((PAIR_FAILED, why.to_owned()));
        }
        self.tried.push(Arc::clone(at));
    }

    /// A leg failed before it was answered. The engine of the other one has got the request by then.
    fn leg_failed(
        &mut self,
        endpoint: Arc<Endpoint>,
        failure: &Failure,
        after: Duration,
        leg: Leg,
    ) {
        self.failed(endpoint, failure, after, Some(leg));
        if failure.retry() == Retry::Safe {
            self.taken += 1;
            self.sent += u32::from(failure.phase().is_connect());
        }
    }

    /// A decode leg failed whose prompt was not computed yet, so that either engine may be why. Neither is
    /// tried again where there is another one for its part.
    fn suspect(&mut self, prefill: &Arc<Endpoint>, decode: &Arc<Endpoint>) {
        let others = |tried: &[Arc<Endpoint>], one: &Endpoint| {
            self.pool.members().iter().any(|member| {
                self.pool.role(member) == self.pool.role(one)
                    && self.pool.is_in_service(member)
                    && !member.same_engine(one)
                    && !tried.iter().any(|known| known.same_engine(member))
            })
        };
        if !others(&self.tried, prefill) {
            return;
        }
        let has_decode = others(&self.tried, decode);
        self.tried.push(Arc::clone(prefill));
        if !has_decode {
            // It failed with that one only.
            self.tried.retain(|known| !known.same_engine(decode));
        }
    }

    /// The other leg failed.
    fn abort(&mut self, leg: Leg) {
        if let Some(trace) = &mut self.log.trace {
            trace.aborted(leg);
        }
    }
}
