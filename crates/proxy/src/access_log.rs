//! One line per request, and the metrics that go with it, however the request ends.

mod counts;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Method};
use kvasir_fleet::{Decision, PairPlan, PairSelect, Pool, PrefillSide};

use crate::fault::Fault;
use crate::observer::{Observer, Served};
use crate::refusal::Refusal;
use crate::relay::Break;
use crate::spans::{Decided, Ended, Step, Trace};
use crate::token_header::Claim;
use crate::usage::Usage;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The client left before the answer was complete.
    ClientLeft,
    /// The answer was relayed to its end.
    Complete,
    /// We answered with an error of our own.
    Refused(&'static str, Fault),
    /// An answer had begun and was not completed.
    Broken(Break),
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::ClientLeft => "client_left",
            Self::Complete => "complete",
            Self::Refused(code, _) => code,
            Self::Broken(why) => why.code(),
        }
    }

    /// Whose fault it is that there is no whole answer; `None` where there is.
    fn fault(self) -> Option<Fault> {
        match self {
            Self::Complete => None,
            Self::ClientLeft => Some(Fault::Client),
            Self::Refused(_, fault) => Some(fault),
            Self::Broken(why) => Some(why.fault()),
        }
    }
}

/// Collects what is known about a request; dropping it writes the line. Until something else is
/// said the outcome is that the client left, since that is what dropping a request half way means.
#[derive(Debug)]
pub(crate) struct AccessLog {
    started: Instant,
    /// Whether the line is written, and the request counted.
    written: bool,
    method: Method,
    path: String,
    request_id: HeaderValue,
    outcome: Outcome,
    /// Who else is told.
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The pool that serves it, once that is known and somebody is told.
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) model: Option<String>,
    /// How far the prompt is known: `tokens`, `text` or `none`.
    pub(crate) level: &'static str,
    /// `exact`, or why the prompt's tokens are not known, or not exactly.
    pub(crate) tokens: &'static str,
    /// Where the tokens are from: `local`, `body`, `header` or `none`.
    pub(crate) token_source: &'static str,
    /// What the client said of its tokens.
    pub(crate) claim: Option<Claim>,
    pub(crate) stream: bool,
    pub(crate) status: u16,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) attempts: u32,
    /// How long it waited for room, or for an engine to be ready.
    pub(crate) waited: Option<Duration>,
    /// Why the request was not sent to yet another engine after one failed.
    pub(crate) no_retry: Option<&'static str>,
    pub(crate) endpoint: Option<String>,
    /// The endpoint's data-parallel rank, where it is one.
    pub(crate) rank: Option<u32>,
    pub(crate) decision: Option<Decision>,
    /// How it was served in the end, in pools that split requests.
    pub(crate) plan: Option<&'static str>,
    /// The last engine that was asked to compute its prompt for another one.
    pub(crate) prefill_endpoint: Option<String>,
    /// The cached tokens that this engine reported, if it did, where its answer was read.
    pub(crate) prefill_reported: Option<Option<u64>>,
    /// Why it was not split, in such pools.
    pub(crate) not_split: Option<&'static str>,
    /// Time to the first data of the answer, and whether that was the first token.
    first_data: Option<(Duration, bool)>,
    /// Whether what the engine reports of its cache can be held against the prediction.
    pub(crate) comparable: bool,
    pub(crate) usage: Usage,
    /// Of a request that is sampled.
    pub(crate) trace: Option<Trace>,
}

impl AccessLog {
    pub(crate) fn begin(method: Method, path: &str, request_id: HeaderValue) -> Self {
        Self {
            started: Instant::now(),
            written: true,
            method,
            path: path.to_owned(),
            request_id,
            outcome: Outcome::ClientLeft,
            observer: None,
            pool: None,
            model: None,
            level: "none",
            tokens: "not_tried",
            token_source: "none",
            claim: None,
            stream: false,
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
            attempts: 0,
            waited: None,
            no_retry: None,
            endpoint: None,
            rank: None,
            decision: None,
            plan: None,
            prefill_endpoint: None,
            prefill_reported: None,
            not_split: None,
            first_data: None,
            comparable: true,
            usage: Usage::default(),
            trace: None,
        }
    }

    /// Of what is no request: nothing is written.
    pub(crate) fn unwritten() -> Self {
        let mut log = Self::begin(Method::POST, "", HeaderValue::from_static(""));
        log.written = false;
        log
    }

    /// Whether it is a request's.
    pub(crate) fn is_written(&self) -> bool {
        self.written
    }

    /// Notes when a sampled request came so far.
    pub(crate) fn note(&mut self, step: Step) {
        if let Some(trace) = &mut self.trace {
            trace.note(step);
        }
    }

    /// The engine began to answer.
    pub(crate) fn first_data(&mut self, streamed: bool) {
        self.first_data = Some((self.started.elapsed(), streamed));
    }

    pub(crate) fn complete(&mut self) {
        self.outcome = Outcome::Complete;
    }

    /// Whether the engine's answer was relayed to its end, and is none of an error.
    pub(crate) fn is_complete(&self) -> bool {
        self.outcome == Outcome::Complete && (200..300).contains(&self.status)
    }

    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.to_str().ok()
    }

    /// An answer had begun and was not completed.
    pub(crate) fn broke(&mut self, why: Break) {
        self.outcome = Outcome::Broken(why);
    }

    /// When the request's head was read.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        self.outcome = Outcome::Refused(refusal.code(), refusal.fault());
        self.status = refusal.status().as_u16();
    }

    /// What its spans say.
    fn ended(&mut self) -> Ended {
        Ended {
            started: self.started,
            method: self.method.as_str().to_owned(),
            path: std::mem::take(&mut self.path),
            request_id: self.request_id().unwrap_or_default().to_owned(),
            model: self.model.take(),
            endpoint: self.endpoint.take(),
            prefill_endpoint: self.prefill_endpoint.take(),
            plan: self.plan,
            status: self.status,
            outcome: self.outcome.as_str(),
            broken: matches!(self.outcome, Outcome::Broken(_)).then(|| self.outcome.as_str()),
            decision: self.decision.as_ref().map(Decided::of),
            tokens: self.tokens,
            attempts: self.attempts,
            waited_ms: self
                .waited
                .map(|waited| u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)),
            reported_prompt_tokens: self.usage.prompt_tokens,
            reported_cached_tokens: self.usage.cached_tokens,
        }
    }

    /// How the endpoint that answers was chosen, where it is split and that was not by the policy's costs.
    pub(crate) fn decode_by(&self, decision: &Decision) -> Option<&'static str> {
        let by = decision.decode_by.filter(|by| self.is_split() && *by != PairSelect::Cost);
        by.map(PairSelect::as_str)
    }

    /// Whether it was served in two legs in the end.
    pub(crate) fn is_split(&self) -> bool {
        self.plan == Some(PairPlan::Split.as_str())
    }

    /// Whether it was sent to no more engines than serve it: no other one may have computed of it before.
    pub(crate) fn is_first_try(&self) -> bool {
        self.attempts <= 1 + u32::from(self.is_split())
    }

    /// Where its prompt was computed, if not where it was answered.
    pub(crate) fn prefill_side<'d>(&self, decision: &'d Decision) -> Option<&'d PrefillSide> {
        decision.prefill.as_ref().filter(|_| self.is_split())
    }

    /// Tokens that the engine which computed the prompt was credited with holding, and with computing
    /// for others.
    fn credit(&self, decision: &Decision) -> (u64, u64) {
        match self.prefill_side(decision) {
            Some(side) => (side.overlap.resident().into(), side.pending.into()),
            None => (decision.overlap.resident().into(), decision.pending.into()),
        }
    }

    fn tell(&self, took: Duration) {
        let (Some(observer), Some(decision)) = (&self.observer, &self.decision) else { return };
        let (overlap, pending) = self.credit(decision);
        observer.served(Served {
            request_id: self.request_id(),
            path: &self.path,
            pool: self.pool.as_ref().map_or("", |pool| pool.model()),
            model: self.model.as_deref().unwrap_or_default(),
            endpoint: self.endpoint.as_deref(),
            prefill_endpoint: self.prefill_endpoint.as_deref(),
            plan: self.plan,
            decision,
            overlap,
            pending,
            level: self.level,
            tokens: self.tokens,
            reported_cached_tokens: self.usage.cached_tokens,
            reported_prompt_tokens: self.usage.prompt_tokens,
            comparable: self.comparable && self.tokens == "exact",
            attempts: self.attempts,
            status: self.status,
            outcome: self.outcome.as_str(),
            first_data_ms: self.first_data.map(|(took, _)| millis(took)),
            total_ms: millis(took),
        });
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        if !self.written {
            return;
        }
        let took = self.started.elapsed();
        self.count(took);
        self.tell(took);
        let decision = self.decision.as_ref();
        tracing::info!(
            target: "kvasir::access",
            request_id = self.request_id(),
            method = %self.method,
            path = self.path,
            model = self.model.as_deref(),
            status = self.status,
            outcome = self.outcome.as_str(),
            fault = self.outcome.fault().map(Fault::as_str),
            endpoint = self.endpoint.as_deref(),
            plan = self.plan,
            decode_by = decision.and_then(|d| self.decode_by(d)),
            prefill_endpoint = self.prefill_endpoint.as_deref(),
            not_split = self.not_split,
            rank = self.rank,
            decision_id = decision.and_then(|d| d.id),
            policy = decision.map(|d| d.policy),
            reason = decision.map(|d| d.reason.as_str()),
            miss = decision.and_then(|d| d.misses().next()).map(|(_, miss)| miss),
            trust = decision.map(|d| d.trust.to_string()),
            level = self.level,
            tokens = self.tokens,
            token_source = self.token_source,
            prompt_tokens = decision.map(|d| d.prompt_tokens),
            overlap_tokens = decision.map(|d| d.overlap.resident()),
            pending_tokens = decision.map(|d| d.pending),
            reported_cached_tokens = self.usage.cached_tokens,
            reported_prompt_tokens = self.usage.prompt_tokens,
            candidates = decision.map(|d| d.candidates),
            attempts = self.attempts,
            waited_ms = self.waited.map(millis),
            no_retry = self.no_retry,
            stream = self.stream,
            bytes_in = self.bytes_in,
            bytes_out = self.bytes_out,
            first_data_ms = self.first_data.map(|(took, _)| millis(took)),
            total_ms = millis(took),
            "request"
        );
        if let Some(trace) = self.trace.take() {
            trace.end(self.ended());
        }
    }
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_two_legs_is_sent_twice_the_first_time() {
        let mut log = AccessLog::begin(Method::POST, "/", HeaderValue::from_static("1"));
        let plans =
            [(None, 1), (Some("unified"), 1), (Some("prefill_failed"), 1), (Some("split"), 2)];
        for (plan, most) in plans {
            log.plan = plan;
            for attempts in 1..4 {
                log.attempts = attempts;
                assert_eq!(log.is_first_try(), attempts <= most, "{plan:?} {attempts}");
            }
        }
    }
}
