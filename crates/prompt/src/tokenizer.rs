//! Text to token ids: the tokenizer library, and a cache of what it said.

mod boundary;
mod engine;
mod fast;
mod head;
mod library;
mod plain;
mod prefixes;
mod selftest;
#[cfg(test)]
mod tests;

use std::path::Path;

use tokenizers::AddedToken;

use self::boundary::{Boundaries, Boundary};
pub use self::engine::TokenizerEngine;
use self::engine::{Engines, Outcome};
use self::library::{Around, Library};
use self::prefixes::PrefixCache;
pub use self::prefixes::PrefixCacheStats;
use crate::fields::Truncation;

/// Least bytes between two places where a text is cut for the cache: an entry costs some 200
/// bytes besides its text and ids, and what is behind the last place is tokenized every time.
const SPACING: usize = 192;
/// Bytes of text that our own code takes about a millisecond for, or much less.
const QUICK_BYTES: usize = 4 << 10;
/// The same for the library.
const QUICK_LIBRARY_BYTES: usize = 1 << 10;

/// What a model's configuration says about its tokenizer beside `tokenizer.json`.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// Tokens it lists, with their properties.
    pub(crate) listed: Vec<AddedToken>,
    /// Text of special tokens it names.
    pub(crate) named: Vec<String>,
    /// Special tokens in a text are tokenized like any other text.
    pub(crate) split_special: bool,
    /// The faster code is not wanted.
    pub(crate) library_only: bool,
}

/// A loaded `tokenizer.json`.
#[derive(Debug)]
pub(crate) struct Tokenizer {
    engines: Engines,
    /// What is put around a text's ids on request; `None` where that depends on the text.
    around: Option<Around>,
    boundaries: Boundaries,
    prefixes: PrefixCache,
}

/// What became of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Appended {
    All,
    /// Too much would have had to be tokenized.
    Nothing,
}

impl Tokenizer {
    /// Loads the file and adds what the model's configuration adds to it. `cache_bytes` bounds
    /// the prefix cache.
    pub(crate) fn load(
        path: &Path,
        settings: Settings,
        cache_bytes: usize,
    ) -> Result<Self, String> {
        let json = std::fs::read(path).map_err(|e| e.to_string())?;
        Self::from_json(&json, settings, cache_bytes)
    }

    fn from_json(json: &[u8], settings: Settings, cache_bytes: usize) -> Result<Self, String> {
        let (split_special, library_only) = (settings.split_special, settings.library_only);
        let library = Library::from_json(json, settings)?;
        let around = library.around();
        let mut boundaries = match around {
            Some(_) if library.is_deterministic() => {
                Boundaries::new(&library.added_tokens(), split_special)
            }
            _ => Boundaries::default(),
        };
        boundaries.retain(|text, id| library.ids(text).is_ok_and(|ids| ids == [id]));
        let prefixes = PrefixCache::new(if boundaries.is_empty() { 0 } else { cache_bytes });
        let engines = match library_only {
            true => Engines::library_only(library, "the faster code is not wanted"),
            false => Engines::new(json, library, split_special),
        };
        Ok(Self { engines, around, boundaries, prefixes })
    }

    /// The ids of a text. `salt` keeps texts of different salts apart in the cache; it changes no
    /// id.
    pub(crate) fn encode(
        &self,
        text: &str,
        special: bool,
        cut: Truncation,
        salt: Option<&str>,
    ) -> Result<Vec<u32>, String> {
        self.encode_within(text, special, cut, salt, usize::MAX).map(Option::unwrap_or_default)
    }

    /// The same, if at most `most` bytes of the text have to be tokenized: the rest is in the cache.
    /// `None` tells that they are more, and that nothing was tokenized.
    pub(crate) fn encode_within(
        &self,
        text: &str,
        special: bool,
        cut: Truncation,
        salt: Option<&str>,
        most: usize,
    ) -> Result<Option<Vec<u32>>, String> {
        let Some(around) = &self.around else {
            if text.len() > most {
                return Ok(None);
            }
            return self.engines.library.finished_ids(text, special, cut).map(Some);
        };
        let (before, after): (&[u32], &[u32]) =
            if special { (&around.before, &around.after) } else { (&[], &[]) };
        // Room that is not used costs nothing, a copy of a long prompt does.
        let mut ids = Vec::with_capacity(before.len() + text.len() / 2 + 16);
        ids.extend_from_slice(before);
        let state = self.engines.differs();
        if self.append_ids(text, salt, most, &mut ids)? == Appended::Nothing {
            return Ok(None);
        }
        if self.engines.differs() != state {
            // Parts of this text may be wrong: once more, from nothing.
            ids.truncate(before.len());
            self.append_ids(text, salt, usize::MAX, &mut ids)?;
        }
        if let Truncation::Last { keep } | Truncation::First { keep } = cut {
            let added = before.len() + after.len();
            let Some(room) = keep.checked_sub(added) else {
                return Err(format!("no room for {added} special tokens in {keep}"));
            };
            let surplus = (ids.len() - before.len()).saturating_sub(room);
            match cut {
                Truncation::First { .. } => ids.truncate(ids.len() - surplus),
                _ => drop(ids.drain(before.len()..before.len() + surplus)),
            }
        }
        ids.extend_from_slice(after);
        Ok(Some(match cut {
            Truncation::Last { .. } | Truncation::First { .. } => ids,
            _ => cut.cut(ids),
        }))
    }

    /// Bytes of text that take about a millisecond.
    pub(crate) fn quick_bytes(&self) -> usize {
        if self.engines.is_fast() { QUICK_BYTES } else { QUICK_LIBRARY_BYTES }
    }

    /// How many tokens end a cacheable prefix, and what the cache does.
    pub(crate) fn cache(&self) -> (usize, PrefixCacheStats) {
        (self.boundaries.len(), self.prefixes.stats())
    }

    /// Which code tokenizes.
    pub(crate) fn engine(&self) -> TokenizerEngine {
        self.engines.state()
    }

    /// Appends the ids of a text, of which the cache may know the beginning.
    ///
    /// The text is cut at the first boundary [`SPACING`] bytes behind the last cut, and so on. So
    /// where it is cut up to some byte depends on the text up to there, and two texts are cut
    /// alike as far as they are alike. Where what is not known has more than `most` bytes, it is left,
    /// and nothing of the ids appended is of use.
    fn append_ids(
        &self,
        text: &str,
        salt: Option<&str>,
        most: usize,
        ids: &mut Vec<u32>,
    ) -> Result<Appended, String> {
        let mut last: Option<Boundary> = None;
        let mut parent = if self.boundaries.is_empty() { None } else { self.prefixes.root(salt) };
        let (mut hit, before) = (0, ids.len());
        let mut saved = 0;
        while let Some(behind) = parent {
            let from = last.map_or(0, |b| b.end);
            let Some(next) = self.boundaries.next(text, from, from + SPACING) else { break };
            let segment = text.get(from..next.end).unwrap_or_default();
            // Behind an entry that was just made there is none.
            let known = if hit == from { self.prefixes.get(behind, segment) } else { None };
            parent = match known {
                Some(node) => {
                    ids.extend_from_slice(&node.ids);
                    hit = next.end;
                    saved = ids.len() - before;
                    Some(node.id)
                }
                None if text.len() - hit > most => return Ok(Appended::Nothing),
                None => {
                    let start = ids.len();
                    self.append_part(text, last, next.end, ids)?;
                    let new = ids.get(start..).unwrap_or_default();
                    self.prefixes.insert(behind, segment, new).map(|node| node.id)
                }
            };
            last = Some(next);
        }
        if text.len() - hit > most {
            return Ok(Appended::Nothing);
        }
        self.prefixes.count(hit, text.len() - hit, saved);
        self.append_part(text, last, text.len(), ids).map(|()| Appended::All)
    }

    /// Appends the ids of the part of a text between a boundary, or its start, and `end`, which is
    /// its end or the end of another boundary.
    ///
    /// The part is given to the tokenizer with the boundary's token before it, which is matched
    /// there, too: so it does not start the text there either, and what follows has the same
    /// neighbour.
    fn append_part(
        &self,
        text: &str,
        behind: Option<Boundary>,
        end: usize,
        ids: &mut Vec<u32>,
    ) -> Result<(), String> {
        let Some(boundary) = behind else {
            return self.append_alone(text.get(..end).unwrap_or_default(), ids);
        };
        if boundary.end == end {
            return Ok(());
        }
        let start = ids.len();
        self.append_alone(text.get(boundary.start..end).unwrap_or_default(), ids)?;
        if ids.get(start) != Some(&boundary.id) {
            return Err(format!("token {} is not matched where it stands", boundary.id));
        }
        ids.remove(start);
        Ok(())
    }

    fn append_alone(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        if self.engines.append_ids(text, ids)? == Outcome::Differed {
            self.prefixes.forget();
        }
        Ok(())
    }
}
