//! Answers of JSON are held until they are complete: their client has no use for a part of one, and gets
//! an error it can read when the rest does not come.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use kvasir_upstream::{AnswerStream, Broken, root_cause};

use super::Answered;
use crate::relay::Break;

/// Longer answers pass as they come.
const MOST_HELD: u64 = 1 << 20;
/// The same of answers with a number that is to be changed.
const MOST_MERGED: u64 = 16 << 20;

/// Why an answer is not complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incomplete {
    /// The engine broke off.
    Broke(String),
    /// The engine paused for longer than is waited for.
    Idle,
    /// The time for the whole request is up.
    Deadline,
}

impl Incomplete {
    /// The same of an answer that is streamed, whose words are used.
    pub(super) fn kind(&self) -> Break {
        match self {
            Self::Broke(_) => Break::Broke,
            Self::Idle => Break::Idle,
            Self::Deadline => Break::Deadline,
        }
    }

    /// The cause, for people.
    pub(super) fn why(&self) -> &str {
        match self {
            Self::Broke(why) => why,
            Self::Idle => "it paused in the middle of its answer",
            Self::Deadline => "its answer was not complete in the time for the whole request",
        }
    }
}

/// Reads the rest of an answer of JSON whose length is told, if it is short. `idle` bounds each pause,
/// `deadline` all of it.
pub(super) async fn complete(
    answered: &mut Answered,
    idle: Duration,
    deadline: Option<Instant>,
) -> Result<(), Incomplete> {
    let merges = answered.details().is_some();
    let Some(rest) = &mut answered.rest else { return Ok(()) };
    let length = rest.size_hint().exact();
    if rest.is_end_stream() {
        // All of it came with the head.
        answered.rest = None;
        return Ok(());
    }
    if !is_json(&answered.head) {
        return Ok(());
    }
    let most = if merges { MOST_MERGED } else { MOST_HELD };
    if length.map_or(!merges, |length| length > most) {
        return Ok(());
    }
    let first = answered.first.take().and_then(|frame| frame.into_data().ok()).unwrap_or_default();
    let told = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let mut whole = BytesMut::with_capacity(first.len() + told);
    whole.extend_from_slice(&first);
    let mut is_long = false;
    while !is_long && let Some(data) = next(rest, idle, deadline).await? {
        whole.extend_from_slice(&data);
        is_long = whole.len() as u64 > most && length.is_none();
    }
    let read = whole.len().saturating_sub(first.len()) as u64;
    if let Some(length) = length.filter(|length| *length != read) {
        return Err(Incomplete::Broke(format!("{read} bytes came of {length} that were told")));
    }
    if !is_long {
        answered.rest = None;
    }
    answered.first = (!whole.is_empty()).then(|| Frame::data(whole.freeze()));
    Ok(())
}

/// An answer that is read for our own use.
pub(super) enum Gathered {
    Whole(Bytes),
    /// It has more bytes than are read.
    Long,
}

/// Reads an answer, at most so many bytes of it, until then.
///
/// # Errors
/// The connection broke; `None` where it is late.
pub(super) async fn gather(
    first: Option<Bytes>,
    mut rest: AnswerStream,
    most: usize,
    until: Instant,
) -> Result<Gathered, Option<Broken>> {
    let mut read = BytesMut::from(first.unwrap_or_default());
    loop {
        let frame = tokio::time::timeout_at(until.into(), rest.frame()).await.map_err(|_| None)?;
        match frame {
            None => return Ok(Gathered::Whole(read.freeze())),
            Some(Err(broken)) => return Err(Some(broken)),
            Some(Ok(frame)) => read.extend_from_slice(&frame.into_data().unwrap_or_default()),
        }
        if read.len() > most {
            return Ok(Gathered::Long);
        }
    }
}

/// Half a document of JSON is of no use to anybody; half of a sound is.
pub(super) fn is_json(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let json: &[u8] = b"application/json";
    kind.and_then(|kind| kind.get(..json.len())).is_some_and(|kind| kind.eq_ignore_ascii_case(json))
}

/// The next piece; of trailers, which are none of a body with a length, nothing.
async fn next(
    rest: &mut AnswerStream,
    idle: Duration,
    deadline: Option<Instant>,
) -> Result<Option<Bytes>, Incomplete> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let patience = left.map_or(idle, |left| left.min(idle));
    match tokio::time::timeout(patience, rest.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(error))) => Err(Incomplete::Broke(root_cause(&error))),
        Err(_) if left.is_some_and(|left| left <= idle) => Err(Incomplete::Deadline),
        Err(_) => Err(Incomplete::Idle),
    }
}
