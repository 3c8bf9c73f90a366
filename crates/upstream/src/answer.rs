//! An engine's answer on its way in.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::failure::root_cause;
use crate::h1::H1;
use crate::h2::Stream;
use crate::pool::Slot;

/// An engine's answer as it begins: engines send the head of a stream before they have computed
/// anything, so only the first data shows that the engine took the request.
#[derive(Debug)]
pub struct Started {
    /// Status and headers.
    pub head: Parts,
    /// The first frame; `None` when the answer has no body.
    pub first: Option<Frame<Bytes>>,
    /// All that follows.
    pub rest: AnswerStream,
}

impl Started {
    /// The whole body, of at most so many bytes.
    ///
    /// # Errors
    /// Why it is not whole.
    pub async fn whole(mut self, most: usize) -> Result<Bytes, String> {
        let mut whole = BytesMut::new();
        let mut next = self.first.map(Ok);
        while let Some(frame) = next {
            let frame = frame.map_err(|error| root_cause(&error))?;
            if let Some(data) = frame.data_ref() {
                if whole.len() + data.len() > most {
                    return Err(format!("it is longer than {most} bytes"));
                }
                whole.extend_from_slice(data);
            }
            next = self.rest.frame().await;
        }
        Ok(whole.freeze())
    }
}

/// The body of an answer. Read to its end it gives its connection back; dropped before, it closes
/// it, which is how the engine learns that nobody reads on.
pub struct AnswerStream {
    body: Incoming,
    via: Via,
}

/// Why the rest of an answer does not come.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection, or the answer's part of it, broke.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The engine gave the stream up in good order before the answer's end (h2: `RST_STREAM` with
    /// `NO_ERROR`, which is allowed only after it).
    #[error("h2: the engine gave up the stream before the end of its answer")]
    Short,
}

/// What the body comes over.
pub(crate) enum Via {
    H1(Box<H1>),
    H2(#[expect(dead_code, reason = "dropped when the answer ends")] Stream),
    /// It has ended, or broke.
    Over,
}

impl AnswerStream {
    pub(crate) fn new(body: Incoming, via: Via) -> Self {
        Self { body, via }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        if let Via::H1(mut connection) = std::mem::replace(&mut self.via, Via::Over)
            && connection.is_usable()
        {
            Slot::put(connection);
        }
    }
}

impl Body for AnswerStream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let next = match &mut this.via {
            Via::H1(connection) => ready!(connection.poll_body(&mut this.body, cx)),
            Via::H2(_) => ready!(Pin::new(&mut this.body).poll_frame(cx)),
            Via::Over => return Poll::Ready(None),
        };
        let is_short =
            next.is_none() && matches!(this.via, Via::H2(_)) && !this.body.is_end_stream();
        let next = if is_short { Some(Err(Broken::Short)) } else { next.map(|it| Ok(it?)) };
        match &next {
            Some(Ok(_)) if !this.body.is_end_stream() => {}
            Some(Ok(_)) | None => this.finish(),
            Some(Err(_)) => this.via = Via::Over,
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.via, Via::Over) || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for AnswerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerStream").finish_non_exhaustive()
    }
}
