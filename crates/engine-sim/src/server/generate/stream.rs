//! The body of a streamed answer: an event a token, as they come.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::{Body, Frame};

use super::answer::{Answer, event};
use super::{Begun, Ticket};
use crate::server::body::{Broken, Payload};
use crate::server::rank::Generated;
use crate::server::refusal::Refusal;

/// A streamed answer.
#[derive(Debug)]
pub(in crate::server) struct EventStream {
    answer: Answer,
    source: Source,
    events: VecDeque<Bytes>,
    done: bool,
}

/// Where tokens come from.
enum Source {
    /// They will come from there.
    Starting(Starting),
    Running(Begun),
    Over,
}

/// What has to happen before there are tokens.
pub(super) type Starting = Pin<Box<dyn Future<Output = Result<Begun, Refusal>> + Send>>;

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting(_) => "Starting",
            Self::Running(_) => "Running",
            Self::Over => "Over",
        })
    }
}

impl EventStream {
    /// A stream of what is being generated.
    pub(super) fn running(answer: Answer, begun: Begun) -> Self {
        let source = Source::Running(begun);
        Self { answer, source, events: VecDeque::new(), done: false }
    }

    /// A stream whose head is out before anything else happens, and errors after it.
    pub(super) fn starting(answer: Answer, start: Starting) -> Self {
        let source = Source::Starting(start);
        Self { answer, source, events: VecDeque::new(), done: false }
    }

    /// A stream of what has been generated.
    pub(super) fn of(answer: Answer, events: VecDeque<Bytes>, ticket: Ticket) -> Self {
        drop(ticket);
        Self { answer, source: Source::Over, events, done: true }
    }

    /// The response with this body.
    pub(super) fn response(self) -> Response<Payload> {
        let mut response = Response::new(Payload::stream(self));
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// vLLM's end of a stream that fails.
    fn fail(&mut self, refusal: &Refusal) {
        self.events.push_back(event(&refusal.to_json()));
        self.events.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        self.source = Source::Over;
        self.done = true;
    }

    fn take_in(&mut self, next: Generated) {
        match next {
            Generated::Token { choice, token, finished, cached_tokens, .. } => {
                let token = match &self.source {
                    Source::Running((ticket, _)) => ticket.told(token),
                    Source::Starting(_) | Source::Over => token,
                };
                let events = Some(&mut self.events);
                self.answer.token(choice, token, finished, cached_tokens, events);
                if let (Source::Running(begun), true) = (&mut self.source, finished.is_some()) {
                    begun.0.ended(choice);
                }
                self.done = self.answer.is_finished();
            }
            Generated::Refused(error) => self.fail(&Refusal::bad(error.to_string())),
        }
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.events.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            if this.done {
                return Poll::Ready(None);
            }
            match &mut this.source {
                Source::Starting(start) => match std::task::ready!(start.as_mut().poll(cx)) {
                    Ok(begun) => this.source = Source::Running(begun),
                    Err(refusal) => this.fail(&refusal),
                },
                Source::Running((_, generated)) => {
                    match std::task::ready!(generated.poll_recv(cx)) {
                        Some(next) => this.take_in(next),
                        // The engine is gone, and so is its connection to the client.
                        None => return Poll::Ready(Some(Err(Broken))),
                    }
                }
                Source::Over => return Poll::Ready(None),
            }
        }
    }
}
