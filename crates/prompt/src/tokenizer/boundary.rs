//! Where a text can be cut so that its parts have the ids they have in the whole.
//!
//! A tokenizer first cuts a text at its added tokens (leftmost match, longest on a tie) and treats
//! the pieces between them alone: normalizer, pre-tokenizer and model see one piece at a time, and
//! know of its surroundings only whether it starts the text. So a text may be cut behind an added
//! token – if it is sure that the token is matched wherever its text stands. That is so for a token
//! that is matched in the raw text, takes nothing from its right, and whose text no match can
//! swallow: it is no part of another token's text, and no token ends with what it begins with.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use tokenizers::AddedToken;

/// Above this much text of added tokens none is a boundary: the check below would take long.
const MAX_ADDED_BYTES: usize = 4 << 20;
/// Distinct first bytes that can be searched for at once.
const FIRST_BYTES: usize = 3;

/// The tokens a text may be cut behind.
#[derive(Debug, Default)]
pub(crate) struct Boundaries {
    /// Sorted by text; none is the start of another.
    tokens: Vec<(Box<str>, u32)>,
    /// The bytes they start with.
    first: Vec<u8>,
    longest: usize,
}

/// A place where the text of a boundary token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// First byte of the token's text.
    pub(crate) start: usize,
    /// The byte behind it.
    pub(crate) end: usize,
    /// The token.
    pub(crate) id: u32,
}

impl Boundaries {
    /// The boundaries among a tokenizer's added tokens. `split_special`: special tokens in a text
    /// are tokenized like any other text.
    pub(crate) fn new(added: &[(u32, AddedToken)], split_special: bool) -> Self {
        let matched: Vec<&str> = added
            .iter()
            .filter(|(_, t)| !t.normalized && !t.content.is_empty())
            .map(|(_, t)| t.content.as_str())
            .collect();
        if matched.iter().map(|t| t.len()).sum::<usize>() > MAX_ADDED_BYTES {
            return Self::default();
        }
        let plain = |t: &AddedToken| {
            let text = t.content.as_str();
            // White space at an edge could be taken by a neighbour that strips.
            let stays = !t.normalized && !t.rstrip && !t.single_word && text.trim() == text;
            stays && text.len() > 1 && !(split_special && t.special)
        };
        let mut tokens: Vec<(Box<str>, u32)> = added
            .iter()
            .filter(|(_, t)| plain(t))
            .map(|(id, t)| (t.content.clone().into(), *id))
            .collect();
        keep_isolated(&mut tokens, &matched);
        let first = keep_common_starts(&mut tokens);
        tokens.sort_unstable();
        let longest = tokens.iter().map(|(t, _)| t.len()).max().unwrap_or(0);
        Self { tokens, first, longest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// How many tokens are boundaries.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Drops the tokens that are not kept.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str, u32) -> bool) {
        self.tokens.retain(|(text, id)| keep(text, *id));
    }

    /// The first boundary that starts at or behind `from` and ends at or behind `min_end`. It
    /// depends on the text up to its end only.
    pub(crate) fn next(&self, text: &str, from: usize, min_end: usize) -> Option<Boundary> {
        let bytes = text.as_bytes();
        let mut at = min_end.saturating_sub(self.longest).max(from);
        loop {
            let start = at + self.find_first_byte(bytes.get(at..)?)?;
            if let Some((token, id)) = self.token_at(bytes.get(start..)?) {
                let end = start + token.len();
                if end >= min_end {
                    return Some(Boundary { start, end, id: *id });
                }
            }
            at = start + 1;
        }
    }

    /// Where the last boundary at or behind `from` ends.
    pub(crate) fn last(&self, text: &str, from: usize) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let mut last = None;
        let mut at = from;
        while let Some(next) = self.next(text, at, at) {
            last = Some(next.end);
            at = next.end;
        }
        last
    }

    fn find_first_byte(&self, bytes: &[u8]) -> Option<usize> {
        match *self.first.as_slice() {
            [a] => memchr::memchr(a, bytes),
            [a, b] => memchr::memchr2(a, b, bytes),
            [a, b, c] => memchr::memchr3(a, b, c, bytes),
            _ => None,
        }
    }

    /// The token these bytes start with.
    fn token_at(&self, bytes: &[u8]) -> Option<&(Box<str>, u32)> {
        let behind = self.tokens.partition_point(|(t, _)| t.as_bytes() <= bytes);
        let token = self.tokens.get(behind.checked_sub(1)?)?;
        bytes.starts_with(token.0.as_bytes()).then_some(token)
    }
}

/// Keeps the tokens whose text no match of `matched` can swallow or cut, wherever it stands.
fn keep_isolated(tokens: &mut Vec<(Box<str>, u32)>, matched: &[&str]) {
    let starts: HashSet<&[u8]> = tokens
        .iter()
        .flat_map(|(t, _)| (1..=t.len()).filter_map(|end| t.as_bytes().get(..end)))
        .collect();
    let whole: HashSet<&[u8]> = tokens.iter().map(|(t, _)| t.as_bytes()).collect();
    // Starts of tokens that end another token, and tokens that are inside another.
    let mut unsafe_starts: HashSet<&[u8]> = HashSet::new();
    for other in matched.iter().map(|t| t.as_bytes()) {
        for from in 0..other.len() {
            for to in from + 1..=other.len() {
                let Some(part) = other.get(from..to).filter(|part| starts.contains(part)) else {
                    break;
                };
                let ends_other = from > 0 && to == other.len();
                if ends_other || (part.len() < other.len() && whole.contains(part)) {
                    unsafe_starts.insert(part);
                }
            }
        }
    }
    let is_isolated = |text: &[u8]| {
        (1..=text.len()).all(|end| text.get(..end).is_none_or(|s| !unsafe_starts.contains(s)))
    };
    let keep: Vec<bool> = tokens.iter().map(|(t, _)| is_isolated(t.as_bytes())).collect();
    let mut keep = keep.into_iter();
    tokens.retain(|_| keep.next().unwrap_or(false));
}

/// Keeps the tokens with the most common first bytes, and gives those bytes.
fn keep_common_starts(tokens: &mut Vec<(Box<str>, u32)>) -> Vec<u8> {
    let mut counts: HashMap<u8, usize> = HashMap::new();
    for byte in tokens.iter().filter_map(|(t, _)| t.bytes().next()) {
        *counts.entry(byte).or_default() += 1;
    }
    let mut first: Vec<u8> = counts.keys().copied().collect();
    first.sort_unstable_by_key(|b| (std::cmp::Reverse(counts.get(b)), *b));
    first.truncate(FIRST_BYTES);
    tokens.retain(|(t, _)| t.bytes().next().is_some_and(|b| first.contains(&b)));
    first
}
