//! `usage` of a split answer: the decode engine reports that it had nothing cached of what was
//! transferred to it; what the client asks for is how much of its prompt was cached where it was
//! computed. Only that number is replaced; every other byte passes as it came.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use kvasir_prompt::{Edit, ObjectText};
use memchr::{memchr, memmem, memrchr};

/// Where it stands in the answers of vLLM's and others' OpenAI APIs.
const USAGE: &str = "usage";
const DETAILS: &str = "prompt_tokens_details";
const CACHED: &str = "cached_tokens";
/// Longer lines pass as they come: they are none of usage.
const LONGEST_LINE: usize = 64 << 10;
const DATA: &[u8] = b"data:";

/// The cached tokens that an answer reports.
pub(super) fn cached_tokens(answer: &ObjectText<'_>) -> Option<u64> {
    let usage = ObjectText::parse(answer.get(USAGE)?.as_bytes()).ok()?;
    let details = ObjectText::parse(usage.get(DETAILS)?.as_bytes()).ok()?;
    details.get(CACHED)?.parse().ok()
}

/// The prompt tokens that an answer reports.
pub(super) fn prompt_tokens(answer: &ObjectText<'_>) -> Option<u64> {
    let usage = ObjectText::parse(answer.get(USAGE)?.as_bytes()).ok()?;
    usage.get("prompt_tokens")?.parse().ok()
}

/// A whole answer with that number; `None` where it reports none, and stays as it is.
pub(crate) fn merged(answer: &[u8], cached: u64) -> Option<String> {
    memmem::find(answer, CACHED.as_bytes())?;
    let answer = ObjectText::parse(answer).ok()?;
    let usage = ObjectText::parse(answer.get(USAGE)?.as_bytes()).ok()?;
    let details = ObjectText::parse(usage.get(DETAILS)?.as_bytes()).ok()?;
    details.get(CACHED)?;
    let details = details.edited(&Edit::default().set(CACHED, cached.to_string()));
    let usage = usage.edited(&Edit::default().set(DETAILS, details));
    Some(answer.edited(&Edit::default().set(USAGE, usage)))
}

/// Merges a stream of events as it passes: whole lines only, so that the one with the usage can be
/// changed.
#[derive(Debug)]
pub(crate) struct StreamMerge {
    cached: u64,
    /// A line whose end did not come yet.
    line: BytesMut,
    /// The beginning of a line has passed that is too long to be kept.
    amid: bool,
}

impl StreamMerge {
    pub(crate) fn new(cached: u64) -> Self {
        Self { cached, line: BytesMut::new(), amid: false }
    }

    /// Takes the next piece; what may pass then, which may be nothing.
    pub(crate) fn push(&mut self, piece: Bytes) -> Bytes {
        let Some(last) = memrchr(b'\n', &piece) else { return self.hold(piece) };
        // Nothing is copied of what cannot have it.
        let may_have = |bytes: &[u8]| memmem::find(bytes, CACHED.as_bytes()).is_some();
        if self.line.is_empty() && !may_have(&piece) {
            self.amid = false;
            let mut whole = piece;
            let rest = whole.split_off(last + 1);
            self.line.extend_from_slice(&rest);
            return self.within_bounds(whole);
        }
        let mut out = BytesMut::with_capacity(self.line.len() + piece.len() + 24);
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
        merged(data, self.cached)
            .map_or(Cow::Borrowed(line), |text| Cow::Owned([DATA, text.as_bytes()].concat()))
    }
}
