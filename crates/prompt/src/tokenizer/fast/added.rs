//! Added tokens in a text: leftmost first, longest on a tie, with the white space they take.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::AddedToken;

/// A set of tokens to look for.
#[derive(Debug)]
pub(super) struct Added {
    search: AhoCorasick,
    tokens: Vec<Token>,
}

#[derive(Debug)]
struct Token {
    id: u32,
    takes_left: bool,
    takes_right: bool,
    /// It is text like any other, but what it covers is looked at no more.
    ignored: bool,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Token(u32),
    Text(&'a str),
}

impl Added {
    /// Tokens with the text they are found by; `None` if there are none.
    pub(super) fn new<'a>(
        tokens: impl Iterator<Item = (u32, &'a AddedToken, String)>,
        split_special: bool,
    ) -> Result<Option<Self>, String> {
        let mut patterns = Vec::new();
        let mut found = Vec::new();
        for (id, token, text) in tokens {
            if token.single_word {
                return Err(format!("added token {:?} needs a word of its own", token.content));
            }
            patterns.push(text);
            found.push(Token {
                id,
                takes_left: token.lstrip,
                takes_right: token.rstrip,
                ignored: split_special && token.special,
            });
        }
        if patterns.is_empty() {
            return Ok(None);
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns)
            .map_err(|e| e.to_string())?;
        Ok(Some(Self { search, tokens: found }))
    }
}

/// Gives the parts of a text to `each`; no text part is empty.
pub(super) fn cut(
    added: Option<&Added>,
    text: &str,
    mut each: impl FnMut(Piece<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut done = 0;
    for found in added.iter().flat_map(|a| a.search.find_iter(text)) {
        let token = added.and_then(|a| a.tokens.get(found.pattern().as_usize()));
        let Some(token) = token.filter(|t| !t.ignored) else { continue };
        let (mut start, mut end) = (found.start(), found.end());
        if token.takes_left {
            let before = text.get(..start).unwrap_or_default();
            start = before.trim_end().len().max(done);
        }
        if token.takes_right {
            let behind = text.get(end..).unwrap_or_default();
            end += behind.len() - behind.trim_start().len();
        }
        if done < start {
            each(Piece::Text(text.get(done..start).unwrap_or_default()))?;
        }
        each(Piece::Token(token.id))?;
        done = end;
    }
    match text.get(done..) {
        None | Some("") => Ok(()),
        Some(rest) => each(Piece::Text(rest)),
    }
}
