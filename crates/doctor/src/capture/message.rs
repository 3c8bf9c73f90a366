//! Messages of the PUB and the replay socket, from hexadecimal.

use std::sync::Arc;

use kvasir_kv_events::{Answer, parse_answer, parse_live};

use super::read::Fault;

/// A published batch, not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) seq: u64,
    pub(crate) payload: Arc<Vec<u8>>,
}

/// One message of a replay socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Batch(Live),
    End,
    /// It is no answer.
    Malformed,
}

impl Live {
    /// `None` if the frames are no message of a publisher.
    pub(super) fn of(frames: &[Vec<u8>]) -> Option<Self> {
        let message = parse_live(frames).ok()?;
        Some(Self { seq: message.seq, payload: Arc::new(message.payload.to_vec()) })
    }
}

impl Answered {
    pub(super) fn of(frames: &[Vec<u8>]) -> Self {
        match parse_answer(frames) {
            Ok(Answer::End) => Self::End,
            Ok(Answer::Batch { seq, payload }) => {
                Self::Batch(Live { seq, payload: Arc::new(payload.to_vec()) })
            }
            Err(_) => Self::Malformed,
        }
    }
}

/// Frames from hexadecimal; `field` is named where they are none.
pub(super) fn unhex(field: &str, frames: &[String]) -> Result<Vec<Vec<u8>>, Fault> {
    let frame = |(at, text): (usize, &String)| {
        bytes(text).ok_or_else(|| Fault::whole(format!("`{field}`[{at}] is not hexadecimal")))
    };
    frames.iter().enumerate().map(frame).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}
