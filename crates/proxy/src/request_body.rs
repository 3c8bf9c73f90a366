//! Reads a request's body: whole, bounded in size and time.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use crate::refusal::Refusal;

/// How long a client may pause between two pieces of its body.
const PAUSE: Duration = Duration::from_secs(30);
/// How long a whole body may take.
const WHOLE: Duration = Duration::from_secs(600);
/// What is still read of a body that is too large, so that its sender gets to read the refusal
/// rather than a broken connection.
const DRAIN_BYTES: usize = 256 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// Never reserved on a client's word alone.
const RESERVE: usize = 1 << 20;

/// The body's bytes, as sent. `waits` says that the client sends nothing before it was told to
/// (`expect: 100-continue`): it can be refused without.
pub(crate) async fn read<B>(mut body: B, limit: usize, waits: bool) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes, Error: Error + 'static> + Send + Unpin + 'static,
{
    let hint = body.size_hint();
    let announced = usize::try_from(hint.lower()).unwrap_or(usize::MAX);
    if announced > limit {
        discard(body, waits);
        return Err(Refusal::TooLarge { limit });
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let until = Instant::now() + WHOLE;
    while let Some(data) = next(&mut body, until).await? {
        let read = first.len() + rest.len();
        if read + data.len() > limit {
            discard(body, false);
            return Err(Refusal::TooLarge { limit });
        }
        if read == 0 {
            // Most bodies come in one piece: that one is not copied.
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.reserve(announced.clamp(read + data.len(), RESERVE.max(read + data.len())));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// The next piece, by `until` at the latest.
async fn next<B>(body: &mut B, until: Instant) -> Result<Option<Bytes>, Refusal>
where
    B: Body<Data = Bytes, Error: Error + 'static> + Unpin,
{
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let frame = tokio::time::timeout(PAUSE.min(left), body.frame()).await;
        match frame.map_err(|_| Refusal::SlowBody)? {
            None => return Ok(None),
            Some(Err(error)) => return Err(broke(&error)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers carry nothing an engine reads.
                Err(_) => {}
            },
        }
    }
}

/// What came in place of the next piece. The connection says what is wrong with chunks, and of all else
/// only that it is over.
fn broke(error: &(dyn Error + 'static)) -> Refusal {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData)
        {
            return Refusal::BadFraming(io.to_string().to_lowercase());
        }
        cause = error.source();
    }
    Refusal::BodyBroke
}

/// Reads a body that nobody wants, within bounds and beside the answer, so that its sender gets to read
/// the refusal at once.
pub(crate) fn discard<B>(mut body: B, waits: bool)
where
    B: Body<Data = Bytes, Error: Error + 'static> + Send + Unpin + 'static,
{
    if waits || body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let until = Instant::now() + DRAIN_TIME;
        let mut read = 0;
        while read < DRAIN_BYTES {
            match next(&mut body, until).await {
                Ok(Some(data)) => read += data.len(),
                _ => return,
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    async fn read_pieces(pieces: &[&str], limit: usize) -> Result<Bytes, Refusal> {
        let frames: Vec<Result<Frame<Bytes>, Infallible>> = pieces
            .iter()
            .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece.as_bytes()))))
            .collect();
        read(StreamBody::new(stream::iter(frames)), limit, false).await
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        assert_eq!(read_pieces(&[], 10).await, Ok(Bytes::new()));
        assert_eq!(read_pieces(&["abc"], 3).await, Ok(Bytes::from("abc")));
        assert_eq!(read_pieces(&["", "ab", "", "cd", "e"], 5).await, Ok(Bytes::from("abcde")));
        assert_eq!(read_pieces(&["a", "b", "c", "d", "e"], 5).await, Ok(Bytes::from("abcde")));
        let refused = Err(Refusal::TooLarge { limit: 4 });
        assert_eq!(read_pieces(&["ab", "cd", "e"], 4).await, refused);
        assert_eq!(read_pieces(&["abcde"], 4).await, refused);
    }
}
