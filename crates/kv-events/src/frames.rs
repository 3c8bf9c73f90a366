//! The multipart messages around payloads: what a SUB and a DEALER socket receive.
//!
//! Both are read from the end, because the parts before differ: a live message is
//! `[topic, seq, payload]`; an answer of the replay socket is `["", seq, payload]` up to vLLM 0.25
//! (SGLang 0.5.21) and `["", topic, seq, payload]` after. The sequence number is 8 bytes,
//! big-endian; −1 ends a replay.

/// The sequence number that ends a replay; never one of a batch.
const END: u64 = u64::MAX;

/// A published batch, not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveMessage<'a> {
    /// The topic; empty by default.
    pub topic: &'a [u8],
    /// Its number, from 0 in each life of a publisher.
    pub seq: u64,
    /// The encoded batch.
    pub payload: &'a [u8],
}

/// One answer of a replay socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A batch from the publisher's buffer.
    Batch {
        /// Its number.
        seq: u64,
        /// The encoded batch.
        payload: &'a [u8],
    },
    /// All there is has been sent.
    End,
}

/// Frames that are no message of a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too few or too many parts.
    #[error("message of {0} parts")]
    Parts(usize),
    /// The sequence number is not 8 bytes.
    #[error("sequence number of {0} bytes")]
    Sequence(usize),
    /// A batch numbered like the end of a replay.
    #[error("batch numbered as the end marker")]
    Reserved,
}

/// Reads a live message of three parts.
///
/// # Errors
/// Other numbers of parts, or a sequence number that is none.
pub fn parse_live<'a, F: AsRef<[u8]>>(frames: &'a [F]) -> Result<LiveMessage<'a>, FrameError> {
    let [topic, seq, payload] = frames else { return Err(FrameError::Parts(frames.len())) };
    match number(seq.as_ref())? {
        END => Err(FrameError::Reserved),
        seq => Ok(LiveMessage { topic: topic.as_ref(), seq, payload: payload.as_ref() }),
    }
}

/// Reads an answer of a replay socket, whatever stands before its last two parts.
///
/// # Errors
/// Fewer than two or more than four parts, or a sequence number that is none.
pub fn parse_answer<'a, F: AsRef<[u8]>>(frames: &'a [F]) -> Result<Answer<'a>, FrameError> {
    let [before @ .., seq, payload] = frames else { return Err(FrameError::Parts(frames.len())) };
    if before.len() > 2 {
        return Err(FrameError::Parts(frames.len()));
    }
    match number(seq.as_ref())? {
        END => Ok(Answer::End),
        seq => Ok(Answer::Batch { seq, payload: payload.as_ref() }),
    }
}

/// The request for everything from `start` on. The first part must be there and empty: requests
/// without it are ignored.
pub(crate) fn request(start: u64) -> [Vec<u8>; 2] {
    [Vec::new(), start.to_be_bytes().to_vec()]
}

fn number(frame: &[u8]) -> Result<u64, FrameError> {
    frame.try_into().map(u64::from_be_bytes).map_err(|_| FrameError::Sequence(frame.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"";
    const SEVEN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 7];
    const MINUS_ONE: &[u8] = &[0xff; 8];

    #[test]
    fn answers_with_and_without_a_topic_are_one() {
        let batch = Ok(Answer::Batch { seq: 7, payload: b"p" });
        assert_eq!(parse_answer(&[EMPTY, SEVEN, b"p"]), batch);
        assert_eq!(parse_answer(&[EMPTY, b"topic", SEVEN, b"p"]), batch);
        assert_eq!(parse_answer(&[EMPTY, MINUS_ONE, b""]), Ok(Answer::End));
        assert_eq!(parse_answer(&[EMPTY, b"", MINUS_ONE, b""]), Ok(Answer::End));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(parse_answer(&[SEVEN]), Err(FrameError::Parts(1)));
        assert_eq!(parse_answer::<&[u8]>(&[]), Err(FrameError::Parts(0)));
        assert_eq!(parse_answer(&[EMPTY, b"", b"", SEVEN, b"p"]), Err(FrameError::Parts(5)));
        assert_eq!(parse_answer(&[EMPTY, b"1234567", b"p"]), Err(FrameError::Sequence(7)));
        assert_eq!(parse_live(&[SEVEN, b"p"]), Err(FrameError::Parts(2)));
        assert_eq!(parse_live(&[EMPTY, MINUS_ONE, b"p"]), Err(FrameError::Reserved));
        assert_eq!(
            parse_live(&[b"t".as_slice(), SEVEN, b"p"]),
            Ok(LiveMessage { topic: b"t", seq: 7, payload: b"p" })
        );
    }

    #[test]
    fn a_request_is_an_empty_part_and_a_big_endian_number() {
        assert_eq!(request(258), [vec![], vec![0, 0, 0, 0, 0, 0, 1, 2]]);
    }
}
