//! A split request whose legs are sent at once (`SGLang`): the client gets the decode engine's answer. One
//! leg that fails ends the other one; once more it is tried, by another pair in another room. What a failure
//! says of the engines is in `pair_failed`.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_fleet::{Decision, Endpoint, Reservation, SplitSettings};
use kvasir_upstream::Started;
use tokio::sync::oneshot::Receiver;
use tokio::time::timeout;

use super::legs::NOT_MADE;
use super::{Answered, Tries};
use crate::forward::{Failure, Outgoing, attempt};
use crate::relay::is_event_stream;
use crate::split::{self, Bootstrap, Companion, Leg, PrefillEnd, Request, Ride, Sending};

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
                drop(companion);
                self.abort(Leg::Decode);
                self.prefill_ended(at, end, decode, decision, began.elapsed()).await
            }
            First::Decode(begun, computed) => match *begun {
                Ok(started) if started.head.status.is_success() => {
                    self.decode_begun(started, decode, decision, (companion, &at, began)).await
                }
                Ok(started) => {
                    drop(companion);
                    self.abort(Leg::Prefill);
                    self.note_decode(&started, &decode);
                    if computed || !started.head.status.is_server_error() {
                        return self.answered(started, decode, decision).await;
                    }
                    self.decode_said_no(&at, started, decode, decision).await
                }
                Err(failure) => {
                    drop(companion);
                    self.abort(Leg::Prefill);
                    self.decode_failed(&at, decode, &failure, began.elapsed(), computed);
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

    fn note_decode(&mut self, started: &Started, decode: &Reservation) {
        decode.endpoint().mark_reachable();
        if let Some(trace) = &mut self.log.trace {
            trace.answered(started.head.status.as_u16());
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
}
