//! Payload bytes to [`Batch`]: the `MessagePack` encodings of vLLM 0.9 and newer and of SGLang.
//!
//! A batch is an array `[ts, [event, ..], rank]` in all versions. An event is an array
//! `[tag, field, ..]` up to vLLM 0.23 (SGLang 0.5.19) and a map with a `type` key from vLLM 0.24
//! (SGLang 0.5.20). Longer arrays, unknown keys and unknown kinds of events are tolerated; a known
//! event that is malformed is not, since a lost removal would leave a block credited.

mod event;
mod fields;
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Instant;

use self::reader::{Reader, Token};
use crate::event::{Batch, Event, Handle, PublishedHash};
use crate::stream::{Stream, StreamConfig};
use kvasir_inventory::EngineHash;

/// Bytes of the offending event that an error keeps.
const EXCERPT: usize = 256;

/// A payload that is not a batch of events, or that holds a malformed known event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; bytes {excerpt}")]
pub struct DecodeError {
    /// The kind of event, or `batch` for the envelope, and the field: `BlockStored.token_ids`.
    pub place: String,
    /// What is wrong.
    pub problem: Problem,
    /// The first bytes of the event (of the batch, for the envelope), in hexadecimal.
    pub excerpt: Excerpt,
}

impl DecodeError {
    /// What is wrong and where, without the bytes: those hold tokens of somebody's prompt.
    #[must_use]
    pub fn cause(&self) -> String {
        format!("{}: {}", self.place, self.problem)
    }
}

/// At most 256 bytes of a payload, shown in hexadecimal.
#[derive(Clone, PartialEq, Eq)]
pub struct Excerpt(Vec<u8>);

impl Excerpt {
    fn of(bytes: &[u8]) -> Self {
        Self(bytes[..bytes.len().min(EXCERPT)].to_vec())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Excerpt({self})")
    }
}

/// What is wrong with a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes end before the value does.
    #[error("ends too early, or a length exceeds the payload")]
    Truncated,
    /// The one byte `MessagePack` reserves.
    #[error("is not MessagePack")]
    Reserved,
    /// Bytes follow the batch.
    #[error("is followed by other bytes")]
    Trailing,
    /// The value has another type than the contract says.
    #[error("has an unexpected type")]
    Type,
    /// The value is out of its range.
    #[error("is out of range")]
    Range,
    /// Text that is not UTF-8.
    #[error("is not UTF-8")]
    Utf8,
    /// A required field is not there.
    #[error("is missing")]
    Missing,
}

/// An error's place inside an event, before the event's bytes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    kind: &'static str,
    field: &'static str,
    problem: Problem,
}

/// Decodes one payload.
///
/// # Errors
/// The payload is no batch, or a known event in it is malformed. Nothing of such a batch may be
/// used: what came before the malformed event may depend on what it said.
pub fn decode(payload: &[u8]) -> Result<Batch, DecodeError> {
    decode_as::<EngineHash>(payload)
}

/// Decodes one payload and keeps the hashes as published: whole digests where there are digests.
///
/// For verifying an engine's hashes; [`decode`] keeps what the inventory needs of them.
///
/// # Errors
/// As [`decode`].
pub fn decode_published(payload: &[u8]) -> Result<Batch<PublishedHash>, DecodeError> {
    decode_as(payload)
}

fn decode_as<H: Handle>(payload: &[u8]) -> Result<Batch<H>, DecodeError> {
    let envelope = |field: &'static str| {
        move |problem| error(Fault { kind: "batch", field, problem }, payload)
    };
    let mut reader = Reader::new(payload);
    let width = match reader.next().map_err(envelope("envelope"))? {
        Token::Array(width) if width >= 2 => width,
        Token::Array(_) => return Err(envelope("envelope")(Problem::Missing)),
        _ => return Err(envelope("envelope")(Problem::Type)),
    };
    let ts = fields::timestamp(&mut reader).map_err(envelope("ts"))?;
    let Token::Array(count) = reader.next().map_err(envelope("events"))? else {
        return Err(envelope("events")(Problem::Type));
    };
    let mut batch =
        Batch { ts, rank: None, events: Vec::with_capacity(count.min(1024)), unknown_events: 0 };
    for _ in 0..count {
        let start = reader.position();
        match event::read(&mut reader) {
            Ok(Some(event)) => batch.events.push(event),
            Ok(None) => batch.unknown_events = batch.unknown_events.saturating_add(1),
            Err(fault) => return Err(error(fault, payload.get(start..).unwrap_or_default())),
        }
    }
    if width >= 3 {
        batch.rank = fields::opt_u32(&mut reader).map_err(envelope("rank"))?;
        reader.skip_many(width - 3).map_err(envelope("envelope"))?;
    }
    if reader.left() > 0 {
        return Err(envelope("envelope")(Problem::Trailing));
    }
    Ok(batch)
}

fn error(fault: Fault, bytes: &[u8]) -> DecodeError {
    DecodeError {
        place: format!("{}.{}", fault.kind, fault.field),
        problem: fault.problem,
        excerpt: Excerpt::of(bytes),
    }
}

/// The body of a fuzz target: everything this crate does with bytes from outside.
///
/// Must return for any input, in time and memory proportional to it.
pub fn fuzz_one(data: &[u8]) {
    drop(decode_published(data));
    if let Ok(batch) = decode(data) {
        for event in &batch.events {
            if let Event::Stored(stored) = event {
                drop(stored.extras());
            }
        }
    }
    // As an answer with events, to an engine of two ranks that has said something before.
    let (mut polled, _) = crate::poll::PollStream::new(&[0, 1]);
    for body in [data, b"[]", data] {
        drop(polled.answered(body));
    }
    // The same bytes as frames: the first one says how long each is.
    let Some((&step, rest)) = data.split_first() else { return };
    let frames: Vec<&[u8]> = rest.chunks(usize::from(step).max(1)).collect();
    let _ = crate::frames::parse_live(&frames);
    let _ = crate::frames::parse_answer(&frames);
    fuzz_stream(&frames);
    if let Ok(text) = std::str::from_utf8(data) {
        drop(crate::address::Address::resolve(text, "127.0.0.1"));
        drop(crate::address::Address::resolve("tcp://*:5557", text));
    }
}

/// Frames as what comes from both sockets of a publisher, in any order and with any numbers.
fn fuzz_stream(frames: &[&[u8]]) {
    let now = Instant::now();
    let config = StreamConfig { replay: true, pending_batches: 4, ..StreamConfig::default() };
    let mut stream = Stream::new(config, 1);
    stream.connected(now);
    for frame in frames.iter().take(256) {
        while stream.next_output().is_some() {}
        let [kind, rest @ ..] = frame else { continue };
        let seq = u64::from(*kind >> 3);
        match kind & 7 {
            0..=2 => stream.live(now, seq, rest.to_vec()),
            3 | 4 => stream.replay_batch(now, seq, rest.to_vec()),
            5 => stream.replay_end(now),
            6 => stream.disconnected(),
            _ => stream.process_started(now, now, f64::from(*kind)),
        }
        if let Some(due) = stream.deadline().filter(|_| kind & 1 == 0) {
            stream.tick(due);
        }
    }
}
