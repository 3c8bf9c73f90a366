//! Response bodies: paced frames, and the wrapper that notes the last frame.

use super::wire::{Exchanges, Stage};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// What a request gets as body: some bytes at once, or frames in time.
#[derive(Debug)]
pub(super) enum Payload {
    Full(Option<Bytes>),
    Paced(Paced),
}

impl Payload {
    pub(super) fn full(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|b| !b.is_empty()))
    }
}

/// Frames with a pause before each.
#[derive(Debug)]
pub(super) struct Paced {
    frames: VecDeque<(Duration, Bytes)>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether the body stays open after the last frame, for ever.
    hang: bool,
}

impl Paced {
    pub(super) fn new(frames: impl IntoIterator<Item = (Duration, Bytes)>, hang: bool) -> Self {
        Self { frames: frames.into_iter().collect(), pause: None, hang }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some((gap, _)) = self.frames.front() else {
            return if self.hang { Poll::Pending } else { Poll::Ready(None) };
        };
        if !gap.is_zero() {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(*gap)));
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(self.frames.pop_front().map(|(_, bytes)| bytes))
    }
}

/// A body that tells its exchange when the last frame is handed over.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) payload: Payload,
    pub(super) exchanges: Arc<Exchanges>,
    pub(super) id: u64,
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.payload {
            Payload::Full(bytes) => bytes.take(),
            Payload::Paced(paced) => ready!(paced.poll_next(cx)),
        };
        if next.is_none() || self.is_end_stream() {
            self.exchanges.handed(self.id, Stage::Whole);
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.payload, Payload::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.payload {
            Payload::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Payload::Paced(_) => SizeHint::default(),
        }
    }
}
