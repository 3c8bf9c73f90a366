//! One HTTP/1.1 connection, driven by whoever waits for its answer.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use crate::failure::{Failure, Phase, is_users, root_cause};
use crate::io::{Io, Seen};
use crate::lost::{Fate, Lost, Outgoing};
use crate::pool::Slot;

/// An open connection. It moves only while it is polled.
pub(crate) struct H1 {
    sender: SendRequest<Full<Bytes>>,
    /// `None` when it came to its end. It is dropped then, for it may hold the request it was given
    /// last, and gives it back.
    connection: Option<Connection<TokioIo<Io>, Full<Bytes>>>,
    seen: Arc<Seen>,
    /// Answers it has carried.
    pub(crate) answers: u64,
    pub(crate) born: Instant,
    pub(crate) idle_since: Instant,
    /// How long the engine keeps it, where it says so.
    pub(crate) kept_for: Option<Duration>,
    pub(crate) slot: Slot,
}

// === impl H1 ===

impl H1 {
    /// Speaks HTTP/1.1 over `io`.
    pub(crate) async fn over(io: Io, slot: Slot) -> Result<Box<Self>, Failure> {
        let seen = Arc::clone(&io.seen);
        let (sender, connection) = Builder::new()
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| Failure::new(Phase::Tcp, root_cause(&error)))?;
        let now = Instant::now();
        Ok(Box::new(Self {
            sender,
            connection: Some(connection),
            seen,
            answers: 0,
            born: now,
            idle_since: now,
            kept_for: None,
            slot,
        }))
    }

    /// Moves it on; what it waits for wakes `cx`.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, cx);
    }

    /// Looks whether it can take a request, without waiting for anything.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Closes it; its place is for another.
    pub(crate) fn into_slot(mut self: Box<Self>) -> Slot {
        self.slot.take()
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn head(&mut self, request: Outgoing) -> Result<Response<Incoming>, Lost> {
        self.seen.begin();
        // Its answer comes through `drive` alone, so that it need not wake anybody; and then it
        // must not be held back by the task's budget either.
        let mut sent = pin!(tokio::task::unconstrained(self.sender.try_send_request(request)));
        let connection = &mut self.connection;
        let answer = poll_fn(|cx| {
            drive(connection, cx);
            sent.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await;
        match answer {
            Ok(response) => {
                self.answers += 1;
                self.kept_for = keep_alive(response.headers()).or(self.kept_for);
                Ok(response)
            }
            Err(mut error) => {
                let failure = self.why(error.error());
                Err(match error.take_message() {
                    Some(back) => {
                        Lost { fate: Fate::Unsent(Box::new(back)), failure: failure.unsent() }
                    }
                    None if self.seen.anything_read() => Lost { fate: Fate::Taken, failure },
                    None => Lost { fate: Fate::Silence, failure },
                })
            }
        }
    }

    /// Moves it on until `body` has something.
    pub(crate) fn poll_body(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        // The body is fed by `drive` alone.
        let quiet = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(next) = http_body::Body::poll_frame(Pin::new(body), quiet) {
            return Poll::Ready(next);
        }
        self.drive(cx);
        http_body::Body::poll_frame(Pin::new(body), quiet)
    }

    /// What became of an answer before its first data.
    pub(crate) fn why(&self, error: &hyper::Error) -> Failure {
        let cause = root_cause(error);
        if is_users(error) {
            Failure::new(Phase::Invalid, format!("the request cannot be sent: {cause}"))
        } else if error.is_parse() {
            Failure::new(Phase::NotHttp, format!("what came is no HTTP answer: {cause}"))
        } else if self.seen.write_failed() && !self.seen.anything_read() {
            Failure::new(Phase::Send, format!("the request could not be sent: {cause}"))
        } else {
            Failure::new(Phase::Broke, cause)
        }
    }
}

impl fmt::Debug for H1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H1").field("answers", &self.answers).finish_non_exhaustive()
    }
}

fn drive(connection: &mut Option<Connection<TokioIo<Io>, Full<Bytes>>>, cx: &mut Context<'_>) {
    if let Some(open) = connection
        && Pin::new(open).poll(cx).is_ready()
    {
        *connection = None;
    }
}

/// What `Keep-Alive: timeout=N` says.
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let timeout = value.split(',').find_map(|part| {
        let (name, seconds) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| seconds.trim().parse::<u32>().ok())?
    })?;
    Some(Duration::from_secs(timeout.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_an_engine_keeps_a_connection() {
        let of = |text: &str| {
            let value = http::HeaderValue::from_str(text).unwrap();
            keep_alive(&HeaderMap::from_iter([(
                http::HeaderName::from_static("keep-alive"),
                value,
            )]))
        };
        assert_eq!(of("timeout=2, max=100"), Some(Duration::from_secs(2)));
        assert_eq!(of("max=100,Timeout = 7"), Some(Duration::from_secs(7)));
        for none in ["max=5", "timeout", "timeout=x", "timeout=-1", ""] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
