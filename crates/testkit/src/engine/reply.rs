//! What a scripted engine does with one request.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::time::Duration;

/// The behaviour of the fake engine for one request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The OpenAI-shaped answer: completion or chat, streamed when the request says
    /// `"stream": true`; 404 for any other path.
    Default,
    /// Waits before doing the inner reply.
    Delayed(Duration, Box<Reply>),
    /// A JSON body with its length declared.
    Json(StatusCode, serde_json::Value),
    /// Any complete response: status, extra headers and body.
    Status(StatusCode, HeaderMap, Bytes),
    /// A server-sent event stream.
    Sse {
        /// Time before the response head.
        head_delay: Duration,
        /// The events, without `data: ` and the blank line.
        chunks: Vec<SseChunk>,
        /// Whether `data: [DONE]` closes the stream.
        done: bool,
    },
    /// The default answer, slowed down: nothing before `first`, then one token
    /// every `gap`. Not streamed, it takes the same time in all.
    SlowTokens {
        /// Time to the response head and the first token.
        first: Duration,
        /// Time between tokens.
        gap: Duration,
        /// How many tokens, whatever the request asks for.
        count: usize,
    },
    /// The request body as the response body, with its content type.
    Echo,
    /// Reads the request and never answers.
    HangBeforeHead,
    /// Sends the head of an event stream and then nothing.
    HeadThenHang,
    /// TCP reset instead of an answer.
    ResetBeforeHead,
    /// The head of a chunked event stream, these events, then a TCP reset.
    ResetMidBody(Vec<String>),
    /// The head of a chunked event stream, these events, then an orderly close
    /// without the terminating chunk: a truncated answer.
    CloseMidBody(Vec<String>),
    /// These bytes instead of an HTTP response, then an orderly close.
    RawBytes(Bytes),
    /// Full control over what is written to the socket, and when.
    Raw(Vec<RawStep>, RawEnd),
}

/// One event of a stream and the time before it.
#[derive(Clone, Debug)]
pub struct SseChunk {
    /// Time since the previous event, or since the head.
    pub gap: Duration,
    /// What follows `data: `.
    pub data: String,
}

/// One step of a raw reply.
#[derive(Clone, Debug)]
pub enum RawStep {
    /// Writes these bytes to the socket.
    Write(Bytes),
    /// Waits.
    Pause(Duration),
}

/// How a raw reply ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RawEnd {
    /// Orderly close (FIN).
    Close,
    /// TCP reset (RST).
    Reset,
    /// Nothing more is written; the connection stays until the peer closes it.
    Hold,
}

impl Reply {
    /// A complete, empty response with this status.
    #[must_use]
    pub fn status(status: StatusCode) -> Self {
        Self::Status(status, HeaderMap::new(), Bytes::new())
    }

    /// An event stream without pauses, closed by `[DONE]`.
    pub fn sse<I, S>(events: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let chunks = events
            .into_iter()
            .map(|data| SseChunk { gap: Duration::ZERO, data: data.into() })
            .collect();
        Self::Sse { head_delay: Duration::ZERO, chunks, done: true }
    }

    /// The default answer after a delay.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self::Delayed(delay, Box::new(Self::Default))
    }
}

/// The head of the event streams that are written by hand.
const RAW_SSE_HEAD: &str = "HTTP/1.1 200 OK\r\nserver: uvicorn\r\n\
    content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// Raw steps that send the head and these events as chunks, without the last chunk.
pub(super) fn broken_stream(events: &[String]) -> Vec<RawStep> {
    let mut steps = vec![RawStep::Write(Bytes::from_static(RAW_SSE_HEAD.as_bytes()))];
    for event in events {
        let event = sse_event(event);
        let mut chunk = format!("{:x}\r\n", event.len()).into_bytes();
        chunk.extend_from_slice(&event);
        chunk.extend_from_slice(b"\r\n");
        steps.push(RawStep::Write(chunk.into()));
    }
    steps
}

/// One event as it stands in a `text/event-stream` body.
pub(super) fn sse_event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}
