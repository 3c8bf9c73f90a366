//! Bodies of answers, and how they break on purpose.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::generate::EventStream;
use super::idle::Busy;

/// The body ends here although it is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine broke off")]
pub(super) struct Broken;

/// The body of any answer.
#[derive(Debug)]
pub(super) struct Payload {
    kind: Kind,
    breaking: Breaking,
    /// Tells its connection that it is over.
    _busy: Option<Busy>,
}

#[derive(Debug)]
enum Kind {
    Full(Full<Bytes>),
    Stream(Box<EventStream>),
}

/// How far a body that breaks on purpose has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaking {
    No,
    AfterFirst,
    /// The first part is out; the connection gets a turn to write it.
    Flushing,
    Now,
}

impl Payload {
    pub(super) fn full(body: Full<Bytes>) -> Self {
        Self { kind: Kind::Full(body), breaking: Breaking::No, _busy: None }
    }

    pub(super) fn stream(body: EventStream) -> Self {
        Self { kind: Kind::Stream(Box::new(body)), breaking: Breaking::No, _busy: None }
    }

    /// Its connection is busy for as long as it is there.
    pub(super) fn keeps(self, busy: Busy) -> Self {
        Self { _busy: Some(busy), ..self }
    }

    /// Ends with an error after its first part, or after half of its only one.
    pub(super) fn broken(self) -> Self {
        Self { breaking: Breaking::AfterFirst, ..self }
    }

    fn poll_kind(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.kind {
            Kind::Full(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|f| f.map_err(|e| match e {})))
            }
            Kind::Stream(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        match this.breaking {
            Breaking::No => this.poll_kind(cx),
            Breaking::AfterFirst => {
                let frame = std::task::ready!(this.poll_kind(cx));
                this.breaking = Breaking::Flushing;
                let whole = matches!(this.kind, Kind::Full(_));
                let Some(Ok(data)) = frame.map(|f| f.map(Frame::into_data)) else {
                    return Poll::Ready(Some(Err(Broken)));
                };
                let mut data = data.unwrap_or_default();
                if whole {
                    data.truncate(data.len() / 2);
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Breaking::Flushing => {
                this.breaking = Breaking::Now;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Breaking::Now => Poll::Ready(Some(Err(Broken))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match (&self.kind, self.breaking) {
            (Kind::Full(body), Breaking::No) => body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            // Also when it breaks: it was meant to be whole.
            Kind::Full(body) => body.size_hint(),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}
