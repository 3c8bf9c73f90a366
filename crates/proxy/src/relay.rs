//! The body of an answer on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use kvasir_fleet::Reservation;
use kvasir_upstream::AnswerStream;

use crate::access_log::AccessLog;
use crate::owners::{IdTap, Owner, Owners};
use crate::parity::Judge;
use crate::usage::UsageTap;

/// An answer of our own, or an engine's.
pub(crate) type AnswerBody = Either<Full<Bytes>, Box<Relay>>;

/// A body that is there as a whole.
pub(crate) fn whole(text: String) -> AnswerBody {
    Either::Left(Full::new(Bytes::from(text)))
}

/// Passes an engine's frames on as they come. It carries the request's guards: when it is dropped,
/// for whatever reason, the endpoint's load is released and the access log line is written.
#[derive(Debug)]
pub(crate) struct Relay {
    first: Option<Frame<Bytes>>,
    rest: AnswerStream,
    tap: UsageTap,
    /// Waits for the id of what the engine stores.
    stores: Option<Box<Stores>>,
    ended: bool,
    /// Compares the answer with what was predicted of it, when it is over.
    judge: Option<Box<Judge>>,
    log: AccessLog,
    reservation: Reservation,
}

#[derive(Debug)]
struct Stores {
    tap: IdTap,
    owners: Arc<Owners>,
    owner: Owner,
}

impl Relay {
    pub(crate) fn new(
        first: Option<Frame<Bytes>>,
        rest: AnswerStream,
        reservation: Reservation,
        stores: Option<(Arc<Owners>, Owner)>,
        judge: Option<Judge>,
        log: AccessLog,
    ) -> Self {
        let stores =
            stores.map(|(owners, owner)| Box::new(Stores { tap: IdTap::default(), owners, owner }));
        let tap = UsageTap::new(judge.as_ref().map(|judge| judge.api));
        let judge = judge.map(Box::new);
        Self { first, rest, tap, stores, ended: false, judge, log, reservation }
    }

    fn note(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.log.bytes_out += data.len() as u64;
            self.tap.see(data);
            if let Some(stores) = &mut self.stores
                && let Some(id) = stores.tap.see(data)
            {
                stores.owners.put(id, stores.owner.clone());
                self.stores = None;
            }
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let next = match this.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut this.rest).poll_frame(cx),
        };
        match &next {
            Poll::Ready(Some(Ok(frame))) => this.note(frame),
            Poll::Ready(Some(Err(_))) => {
                this.ended = true;
                this.log.engine_broke();
            }
            Poll::Ready(None) => this.ended = true,
            Poll::Pending => {}
        }
        if matches!(next, Poll::Ready(None)) {
            this.log.complete();
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + held);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // A body of known length is not polled past its last byte.
        if !self.ended && self.is_end_stream() {
            self.log.complete();
        }
        let mut usage = self.tap.found();
        if !self.log.is_complete() {
            self.reservation.uncounted();
        }
        if let Some(judge) = &self.judge {
            usage.cached_tokens = judge.judge(&self.reservation, &self.log, usage);
        }
        self.log.usage = usage;
    }
}
