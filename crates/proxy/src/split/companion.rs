//! The prefill leg that goes on beside its decode leg: its answer is read and dropped, and it ends with
//! whoever holds it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http_body_util::BodyExt;
use kvasir_fleet::{Pool, Reservation};
use kvasir_upstream::{Started, Upstream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Leg, Room, stream_error};
use crate::forward::{Failure, Outgoing, attempt};
use crate::parity::PrefillJudge;
use crate::relay::is_event_stream;
use crate::usage::UsageTap;

/// What is needed to send it.
pub(crate) struct Sending {
    pub(crate) upstream: Upstream,
    pub(crate) pool: std::sync::Arc<Pool>,
    pub(crate) request: Parts,
    pub(crate) body: Bytes,
    pub(crate) left: Duration,
    /// Holds its answer against what was predicted.
    pub(crate) judge: Option<PrefillJudge>,
}

/// A prefill leg on its way, and the room it meets its decode leg in. Dropping it closes its
/// connection, which is how its engine learns that nobody waits.
#[derive(Debug)]
pub(crate) struct Companion {
    task: JoinHandle<()>,
    _room: Room,
}

/// How it went until its first data.
#[derive(Debug)]
pub(crate) enum PrefillEnd {
    /// The rest is read and dropped.
    Computed,
    /// An answer that is no success.
    Answered(Box<Started>, Box<Reservation>),
    /// A stream of success that begins with an error of the engine's.
    Errored(String),
    Failed(Failure, Box<Reservation>),
    /// Its task is gone, which it never is.
    Lost,
}

impl Companion {
    /// Sends it.
    pub(crate) fn send(
        sending: Sending,
        reservation: Reservation,
        room: Room,
    ) -> (Self, oneshot::Receiver<PrefillEnd>) {
        let (sender, receiver) = oneshot::channel();
        let task = tokio::spawn(run(sending, reservation, sender));
        (Self { task, _room: room }, receiver)
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(sending: Sending, mut reservation: Reservation, sender: oneshot::Sender<PrefillEnd>) {
    let Sending { upstream, pool, request, body, left, judge } = sending;
    let endpoint = std::sync::Arc::clone(reservation.endpoint());
    let began = Instant::now();
    let (leg, request) = (Some(Leg::Prefill), &request);
    let outgoing = Outgoing { pool: &pool, endpoint: &endpoint, request, body: &body, leg };
    // An engine that got it, and lost its connection, may be in the room already.
    let begun = attempt(&upstream, outgoing, || false, Some(left)).await;
    // Nobody may listen any more.
    match begun {
        Ok(started) if started.head.status.is_success() => {
            endpoint.mark_reachable();
            if let Some(error) = stream_error::first(&started) {
                let end = match error.is_clients {
                    true => PrefillEnd::Answered(Box::new(started), Box::new(reservation)),
                    false => PrefillEnd::Errored(error.why),
                };
                let _ = sender.send(end);
                return;
            }
            reservation.answered();
            reservation.first_data(true);
            Leg::Prefill.took(began, is_event_stream(&started.head));
            let _ = sender.send(PrefillEnd::Computed);
            Rest::of(reservation, judge).read(started).await;
        }
        Ok(started) => {
            endpoint.mark_reachable();
            let _ = sender.send(PrefillEnd::Answered(Box::new(started), Box::new(reservation)));
        }
        Err(failure) => {
            let _ = sender.send(PrefillEnd::Failed(failure, Box::new(reservation)));
        }
    }
}

/// The rest of its answer, of which only the usage is of interest. It is judged however it ends.
struct Rest {
    reservation: Reservation,
    judge: Option<PrefillJudge>,
    tap: UsageTap,
    complete: bool,
}

impl Rest {
    fn of(reservation: Reservation, judge: Option<PrefillJudge>) -> Self {
        Self { reservation, judge, tap: UsageTap::new(None), complete: false }
    }

    async fn read(mut self, started: Started) {
        let Started { first, mut rest, .. } = started;
        let mut next = first.map(Ok);
        if next.is_none() {
            next = rest.frame().await;
        }
        while let Some(Ok(frame)) = next {
            if let Some(data) = frame.data_ref() {
                self.tap.see(data);
            }
            next = rest.frame().await;
        }
        self.complete = next.is_none();
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if !self.complete {
            self.reservation.uncounted();
        }
        if let Some(judge) = &self.judge {
            judge.judge(&self.reservation, self.complete, self.tap.found());
        }
    }
}
