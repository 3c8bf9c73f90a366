//! The beginning of a text that is too long to be tokenized whole.

use super::{Tokenizer, Truncation};
use crate::cut::beginning;

/// How far back from its limit a good place to cut a text is looked for, in bytes, and as a share of
/// the limit.
const WINDOW: usize = 4 << 10;
const WINDOW_SHARE: usize = 16;
/// Tokens given up where the place is not certainly good: what follows a text changes its last few
/// tokens at most.
pub(super) const SLACK: usize = 64;

/// The beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Ids the whole text begins with.
    pub(crate) ids: Vec<u32>,
    /// The bytes of text that were tokenized for them.
    pub(crate) bytes: usize,
}

impl Tokenizer {
    /// Ids of the first `limit` bytes of a text, less those that may depend on what follows. The
    /// text is cut behind a token that is matched wherever it stands; where there is none near the
    /// limit, before white space, and the last [`SLACK`] tokens are given up. `None` where what the engine makes of a text does not begin with what it
    /// makes of the text's beginning.
    pub(crate) fn encode_head(
        &self,
        text: &str,
        limit: usize,
        special: bool,
        salt: Option<&str>,
    ) -> Result<Option<Head>, String> {
        let Some(around) = &self.around else { return Ok(None) };
        let head = beginning(text, limit);
        let window = WINDOW.min(limit / WINDOW_SHARE);
        let from = beginning(head, head.len().saturating_sub(window)).len();
        let certain = self.boundaries.last(head, from);
        let end = certain.unwrap_or_else(|| before_space(head, from));
        let head = head.get(..end).unwrap_or_default();
        let ids = self.encode(head, special, Truncation::None, salt)?;
        let ids = without_end(ids, if special { around.after.len() } else { 0 });
        let ids = if certain.is_some() { ids } else { less_slack(ids) };
        Ok(Some(Head { ids, bytes: end }))
    }

    /// The same for a text in which nothing is an added token.
    pub(crate) fn encode_plain_head(&self, text: &str, limit: usize) -> Result<Head, String> {
        let head = beginning(text, limit);
        let window = WINDOW.min(limit / WINDOW_SHARE);
        let from = beginning(head, head.len().saturating_sub(window)).len();
        let end = before_space(head, from);
        let ids = self.encode_plain(head.get(..end).unwrap_or_default())?;
        Ok(Head { ids: less_slack(ids), bytes: end })
    }
}

/// Before the last white space behind `from` that follows something else; else the text's end.
pub(super) fn before_space(text: &str, from: usize) -> usize {
    let tail = text.get(from..).unwrap_or_default();
    let mut behind: Option<(usize, char)> = None;
    for (at, char) in tail.char_indices().rev() {
        if let Some((space, ' ' | '\n' | '\t')) = behind
            && !char.is_whitespace()
        {
            return from + space;
        }
        behind = Some((at, char));
    }
    text.len()
}

fn less_slack(ids: Vec<u32>) -> Vec<u32> {
    without_end(ids, SLACK)
}

fn without_end(mut ids: Vec<u32>, count: usize) -> Vec<u32> {
    ids.truncate(ids.len().saturating_sub(count));
    ids
}
