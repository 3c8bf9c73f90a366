//! Recordings of an engine's traffic: JSON lines of requests, event messages and replays.
//!
//! The format is that of `testdata/captures`: see `docs/bug-reports.md`. Reading is strict where a
//! line means something to Kvasir and tolerant where it does not: unknown kinds of lines and
//! unknown fields are skipped.

mod line;
mod message;
mod read;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use self::line::{Item, Line, Link, Replay, Source};
pub(crate) use self::message::{Live, hex};
pub use self::read::CaptureError;
pub(crate) use self::request::Request;

use std::io::BufRead;

use kvasir_fleet::EngineCard;
/// A recording that has been read and understood, line by line.
#[derive(Debug, Default)]
pub struct Capture {
    pub(crate) meta: Option<Meta>,
    pub(crate) lines: Vec<Line>,
}

/// What the first line says of the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    /// The engine and its version, as far as it is told.
    pub(crate) engine: Option<String>,
    pub(crate) card: EngineCard,
}

impl Capture {
    /// Reads a recording to its end. A line may have 256 MiB, all of them together 2 GiB.
    ///
    /// # Errors
    /// The first line that is not as the format has it, with its place.
    pub fn read(input: impl BufRead) -> Result<Self, CaptureError> {
        read::read(input)
    }
}
