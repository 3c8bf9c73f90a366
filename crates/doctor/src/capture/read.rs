//! From bytes to lines, with the place of everything that is wrong.

use std::io::{self, BufRead, Read as _};

use super::Capture;
use super::line::{Found, Line};

/// The longest line: a replay of a full buffer is one line.
const MAX_LINE: u64 = 256 << 20;
/// All lines together.
const MAX_CAPTURE: u64 = 2 << 30;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The input failed.
    #[error("{line}: {error}")]
    Io {
        /// The line that was being read, from 1.
        line: usize,
        /// What the system said.
        error: io::Error,
    },
    /// A line that is not as the format has it.
    #[error("{line}:{column}: {why}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The byte in the line, from 1; 1 where the line as a whole is wrong.
        column: usize,
        /// What is wrong.
        why: String,
    },
    /// More than can be read.
    #[error("{line}: the recording is larger than {} MiB", MAX_CAPTURE >> 20)]
    TooLarge {
        /// The line at which it is too large, from 1.
        line: usize,
    },
}

/// A mistake inside a line.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) column: usize,
    pub(super) why: String,
}

impl Fault {
    /// The line as a whole is wrong.
    pub(super) fn whole(why: impl Into<String>) -> Self {
        Self { column: 1, why: why.into() }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        // The place is told in the file's own terms.
        let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
        Self { column: error.column().max(1), why: why.to_owned() }
    }
}

pub(super) fn read(mut input: impl BufRead) -> Result<Capture, CaptureError> {
    let mut capture = Capture::default();
    let (mut bytes, mut total) = (Vec::new(), 0_u64);
    for line in 1.. {
        bytes.clear();
        let io = |error| CaptureError::Io { line, error };
        let taken = input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut bytes).map_err(io)?;
        if taken == 0 {
            break;
        }
        let at = |fault: Fault| CaptureError::Line { line, column: fault.column, why: fault.why };
        if taken as u64 > MAX_LINE {
            let why = format!("longer than {} MiB", MAX_LINE >> 20);
            return Err(at(Fault::whole(why)));
        }
        total += taken as u64;
        if total > MAX_CAPTURE {
            return Err(CaptureError::TooLarge { line });
        }
        let text = bytes.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match Line::parse(text).map_err(at)? {
            Found::Meta(_) if capture.meta.is_some() => {
                return Err(at(Fault::whole("a second `meta` line: these are two recordings")));
            }
            Found::Meta(meta) => capture.meta = Some(*meta),
            Found::Line(found) => capture.lines.push(Line { number: line, ..found }),
            Found::Nothing => {}
        }
    }
    Ok(capture)
}
