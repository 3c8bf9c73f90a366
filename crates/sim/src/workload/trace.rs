//! Recorded traces: Mooncake's JSON lines with block numbers, Azure's CSV of lengths.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Asked, MAX_REQUESTS, Release, Segment, Workload};

/// Tokens of a block of Mooncake's traces.
const MOONCAKE_BLOCK: u64 = 512;
/// vLLM's default, where the trace does not care.
const UNSHARED_BLOCK: usize = 16;
/// Longest prompt or answer that is believed.
const MAX_TOKENS: u64 = 16 << 20;
/// Largest trace file that is read.
const MAX_BYTES: u64 = 2 << 30;
/// Where numbers of prompts begin that share nothing with others.
const UNSHARED: u64 = 1 << 62;

/// A trace that cannot be used, and where it says so.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A line is not understood.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: TraceProblem,
    },
    /// There is no request in it.
    #[error("{}: no requests", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is larger than any trace.
    #[error("{}: more than {MAX_BYTES} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceProblem {
    /// Not the JSON of a request.
    Json(String),
    /// The number of blocks and the length contradict each other.
    Blocks {
        /// `hash_ids`.
        blocks: usize,
        /// `input_length`.
        tokens: u64,
    },
    /// A length that cannot be.
    Length(&'static str, String),
    /// Not three columns.
    Columns,
    /// Not a time.
    Time(String),
    /// Neither of the known formats.
    Format,
    /// More requests than are simulated.
    TooMany,
}

impl fmt::Display for TraceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(why) => write!(f, "not a request of a Mooncake trace: {why}"),
            Self::Blocks { blocks, tokens } => write!(
                f,
                "{blocks} hash_ids for input_length {tokens}: expected {} of {MOONCAKE_BLOCK} tokens",
                tokens.div_ceil(MOONCAKE_BLOCK)
            ),
            Self::Length(name, value) => {
                write!(f, "{name} is `{value}`: expected a number from 1 to {MAX_TOKENS}")
            }
            Self::Columns => f.write_str("expected TIMESTAMP,ContextTokens,GeneratedTokens"),
            Self::Time(text) => {
                write!(f, "TIMESTAMP is `{text}`: expected YYYY-MM-DD HH:MM:SS.FFFFFFF")
            }
            Self::Format => f.write_str(
                "expected JSON lines with `timestamp`, `input_length`, `output_length`, `hash_ids` \
                 (Mooncake), or CSV with the columns TIMESTAMP,ContextTokens,GeneratedTokens (Azure)",
            ),
            Self::TooMany => write!(f, "more than {MAX_REQUESTS} requests"),
        }
    }
}

#[derive(Deserialize)]
struct MooncakeLine {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
}

impl Workload {
    /// Reads a trace: JSON lines as Mooncake publishes them (`timestamp` in ms, `hash_ids` of
    /// 512-token blocks), or CSV as in the Azure LLM inference traces (lengths only: nothing is
    /// shared between prompts).
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn read_trace(path: &Path) -> Result<Self, TraceError> {
        let read = |error| TraceError::Read { path: path.to_owned(), error };
        if std::fs::metadata(path).map_err(read)?.len() > MAX_BYTES {
            return Err(TraceError::TooLarge { path: path.to_owned() });
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        Self::parse_trace(&name, &text).map_err(|(line, problem)| match line {
            0 => TraceError::Empty { path: path.to_owned() },
            line => TraceError::Line { path: path.to_owned(), line, problem },
        })
    }

    /// The same of a text; errors have the line, 0 where there is none.
    fn parse_trace(name: &str, text: &str) -> Result<Self, (usize, TraceProblem)> {
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let Some((number, first)) = lines.next() else { return Err((0, TraceProblem::Format)) };
        let mut requests = Vec::new();
        let is_mooncake = first.trim_start().starts_with('{');
        if is_mooncake {
            for (number, line) in std::iter::once((number, first)).chain(lines) {
                requests.push(mooncake(line).map_err(|problem| (number, problem))?);
                check_count(requests.len()).map_err(|problem| (number, problem))?;
            }
        } else if first.trim_start_matches('\u{feff}').starts_with("TIMESTAMP,") {
            for (number, line) in lines {
                let place = requests.len() as u64;
                requests.push(azure(line, place).map_err(|problem| (number, problem))?);
                check_count(requests.len()).map_err(|problem| (number, problem))?;
            }
        } else {
            return Err((number, TraceProblem::Format));
        }
        if requests.is_empty() {
            return Err((0, TraceProblem::Format));
        }
        from_zero(&mut requests);
        let block_size = if is_mooncake { MOONCAKE_BLOCK as usize } else { UNSHARED_BLOCK };
        Ok(Self { name: name.to_owned(), block_size, requests })
    }
}

fn check_count(count: usize) -> Result<(), TraceProblem> {
    if count > MAX_REQUESTS { Err(TraceProblem::TooMany) } else { Ok(()) }
}

/// Lets the first request come at 0, and all in order.
fn from_zero(requests: &mut [Asked]) {
    let at = |asked: &Asked| match asked.release {
        Release::At(seconds) => seconds,
        Release::After { .. } => 0.0,
    };
    requests.sort_by(|a, b| at(a).total_cmp(&at(b)));
    let first = requests.first().map_or(0.0, at);
    for asked in requests {
        asked.release = Release::At(at(asked) - first);
    }
}

fn mooncake(line: &str) -> Result<Asked, TraceProblem> {
    let line: MooncakeLine =
        serde_json::from_str(line).map_err(|error| TraceProblem::Json(error.to_string()))?;
    if !line.timestamp.is_finite() {
        return Err(TraceProblem::Time(line.timestamp.to_string()));
    }
    let tokens = length("input_length", line.input_length)?;
    let output_tokens = length("output_length", line.output_length)?;
    if line.hash_ids.len() as u64 != tokens.div_ceil(MOONCAKE_BLOCK) {
        return Err(TraceProblem::Blocks { blocks: line.hash_ids.len(), tokens });
    }
    let mut left = tokens;
    let prompt = line.hash_ids.iter().map(|id| {
        let tokens = left.min(MOONCAKE_BLOCK);
        left -= tokens;
        Segment { id: id & (UNSHARED - 1), tokens: tokens as u32 }
    });
    Ok(Asked {
        release: Release::At(line.timestamp / 1_000.0),
        prompt: prompt.collect(),
        output_tokens: output_tokens as u32,
    })
}

fn azure(line: &str, place: u64) -> Result<Asked, TraceProblem> {
    let mut columns = line.trim().split(',');
    let (Some(time), Some(context), Some(generated), None) =
        (columns.next(), columns.next(), columns.next(), columns.next())
    else {
        return Err(TraceProblem::Columns);
    };
    let number = |name, text: &str| {
        let number = text.parse().map_err(|_| TraceProblem::Length(name, text.to_owned()))?;
        length(name, number)
    };
    let tokens = number("ContextTokens", context)?;
    // The traces hold a few answers of no token.
    let generated = if generated == "0" { 1 } else { number("GeneratedTokens", generated)? };
    let seconds = seconds(time).ok_or_else(|| TraceProblem::Time(time.to_owned()))?;
    Ok(Asked {
        release: Release::At(seconds),
        prompt: vec![Segment { id: UNSHARED | place, tokens: tokens as u32 }],
        output_tokens: generated as u32,
    })
}

fn length(name: &'static str, tokens: u64) -> Result<u64, TraceProblem> {
    if (1..=MAX_TOKENS).contains(&tokens) {
        Ok(tokens)
    } else {
        Err(TraceProblem::Length(name, tokens.to_string()))
    }
}

/// `YYYY-MM-DD HH:MM:SS.FFFFFFF` in seconds since some day.
fn seconds(text: &str) -> Option<f64> {
    let (date, time) = text.trim().split_once(' ')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let hour: i64 = time.next()?.parse().ok()?;
    let minute: i64 = time.next()?.parse().ok()?;
    // Azure's newer files add the zone.
    let second: f64 = time.next()?.split('+').next()?.parse().ok()?;
    let sound = (1..=9_999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..61.0).contains(&second);
    sound.then(|| (days(year, month, day) * 86_400 + hour * 3_600 + minute * 60) as f64 + second)
}

/// Days since 1 March of year 0 (the usual civil-calendar arithmetic, years beginning in March).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1
}

#[cfg(test)]
mod tests;
