//! An engine's own error, kept while others are asked.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use http_body_util::BodyExt;

use super::Answered;

/// The most that is read of it. What is longer stays with the engine until it is passed on.
const MOST_READ: usize = 64 << 10;
/// How long its body is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// An engine's answer that is passed on where nobody does better.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) answered: Answered,
    /// When it wants to be asked again.
    pub(super) retry_after: Option<Duration>,
}

impl Held {
    /// Reads the answer, within bounds. When it is there as a whole, as it almost always is, its
    /// engine has nothing to do with the request any more. `None` where it breaks off.
    pub(super) async fn keep(
        mut answered: Answered,
        retry_after: Option<Duration>,
    ) -> Option<Self> {
        if let Some(reservation) = &mut answered.reservation {
            reservation.uncounted();
            reservation.not_computed();
        }
        let first = answered.first.take().and_then(|frame| frame.into_data().ok());
        let mut read = BytesMut::from(first.unwrap_or_default());
        match tokio::time::timeout(PATIENCE, read_on(&mut answered, &mut read)).await {
            Ok(Read::Broken) => return None,
            Ok(Read::Whole) => {
                answered.rest = None;
                answered.reservation = None;
            }
            Ok(Read::Long) | Err(_) => {}
        }
        let read: Bytes = read.freeze();
        answered.first = (!read.is_empty()).then(|| Frame::data(read));
        Some(Self { answered, retry_after })
    }
}

enum Read {
    Whole,
    Long,
    Broken,
}

async fn read_on(answered: &mut Answered, read: &mut BytesMut) -> Read {
    let Some(rest) = &mut answered.rest else { return Read::Whole };
    while read.len() < MOST_READ {
        match rest.frame().await {
            None => return Read::Whole,
            Some(Err(_)) => return Read::Broken,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    read.extend_from_slice(&data);
                }
            }
        }
    }
    Read::Long
}
