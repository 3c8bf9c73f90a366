//! The pre-tokenizer's expressions, without backtracking.

use std::fmt;

use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, Match};

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
    keep_gaps: bool,
}

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
        Ok(Self { regex, keep_gaps: split.keep_gaps })
    }

    /// The first match from a place on. These expressions match nearly everywhere, and where one
    /// starts need not be searched for then.
    fn find(&self, text: &str, from: usize) -> Option<Match> {
        let input = Input::new(text).range(from..);
        self.regex
            .search(&input.clone().anchored(Anchored::Yes))
            .or_else(|| self.regex.search(&input))
    }

    /// Gives the parts of a text to `each`, none of them empty.
    pub(super) fn each(&self, text: &str, mut each: impl FnMut(&str)) {
        let mut done = 0;
        while let Some(found) = self.find(text, done) {
            let (start, mut end) = (found.start(), found.end());
            let part = text.get(start..end).unwrap_or_default();
            if found.pattern().as_usize() == 1
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
