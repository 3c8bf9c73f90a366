//! `usage` of a split answer: the decode engine reports that it had nothing cached of what was
//! transferred to it, or nothing at all; what the client asks for is how much of its prompt was cached
//! where it was computed. What the prefill engine says of the prompt's tokens takes the place of what the
//! decode engine says; every other byte passes as it came.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kvasir_prompt::{Edit, ObjectText, first_entry};
use memchr::{memchr, memmem, memrchr};

use crate::usage::Usage;

/// Where it stands in the answers of vLLM's and others' OpenAI APIs.
const USAGE: &str = "usage";
const DETAILS: &str = "prompt_tokens_details";
const CACHED: &str = "cached_tokens";
const PROMPT: &str = "prompt_tokens";
/// What every `usage` has, and nothing else: inside text its quotes are escaped.
const SIGN: &[u8] = b"\"prompt_tokens\"";
/// Longer lines pass as they come: they are none of usage.
const LONGEST_LINE: usize = 64 << 10;
/// The most that is passed on of what a prefill engine says beside the number.
const MOST_DETAILS: usize = 4 << 10;
const DATA: &[u8] = b"data:";

/// What a prefill engine says of a prompt's tokens, where it says how many of them were cached: raw JSON
/// of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Details(Arc<str>);

impl Details {
    /// What an answer says; `None` where it does not.
    pub(super) fn of(answer: &ObjectText<'_>) -> Option<Self> {
        let cached = cached_tokens(answer)?;
        let usage = ObjectText::parse(answer.get(USAGE)?.as_bytes()).ok()?;
        let raw = usage.get(DETAILS).filter(|raw| raw.len() <= MOST_DETAILS);
        // Line ends inside JSON are white space, but end lines of a stream.
        let line = raw.map(|raw| raw.replace(['\n', '\r'], " "));
        Some(Self(line.unwrap_or_else(|| format!("{{\"{CACHED}\":{cached}}}")).into()))
    }
}

/// What an answer says of its prompt.
pub(super) fn usage_of(answer: &ObjectText<'_>) -> Usage {
    let prompt_tokens = || {
        let usage = ObjectText::parse(answer.get(USAGE)?.as_bytes()).ok()?;
        usage.get(PROMPT)?.parse().ok()
    };
    Usage {
        cached_tokens: cached_tokens(answer),
        prompt_tokens: prompt_tokens(),
        completion_tokens: None,
    }
}

fn cached_tokens(answer: &ObjectText<'_>) -> Option<u64> {
    let usage = ObjectText::parse(answer.get(USAGE)?.as_bytes()).ok()?;
    let details = ObjectText::parse(usage.get(DETAILS)?.as_bytes()).ok()?;
    details.get(CACHED)?.parse().ok()
}

/// A whole answer that says so; `None` where it has no usage, and stays as it is.
pub(crate) fn merged(answer: &[u8], details: &Details) -> Option<String> {
    with_details(answer, details, |_| true)
}

/// The same of an event's data. Only the last usage of a stream, which comes alone, has details where the
/// engine gives none: so it is with one engine.
fn merged_event(data: &[u8], details: &Details) -> Option<String> {
    with_details(data, details, |event| {
        event.get("choices").is_some_and(|choices| first_entry(choices).is_none())
    })
}

fn with_details(
    answer: &[u8],
    Details(ours): &Details,
    may_add: impl FnOnce(&ObjectText<'_>) -> bool,
) -> Option<String> {
    memmem::find(answer, SIGN)?;
    let answer = ObjectText::parse(answer).ok()?;
    let usage = ObjectText::parse(answer.get(USAGE)?.as_bytes()).ok()?;
    usage.get(PROMPT)?;
    let is_told = match usage.get(DETAILS) {
        None | Some("null") => false,
        Some(theirs) => theirs.starts_with('{'),
    };
    if !is_told && !may_add(&answer) {
        return None;
    }
    let usage = usage.edited(&Edit::default().set(DETAILS, &**ours));
    Some(answer.edited(&Edit::default().set(USAGE, usage)))
}

/// Merges a stream of events as it passes: whole lines only, so that the one with the usage can be
/// changed.
#[derive(Debug)]
pub(crate) struct StreamMerge {
    details: Details,
    /// A line whose end did not come yet.
    line: BytesMut,
    /// The beginning of a line has passed that is too long to be kept.
    amid: bool,
}

impl StreamMerge {
    pub(crate) fn new(details: Details) -> Self {
        Self { details, line: BytesMut::new(), amid: false }
    }

    /// Takes the next piece; what may pass then, which may be nothing.
    pub(crate) fn push(&mut self, piece: Bytes) -> Bytes {
        let Some(last) = memrchr(b'\n', &piece) else { return self.hold(piece) };
        // Nothing is copied of what cannot have it.
        let may_have = |bytes: &[u8]| memmem::find(bytes, SIGN).is_some();
        if self.line.is_empty() && !may_have(&piece) {
            self.amid = false;
            let mut whole = piece;
            let rest = whole.split_off(last + 1);
            self.line.extend_from_slice(&rest);
            return self.within_bounds(whole);
        }
        let mut out = BytesMut::with_capacity(self.line.len() + piece.len() + self.details.0.len());
        let mut rest: &[u8] = &piece;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            rest = after;
            if std::mem::take(&mut self.amid) {
                out.extend_from_slice(line);
            } else if self.line.is_empty() {
                out.extend_from_slice(&self.merged_line(line));
            } else {
                let mut held = self.line.split();
                held.extend_from_slice(line);
                out.extend_from_slice(&self.merged_line(&held));
            }
        }
        self.line.extend_from_slice(rest);
        self.within_bounds(out.freeze())
    }

    /// The stream is over in good order: what is left, which may lack its line's end.
    pub(crate) fn end(&mut self) -> Bytes {
        let line = self.line.split();
        Bytes::from(self.merged_line(&line).into_owned())
    }

    fn hold(&mut self, piece: Bytes) -> Bytes {
        if self.amid {
            return piece;
        }
        self.line.extend_from_slice(&piece);
        self.within_bounds(Bytes::new())
    }

    /// Lets a line go that is too long.
    fn within_bounds(&mut self, out: Bytes) -> Bytes {
        if self.line.len() <= LONGEST_LINE {
            return out;
        }
        self.amid = true;
        let line = self.line.split();
        if out.is_empty() {
            return line.freeze();
        }
        Bytes::from([&out[..], &line[..]].concat())
    }

    fn merged_line<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(data) = line.strip_prefix(DATA) else { return Cow::Borrowed(line) };
        // White space around it is white space of JSON.
        merged_event(data, &self.details)
            .map_or(Cow::Borrowed(line), |text| Cow::Owned([DATA, text.as_bytes()].concat()))
    }
}
