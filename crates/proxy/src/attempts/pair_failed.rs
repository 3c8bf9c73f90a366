//! What it says of two engines that got a request at once where one of them failed, and who is in the next
//! pair.
//!
//! A prefill engine of `SGLang` answers when its decode engine has fetched what it computed. So until the
//! prompt is computed a leg that is late, or answered with an error, may be the other engine's fault: that
//! is a failed hand-over of the pair, and nothing for a breaker. Who cannot be connected to, or breaks off,
//! is gone by itself.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kvasir_fleet::{Decision, Endpoint, Reservation};
use kvasir_upstream::Started;

use super::retry_after::retry_after;
use super::{Answered, Cause, Tries};
use crate::fault::Fault;
use crate::forward::{Failure, Phase, Retry};
use crate::split::{Leg, PAIR_FAILED, PAIR_TIMEOUT, PrefillEnd};

impl Tries<'_> {
    /// The prefill leg failed, or was answered with an error, before the decode leg gave any data.
    pub(super) async fn prefill_ended(
        &mut self,
        at: Arc<Endpoint>,
        end: PrefillEnd,
        decode: Reservation,
        decision: Decision,
        after: Duration,
    ) -> Option<Answered> {
        match end {
            PrefillEnd::Computed | PrefillEnd::Lost => {
                self.prefill_said_no(&at, Cause::Error, None, "was lost");
            }
            PrefillEnd::Failed(failure, _) if self.is_late(&failure) => {
                self.neither_in_time(&at, &decode, &failure);
            }
            PrefillEnd::Failed(failure, mut reservation) => {
                drop(decode);
                self.fault(&mut reservation, &failure);
                self.leg_failed(at, &failure, after, Leg::Prefill);
                if let Some((code, why)) = &mut self.last_break {
                    *code = PAIR_FAILED;
                    *why = ended_both(why);
                }
            }
            PrefillEnd::Errored(why) => {
                self.tell_where(&at, &decision);
                self.prefill_said_no(&at, Cause::Error, None, &format!("was answered {why}"));
                self.not_handed_over(&at, &decode);
            }
            PrefillEnd::Answered(started, reservation) => {
                let status = started.head.status;
                self.tell_where(&at, &decision);
                if let Some(trace) = &mut self.log.trace {
                    trace.answered(status.as_u16());
                }
                if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS {
                    drop(decode);
                    return self.answered(*started, *reservation, decision).await;
                }
                let cause = Cause::of(status).unwrap_or(Cause::Error);
                let wait = retry_after(&started.head.headers).filter(|_| cause == Cause::Busy);
                self.prefill_said_no(&at, cause, wait, &format!("was answered {status}"));
                if cause == Cause::Error {
                    self.not_handed_over(&at, &decode);
                }
            }
        }
        None
    }

    /// The decode leg failed; whether its prompt was computed by then.
    pub(super) fn decode_failed(
        &mut self,
        at: &Arc<Endpoint>,
        mut decode: Reservation,
        failure: &Failure,
        after: Duration,
        computed: bool,
    ) {
        if !computed && self.is_late(failure) {
            self.neither_in_time(at, &decode, failure);
            return;
        }
        let is_its_own = computed || failure.phase().is_connect();
        if is_its_own {
            self.fault(&mut decode, failure);
        }
        self.leg_failed(Arc::clone(decode.endpoint()), failure, after, Leg::Decode);
        if !is_its_own {
            self.not_handed_over(at, &decode);
        }
    }

    /// Whether no first data came in time, but for the end of the time for the whole request.
    fn is_late(&self, failure: &Failure) -> bool {
        failure.phase() == Phase::FirstData && !self.is_over()
    }

    /// Neither leg gave data in time. The client has waited, but of two engines one may be well: another pair
    /// may do better.
    fn neither_in_time(
        &mut self,
        prefill: &Arc<Endpoint>,
        decode: &Reservation,
        failure: &Failure,
    ) {
        let why =
            format!("neither the prefill leg nor the decode leg gave data: {}", failure.why());
        tracing::warn!(
            prefill = prefill.url(),
            decode = decode.endpoint().url(),
            why,
            "attempt failed before an answer began"
        );
        self.note_failure(prefill, PAIR_TIMEOUT, &why);
        decode.endpoint().note_failed_attempt(PAIR_TIMEOUT);
        self.count_retry("failed");
        self.cause = Some(Cause::Broke);
        self.sent += 1;
        self.taken += 1;
        self.faults += 1;
        self.broke_soon = false;
        self.last_break = Some((PAIR_TIMEOUT, why));
        self.not_handed_over(prefill, decode);
    }

    /// The prefill leg was answered with an error, or is gone.
    fn prefill_said_no(
        &mut self,
        at: &Arc<Endpoint>,
        cause: Cause,
        wait: Option<Duration>,
        how: &str,
    ) {
        self.said_no(at, cause, wait);
        let what = format!("the prefill leg {how}");
        let why = ended_both(&what);
        if let Some(trace) = &mut self.log.trace {
            trace.failed(cause.as_str(), &why);
        }
        if cause == Cause::Busy {
            self.last_refusal = Some((what, Fault::Engine));
        } else {
            self.last_break = Some((PAIR_FAILED, why));
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

    /// The decode leg was answered with an error before its prompt was computed.
    pub(super) async fn decode_said_no(
        &mut self,
        prefill: &Arc<Endpoint>,
        started: Started,
        decode: Reservation,
        decision: Decision,
    ) -> Option<Answered> {
        let endpoint = Arc::clone(decode.endpoint());
        let Started { head, first, rest } = started;
        // A full queue says nothing of what is handed over.
        let is_busy = Cause::of(head.status) == Some(Cause::Busy);
        if !is_busy {
            decode.could_not_fetch_from(prefill);
        }
        let answered = self.passed_on((head, first, Some(rest)), decode, decision).await;
        if answered.is_none() && !is_busy {
            self.suspect(prefill, &endpoint);
        }
        answered
    }

    /// The pair failed before the prompt was computed: whose fault it is shows by who fails with whom.
    fn not_handed_over(&mut self, prefill: &Arc<Endpoint>, decode: &Reservation) {
        decode.could_not_fetch_from(prefill);
        self.suspect(prefill, decode.endpoint());
    }

    /// Either of these may be at fault: neither is in the next pair where there is another one for its part.
    fn suspect(&mut self, prefill: &Arc<Endpoint>, decode: &Arc<Endpoint>) {
        let is_one =
            |known: &Arc<Endpoint>| known.same_engine(prefill) || known.same_engine(decode);
        self.tried.retain(|known| !is_one(known));
        let (computes, answers) = (self.has_another(prefill), self.has_another(decode));
        if computes || !answers {
            self.tried.push(Arc::clone(prefill));
        }
        if answers || !computes {
            self.tried.push(Arc::clone(decode));
        }
    }

    /// Whether there is another engine of this one's part that was not tried.
    fn has_another(&self, one: &Endpoint) -> bool {
        self.pool.members().iter().any(|member| {
            self.pool.role(member) == self.pool.role(one)
                && self.pool.is_in_service(member)
                && !member.same_engine(one)
                && !self.tried.iter().any(|known| known.same_engine(member))
        })
    }

    /// The other leg failed.
    pub(super) fn abort(&mut self, leg: Leg) {
        if let Some(trace) = &mut self.log.trace {
            trace.aborted(leg);
        }
    }
}

/// Why both legs ended with the prefill leg, for people.
fn ended_both(what: &str) -> String {
    format!("{what}; its decode leg ended with it, and no KV was handed over")
}
