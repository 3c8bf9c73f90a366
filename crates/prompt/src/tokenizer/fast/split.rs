//! The pre-tokenizer's expressions, without backtracking.

use std::fmt;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use super::ascii::Ascii;

/// How the expressions of byte-level models end: white space, but for its last character where
/// something follows.
const SPACE: &str = r"|\s+(?!\S)|\s+";

/// An expression and what becomes of the text between its matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) pattern: String,
    pub(super) keep_gaps: bool,
}

/// A compiled [`Split`].
pub(super) struct Splitter {
    /// Pattern 0 is the expression without [`SPACE`]; pattern 1 is white space.
    regex: Regex,
    /// The same, for where a match starts at a known place: without the choice among engines and the
    /// pool of their memory that each search of `regex` begins with.
    dfa: Option<DFA>,
    ascii: Option<Ascii>,
    keep_gaps: bool,
}

/// What a search finds.
struct Found {
    pattern: usize,
    start: usize,
    end: usize,
}

/// What one thread searches with, made anew from texts as they come; of one [`Splitter`].
#[derive(Debug)]
pub(super) struct Scan(Option<Cache>);

impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splitter").field("keep_gaps", &self.keep_gaps).finish_non_exhaustive()
    }
}

impl Splitter {
    pub(super) fn new(split: &Split) -> Result<Self, String> {
        // What precedes the last alternatives is one or more alternatives, if it is an expression
        // by itself and sets no flag that reaches beyond it.
        let patterns = match split.pattern.strip_suffix(SPACE) {
            Some(head) => vec![head, r"\s+"],
            None => vec![split.pattern.as_str()],
        };
        for pattern in &patterns {
            if pattern.split("(?").skip(1).any(|group| !group.starts_with([':', 'i'])) {
                return Err(format!("pre-tokenizer with a special group: {:?}", split.pattern));
            }
            let parsed = syntax::parse(pattern).map_err(|e| e.to_string())?;
            let (least, look) = (parsed.properties().minimum_len(), parsed.properties().look_set());
            if least.unwrap_or(0) == 0 || !look.is_empty() {
                return Err(format!("pre-tokenizer that looks around: {:?}", split.pattern));
            }
        }
        if split.pattern.contains("(?i)") {
            return Err(format!("pre-tokenizer with a flag for all: {:?}", split.pattern));
        }
        let regex = Regex::new_many(&patterns).map_err(|e| e.to_string())?;
        let dfa = DFA::new_many(&patterns).ok();
        let ascii = dfa.as_ref().and_then(Ascii::new);
        Ok(Self { regex, dfa, ascii, keep_gaps: split.keep_gaps })
    }

    /// What [`Splitter::each`] needs.
    pub(super) fn scan(&self) -> Scan {
        Scan(self.dfa.as_ref().map(DFA::create_cache))
    }

    /// The first match from a place on. These expressions match nearly everywhere, and where one
    /// starts need not be searched for then.
    fn find(&self, scan: &mut Scan, text: &str, from: usize) -> Option<Found> {
        if let Some(ascii) = &self.ascii
            && let Ok(Some((pattern, end))) = ascii.find(text, from)
        {
            return Some(Found { pattern, start: from, end });
        }
        let input = Input::new(text).range(from..);
        let anchored = input.clone().anchored(Anchored::Yes);
        if let (Some(dfa), Some(cache)) = (&self.dfa, &mut scan.0)
            && let Ok(Some(half)) = dfa.try_search_fwd(cache, &anchored)
        {
            let (pattern, end) = (half.pattern().as_usize(), half.offset());
            return Some(Found { pattern, start: from, end });
        }
        let found = self.regex.search(&anchored).or_else(|| self.regex.search(&input))?;
        let (pattern, start, end) = (found.pattern().as_usize(), found.start(), found.end());
        Some(Found { pattern, start, end })
    }

    /// Gives the parts of a text to `each`, none of them empty.
    pub(super) fn each(&self, scan: &mut Scan, text: &str, mut each: impl FnMut(&str)) {
        let mut done = 0;
        while done < text.len()
            && let Some(found) = self.find(scan, text, done)
        {
            let Found { pattern, start, mut end } = found;
            let part = text.get(start..end).unwrap_or_default();
            if pattern == 1
                && end < text.len()
                && let Some(last) = part.chars().next_back()
                && last.len_utf8() < part.len()
            {
                end -= last.len_utf8();
            }
            if end <= start {
                break;
            }
            if self.keep_gaps && done < start {
                each(text.get(done..start).unwrap_or_default());
            }
            each(text.get(start..end).unwrap_or_default());
            done = end;
        }
        if self.keep_gaps && done < text.len() {
            each(text.get(done..).unwrap_or_default());
        }
    }
}
