//! A faster way to the same ids, for byte-level BPE: what most models of today use.
//!
//! The library keeps, for every character of a text, where it came from, and matches the
//! pre-tokenizer's expression with a backtracking engine. Ids need neither. The stages here are the
//! library's, in its order, on plain slices: added tokens, NFC, splits, merges by rank. A file
//! that asks for anything else is refused with the reason, and its model stays with the library.

mod added;
mod ascii;
mod config;
mod merge;
mod split;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use parking_lot::Mutex;
use tokenizers::{AddedToken, NormalizedString, Normalizer as _, NormalizerWrapper};

use self::added::{Added, Piece};
use self::merge::{Merges, Words};
use self::split::{Scan, Splitter};
use super::engine::Encode;

/// Word caches that are kept when no thread uses them.
const IDLE_CACHES: usize = 16;

/// A byte-level BPE tokenizer.
pub(super) struct Fast {
    /// Added tokens that are matched in the raw text.
    raw: Option<Added>,
    nfc: Option<NormalizerWrapper>,
    /// Added tokens that are matched in the normalised text.
    normalized: Option<Added>,
    splits: Vec<Splitter>,
    merges: Merges,
    idle: Mutex<Vec<Scratch>>,
}

/// What one thread works with.
struct Scratch {
    words: Words,
    /// One for each of the splits.
    scans: Vec<Scan>,
}

impl std::fmt::Debug for Fast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fast").field("splits", &self.splits).finish_non_exhaustive()
    }
}

impl Fast {
    /// Reads `tokenizer.json`; `added` and `split_special` as the library has them. The error says
    /// what is not done here.
    pub(super) fn new(
        json: &[u8],
        added: &[(u32, AddedToken)],
        split_special: bool,
    ) -> Result<Self, String> {
        let config = config::read(json)?;
        let nfc = config.nfc.then(|| NormalizerWrapper::NFC(tokenizers::normalizers::NFC));
        let tokens = |normalized: bool| {
            let tokens = added.iter().filter(move |(_, t)| t.normalized == normalized);
            tokens.filter(|(_, t)| !t.content.is_empty())
        };
        let raw =
            Added::new(tokens(false).map(|(id, t)| (*id, t, t.content.clone())), split_special)?;
        let normal = |(id, t): &(u32, AddedToken)| {
            let text = normalise(nfc.as_ref(), &t.content)?.into_owned();
            Ok::<_, String>((*id, text))
        };
        let normal: Vec<(u32, String)> = tokens(true).map(normal).collect::<Result<_, _>>()?;
        let normal = tokens(true).zip(normal).map(|((id, t), (_, text))| (*id, t, text));
        let normalized = Added::new(normal, split_special)?;
        let splits = config.splits.iter().map(Splitter::new).collect::<Result<_, _>>()?;
        let merges = config.merges;
        Ok(Self { raw, nfc, normalized, splits, merges, idle: Mutex::default() })
    }

    /// Splits a text with each of `splits` in turn, every one within what the last one left.
    fn words(
        &self,
        splits: &[Splitter],
        scans: &mut [Scan],
        text: &str,
        words: &mut Words,
        ids: &mut Vec<u32>,
    ) {
        match splits.split_first().zip(scans.split_first_mut()) {
            None => self.merges.append_ids(text.as_bytes(), words, ids),
            Some(((split, rest), (scan, scans))) => {
                split.each(scan, text, |part| self.words(rest, scans, part, words, ids));
            }
        }
    }

    fn scratch(&self) -> Scratch {
        let scans = self.splits.iter().map(Splitter::scan).collect();
        Scratch { words: Words::default(), scans }
    }
}

impl Encode for Fast {
    fn append_ids(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let known = self.idle.lock().pop();
        let mut scratch = known.unwrap_or_else(|| self.scratch());
        let Scratch { words, scans } = &mut scratch;
        let result = added::cut(self.raw.as_ref(), text, |piece| match piece {
            Piece::Token(id) => {
                ids.push(id);
                Ok(())
            }
            Piece::Text(text) => {
                let text = normalise(self.nfc.as_ref(), text)?;
                added::cut(self.normalized.as_ref(), &text, |piece| {
                    match piece {
                        Piece::Token(id) => ids.push(id),
                        Piece::Text(text) => self.words(&self.splits, scans, text, words, ids),
                    }
                    Ok(())
                })
            }
        });
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CACHES {
            idle.push(scratch);
        }
        result
    }
}

/// A text in NFC. Only what is not ASCII is given to the library, with the ASCII character before
/// it: no character composes with an ASCII character that follows it, so a text can be normalised
/// in parts that start with one.
fn normalise<'a>(nfc: Option<&NormalizerWrapper>, text: &'a str) -> Result<Cow<'a, str>, String> {
    let Some(nfc) = nfc.filter(|_| !text.is_ascii()) else { return Ok(Cow::Borrowed(text)) };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|b| !b.is_ascii()) {
        let (plain, tail) = rest.split_at_checked(at.saturating_sub(1)).unwrap_or((rest, ""));
        out.push_str(plain);
        // At most one ASCII character, then others.
        let from = usize::from(at > 0);
        let len =
            tail.bytes().skip(from).position(|b| b.is_ascii()).map_or(tail.len(), |n| n + from);
        let (part, tail) = tail.split_at_checked(len).unwrap_or((tail, ""));
        let mut part = NormalizedString::from(part);
        nfc.normalize(&mut part).map_err(|e| e.to_string())?;
        out.push_str(part.get());
        rest = tail;
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}
