//! Requests of a connection: how many are open, and HTTP/2 streams whose client opens no window.
//!
//! A client that takes nothing of one stream goes on reading its connection, so no write is ever
//! pending there. What shows is that the answer's body yielded a frame and is not asked for the next.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::connection::Client;
use crate::relay::AnswerBody;

/// What the body of an answer did when it was last polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It was not.
    NotPolled,
    /// It gave a frame: whoever asked has yet to get rid of it.
    Yielded,
    /// It waits for the engine, or is at its end.
    Waits,
}

thread_local! {
    /// Of the body that was polled last on this thread: bodies are polled inside the futures that
    /// send them, which read it right after.
    static LAST: Cell<Last> = const { Cell::new(Last::NotPolled) };
}

/// An answer's body; its request counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Answer {
    inner: AnswerBody,
    _open: Open,
}

impl Answer {
    pub(super) fn new(inner: AnswerBody, open: Open) -> Self {
        Self { inner, _open: open }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = <AnswerBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        let yielded = matches!(frame, Poll::Ready(Some(Ok(_))));
        LAST.set(if yielded { Last::Yielded } else { Last::Waits });
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Open(Arc<Client>);

impl Open {
    pub(super) fn new(client: Arc<Client>) -> Self {
        client.began();
        Self(client)
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Runs the streams of HTTP/2 connections as tasks, and ends those whose client takes nothing.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor {
    pub(super) limit: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(unless_stalled(stream, self.limit));
    }
}

/// Drops `stream` when its answer had a frame to send for so long, and could not.
async fn unless_stalled<F: Future<Output = ()>>(stream: F, limit: Duration) {
    let mut stream = pin!(stream);
    let mut last = Last::NotPolled;
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        LAST.set(Last::NotPolled);
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match LAST.get() {
            // Nothing was taken since the poll before: the timer goes on.
            Last::NotPolled => {}
            polled => (last, timer) = (polled, None),
        }
        if last != Last::Yielded {
            return Poll::Pending;
        }
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        metrics::counter!("kvasir_write_stalls_total", "level" => "stream").increment(1);
        tracing::info!(?limit, "a client takes nothing of an answer: its stream is ended");
        Poll::Ready(())
    })
    .await;
}
