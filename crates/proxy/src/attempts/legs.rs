//! A split request whose legs follow each other: the prefill engine answers where the prompt's blocks
//! lie, and a decode engine goes on from there. Another one does where the first certainly did nothing
//! with them, as long as they are kept. Blocks are read without asking (NIXL): once they may have been
//! fetched, or their time may be up, they may be another prompt's, and nobody would notice. Then a
//! decode engine computes the prompt itself, which is named.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http::response::Parts;
use kvasir_fleet::{
    Decision, Endpoint, PairPlan, PrefillSide, Protocol, Reservation, Role, SplitSettings,
};
use kvasir_upstream::{Started, root_cause};

use super::sending::Asked;
use super::whole::{Gathered, gather};
use super::{Answered, Cause, MAX_FAULTS, Tries};
use crate::fault::Fault;
use crate::forward::Failure;
use crate::reading;
use crate::relay::is_event_stream;
use crate::spans::Step;
use crate::split::{self, Handed, Leg, Outcome, Prefilled, Request, Ride, Room};

/// The most that is read of a prefill engine's answer.
const MOST_READ: usize = 1 << 20;

/// Why, for people.
const NO_PREFILL: &str =
    "no prefill engine is there, and decode engines of SGLang compute no prompts";

/// The plan where a leg's body cannot be made: its engine's protocol is another one by now.
pub(super) const NOT_MADE: &str = "unknown_protocol";

/// How far a split request has come.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// What a prefill engine handed over, as long as it may be of use.
    hand: Option<Handed>,
    /// What was decided of the engine that computed it.
    side: Option<PrefillSide>,
    /// Why one engine has to do all of it from now on.
    pub(super) whole: Option<&'static str>,
    /// The engine that could not fetch the blocks may compute the prompt, where nobody else is.
    here: bool,
    /// How many pairs got it at once.
    pub(super) pairs: u32,
    /// A prefill engine answered with an error of its own, and so is alive.
    prefill_erred: bool,
}

impl Split {
    /// The engine from whose blocks a decode engine can go on.
    pub(super) fn live_hand(&self) -> Option<&Endpoint> {
        let hand = self.hand.as_ref().filter(|hand| hand.is_live())?;
        Some(&**hand.lease.endpoint())
    }

    /// How many engines at fault do not count against the request: a prefill engine that answers with an error
    /// was not broken by it, and nobody but a decode engine can tell whether the prompt can be computed.
    pub(super) fn forgiven(&self) -> u32 {
        u32::from(self.prefill_erred)
    }

    /// Whether the engine that failed may be asked once more, for all of it.
    pub(super) fn may_recompute_here(&self) -> bool {
        self.here
    }

    pub(super) fn recompute_here(&mut self) -> bool {
        std::mem::take(&mut self.here)
    }
}

impl Tries<'_> {
    /// Sends both legs, by the protocol of the prefill engine.
    pub(super) async fn split_up(
        &mut self,
        prefill: Reservation,
        decode: Reservation,
        decision: Decision,
    ) -> Option<Answered> {
        let pool = Arc::clone(&self.pool);
        let (Some(settings), Some(protocol)) = (pool.split(), pool.protocol(prefill.endpoint()))
        else {
            // An engine that has not said yet what it is.
            drop(prefill);
            self.split.whole = Some("unknown_protocol");
            return self.send_whole(decode, decision).await;
        };
        if protocol == Protocol::Sglang {
            return self.pair(prefill, decode, decision, settings).await;
        }
        match self.prefill(prefill, &decision, settings, protocol).await? {
            Prefix::Answer(answered) => Some(*answered),
            Prefix::Handed(hand) => self.decode(decode, decision, hand, settings).await,
            Prefix::Missing => self.send_whole(decode, decision).await,
        }
    }

    /// One engine was chosen: for the decode leg, where the prompt is computed already, or for all of
    /// it.
    pub(super) async fn go_on(
        &mut self,
        reservation: Reservation,
        mut decision: Decision,
    ) -> Option<Answered> {
        let pool = Arc::clone(&self.pool);
        let decodes = pool.role(reservation.endpoint()) == Role::Decode;
        // Whom it cannot be handed over to was chosen to compute.
        let fetches = decision.plan == Some(PairPlan::Split);
        let hand = self.split.hand.take().filter(|_| decodes && fetches);
        match (hand, pool.split()) {
            (Some(hand), Some(settings)) => {
                // Where the prompt was computed was decided before.
                decision.prefill = self.split.side.take().or(decision.prefill);
                self.split.side.clone_from(&decision.prefill);
                self.decode(reservation, decision, hand, settings).await
            }
            _ => {
                if decodes && self.cannot_compute(&reservation) {
                    self.cause = Some(Cause::Connect);
                    self.last_refusal.get_or_insert_with(|| (NO_PREFILL.to_owned(), Fault::Engine));
                    self.tried.push(Arc::clone(reservation.endpoint()));
                    return None;
                }
                if self.split.whole.is_none()
                    && self.log.prefill_endpoint.is_some()
                    && matches!(decision.plan, Some(PairPlan::NoPrefill | PairPlan::DecodeAlone))
                {
                    self.split.whole = Some("prefill_failed");
                }
                self.send_whole(reservation, decision).await
            }
        }
    }

    /// `SGLang`'s decode engines compute no prompts. What says by itself where its blocks lie is sent as
    /// it is.
    fn cannot_compute(&self, reservation: &Reservation) -> bool {
        self.pool.protocol(reservation.endpoint()) == Some(Protocol::Sglang)
            && self.plan.why_whole(&self.pool).is_none()
    }

    async fn prefill(
        &mut self,
        mut reservation: Reservation,
        decision: &Decision,
        settings: &SplitSettings,
        protocol: Protocol,
    ) -> Option<Prefix> {
        let began = Instant::now();
        let limit = settings.prefill_timeout;
        let room = (protocol == Protocol::Trtllm).then(|| self.app.rooms.take());
        let number = room.as_ref().map_or(0, |room| room.number);
        let make = move |request: &Request| split::prefill_body(protocol, request, number);
        let Some(body) = self.spliced(make).await else {
            self.split.whole = Some(NOT_MADE);
            return Some(Prefix::Missing);
        };
        let asked = Asked { body: &body, leg: Some(Leg::Prefill), limit: Some(limit) };
        let Some(started) = self.ask(&mut reservation, decision, asked).await else {
            self.no_prefix();
            return None;
        };
        if !started.head.status.is_success() {
            self.split.prefill_erred |= Cause::of(started.head.status) == Some(Cause::Error);
            let Some(answered) = self.answered(started, reservation, decision.clone()).await else {
                self.no_prefix();
                return None;
            };
            return Some(Prefix::Answer(Box::new(answered)));
        }
        // Whichever comes first. Where it is the end of the whole request, no engine is at fault.
        let until = self.deadline.map_or(began + limit, |end| end.min(began + limit));
        let Started { head, first, rest } = started;
        let first = first.and_then(|frame| frame.into_data().ok());
        let answer = match gather(first, rest, MOST_READ, until).await {
            Ok(Gathered::Whole(answer)) => answer,
            // It is not read any further: the engine learns by it that nobody waits.
            Ok(Gathered::Long) => Bytes::new(),
            Err(broken) => {
                self.prefix_broke(
                    &mut reservation,
                    broken.map(|broken| root_cause(&broken)),
                    began,
                );
                return None;
            }
        };
        Leg::Prefill.took(began, false);
        reservation.answered();
        reservation.first_data(true);
        let length = answer.len();
        let read = answer.clone();
        let read = move || split::prefilled(protocol, &read);
        let prefilled = reading::on(&self.app.permits.readers, length, read).await;
        let prefilled = prefilled.unwrap_or_else(Prefilled::nothing);
        let terms = Terms { lease: settings.lease, protocol, room, sent: began };
        Some(self.computed((head, &answer, prefilled), reservation, decision, terms))
    }

    /// The prefill engine's answer is there.
    fn computed(
        &mut self,
        (head, answer, Prefilled { usage, outcome }): (Parts, &[u8], Prefilled),
        reservation: Reservation,
        decision: &Decision,
        terms: Terms,
    ) -> Prefix {
        if let Some(judge) = &self.plan.judge {
            let judge = judge.of_prefill(decision, self.log, false);
            self.log.prefill_reported = Some(judge.judge(&reservation, true, usage));
        }
        self.log.note(Step::Held);
        self.prefix_is_there();
        match outcome {
            Outcome::Handed { params, details, kept } => {
                let (time, since) = terms.lease(kept);
                let lease = reservation.lease(time, since);
                self.split.side.clone_from(&decision.prefill);
                let Terms { protocol, room, .. } = terms;
                Prefix::Handed(Handed { params, details, lease, protocol, _room: room })
            }
            Outcome::Finished => {
                let (api, streamed) = (self.plan.api, self.log.stream);
                let request = self.plan.request().as_ref().ok();
                let finish = |request| split::finish(head, answer, api, request, streamed);
                match request.and_then(|request| finish(request)) {
                    Some((head, first)) => Prefix::Answer(Box::new(Answered {
                        head,
                        first: Some(first),
                        rest: None,
                        endpoint: Arc::clone(reservation.endpoint()),
                        pool: Arc::clone(&self.pool),
                        decision: decision.clone(),
                        reservation: None,
                        ride: None,
                    })),
                    None => self.ended_early(),
                }
            }
            Outcome::Early => self.ended_early(),
            Outcome::Missing => {
                reservation.handed_nothing();
                self.params_missing()
            }
        }
    }

    /// A body made of the client's; `None` where none can be.
    pub(super) async fn spliced(
        &self,
        make: impl FnOnce(&Request) -> Option<Bytes> + Send + 'static,
    ) -> Option<Bytes> {
        let request = Arc::clone(self.plan.request().as_ref().ok()?);
        let length = request.len();
        reading::on(&self.app.permits.readers, length, move || make(&request)).await.flatten()
    }

    /// The decode leg. What was handed over stays for another one where this engine certainly did
    /// nothing with it.
    async fn decode(
        &mut self,
        mut reservation: Reservation,
        decision: Decision,
        hand: Handed,
        settings: &SplitSettings,
    ) -> Option<Answered> {
        let (protocol, params) = (hand.protocol, Arc::clone(&hand.params));
        let make = move |request: &Request| split::decode_body(protocol, request, &params);
        let body = self.spliced(make).await.filter(|_| hand.is_live());
        let Some(body) = body else {
            self.split.whole = Some(if hand.is_live() { NOT_MADE } else { "lease_expired" });
            drop(hand);
            return self.send_whole(reservation, decision).await;
        };
        reservation.decode_begins(!self.log.stream);
        let began = Instant::now();
        // The first data of an answer that is not streamed comes when all of it was generated: only of
        // a stream it shows in time that the blocks were fetched.
        hand.lease.set_sent(!self.log.stream);
        let limit = self.log.stream.then_some(settings.decode_timeout);
        let asked = Asked { body: &body, leg: Some(Leg::Decode), limit };
        let taken = self.taken;
        let Some(started) = self.ask(&mut reservation, &decision, asked).await else {
            // What is not streamed may just be long.
            let is_late = |(code, _): &(&str, String)| *code == Leg::Decode.timeout();
            if self.log.stream && self.late.as_ref().is_some_and(is_late) {
                reservation.could_not_fetch_from(hand.lease.endpoint());
            }
            self.keep_hand(hand, self.taken == taken);
            return None;
        };
        let (head, first, rest) = match split::failed_fetch(started) {
            Ok(started) => (started.head, started.first, Some(started.rest)),
            Err((head, error)) => (head, Some(error), None),
        };
        let status = head.status;
        if status.is_success() {
            Leg::Decode.took(began, is_event_stream(&head));
            reservation.has_fetched_from(hand.lease.endpoint());
            let ride = Ride { details: hand.details, both: None };
            hand.lease.fetched();
            let mut answered = self.answer((head, first, rest), reservation, decision).await?;
            answered.ride = Some(ride);
            return Some(answered);
        }
        match Cause::of(status) {
            Some(cause) => {
                // Engines say so where they could not fetch the blocks.
                self.split.here = status == StatusCode::INTERNAL_SERVER_ERROR;
                if self.split.here {
                    reservation.could_not_fetch_from(hand.lease.endpoint());
                }
                self.keep_hand(hand, cause == Cause::Busy);
            }
            // The request's own fault.
            None => drop(hand),
        }
        self.answer((head, first, rest), reservation, decision).await
    }

    /// A decode leg failed: `untouched` says that its engine did nothing with what was handed over.
    /// Else the blocks may have been fetched, and freed: nobody is sent for them again.
    fn keep_hand(&mut self, hand: Handed, untouched: bool) {
        if untouched {
            hand.lease.set_sent(false);
            self.split.hand = Some(hand);
        } else {
            drop(hand);
            self.split.whole = Some("transfer_failed");
        }
    }

    /// The prompt is computed, whatever failed before.
    fn prefix_is_there(&mut self) {
        self.count_retry("ok");
        self.cause = None;
        self.held = None;
        self.last_break = None;
        self.last_refusal = None;
    }

    /// It came to its end with the first token, which hands nothing over and is no answer for the client.
    fn ended_early(&mut self) -> Prefix {
        self.split.whole = Some("ended_early");
        Prefix::Missing
    }

    fn params_missing(&mut self) -> Prefix {
        self.split.whole = Some("params_missing");
        let model = self.plan.resolved.pool.model().to_owned();
        metrics::counter!("kvasir_pd_params_missing_total", "model" => model).increment(1);
        Prefix::Missing
    }

    /// A prefill leg failed. Where only one more engine may get the request, it is one that can do all of it.
    fn no_prefix(&mut self) {
        if self.faults >= MAX_FAULTS || self.sent + 1 >= self.settings.attempts {
            self.split.whole = Some("prefill_failed");
        }
    }

    /// A prefill engine began to answer, and did not come to its end. `why` is `None` where it took
    /// too long.
    fn prefix_broke(&mut self, reservation: &mut Reservation, why: Option<String>, began: Instant) {
        let failure = why.map_or_else(|| Failure::late(began.elapsed()), Failure::broke);
        self.fault(reservation, &failure);
        let endpoint = Arc::clone(reservation.endpoint());
        // It was at work on the request, however soon that was.
        self.failed(endpoint, &failure, Duration::MAX, Some(Leg::Prefill));
        self.no_prefix();
    }
}

/// What a hand-over goes by.
struct Terms {
    /// For how long the engine keeps blocks, as configured.
    lease: Duration,
    protocol: Protocol,
    room: Option<Room>,
    /// When the prefill leg was.
    sent: Instant,
}

impl Terms {
    /// How long the blocks are kept, and since when. When the engine's time began is not known, but
    /// not before the leg was sent; where it says when it ends, that is what counts, as long as it is
    /// not later than it can be.
    fn lease(&self, said: Option<Duration>) -> (Duration, Instant) {
        let now = Instant::now();
        said.map_or((self.lease, self.sent), |left| (left.min(self.lease), now))
    }
}

/// What came of a prefill leg.
enum Prefix {
    Handed(Handed),
    /// To be passed on.
    Answer(Box<Answered>),
    /// Nothing to go on from.
    Missing,
}
