//! The prefill leg that goes on beside its decode leg: its answer is read and dropped, and it ends with
//! whoever holds it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http_body_util::BodyExt;
use kvasir_fleet::{Pool, Reservation};
use kvasir_upstream::{AnswerStream, Started, Upstream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Leg, Room, stream_error};
use crate::forward::{Failure, Outgoing, attempt};

/// What is needed to send it.
pub(crate) struct Sending {
    pub(crate) upstream: Upstream,
    pub(crate) pool: std::sync::Arc<Pool>,
    pub(crate) request: Parts,
    pub(crate) body: Bytes,
    pub(crate) left: Duration,
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
    Errored(String, Box<Reservation>),
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
    let Sending { upstream, pool, request, body, left } = sending;
    let endpoint = std::sync::Arc::clone(reservation.endpoint());
    let began = Instant::now();
    let outgoing = Outgoing { pool: &pool, endpoint: &endpoint, request: &request, body: &body };
    // An engine that got it, and lost its connection, may be in the room already.
    let begun = attempt(&upstream, outgoing, || false, Some(left)).await;
    // Nobody may listen any more.
    match begun {
        Ok(started) if started.head.status.is_success() => {
            endpoint.mark_reachable();
            if let Some(error) = stream_error::first(&started) {
                let end = match error.is_clients {
                    true => PrefillEnd::Answered(Box::new(started), Box::new(reservation)),
                    false => PrefillEnd::Errored(error.why, Box::new(reservation)),
                };
                let _ = sender.send(end);
                return;
            }
            reservation.answered();
            reservation.first_data(true);
            Leg::Prefill.took(began);
            let _ = sender.send(PrefillEnd::Computed);
            drain(started.rest).await;
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

async fn drain(mut rest: AnswerStream) {
    while let Some(Ok(_)) = rest.frame().await {}
}
