//! Template source, cut into data and tags, and rewritten where minijinja reads it otherwise
//! than Jinja2 does.
//!
//! - Line ends become `\n`, as Jinja2 makes them.
//! - `{% generation %}` (transformers' mark for training masks) becomes `{% with %}`, which has
//!   the same scope.
//! - What `{% for %}` walks over goes through the filter [`ITER_FILTER`], so that walking over
//!   none or a number is the error it is in Python.

/// The filter every loop's iterable is passed through.
pub(crate) const ITER_FILTER: &str = "__iter";

/// What a piece of source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text, comments and raw blocks.
    Data,
    /// `{{ … }}`
    Print,
    /// `{% … %}`
    Statement,
}

/// A piece of source; `inner` is without delimiters and white-space marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) inner: &'a str,
}

/// A token inside a tag and its place in the tag's inner text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name,
    Number,
    /// With its quotes.
    Str,
    /// One character.
    Op,
}

impl Token<'_> {
    pub(crate) fn is_name(&self, name: &str) -> bool {
        self.kind == TokenKind::Name && self.text == name
    }

    pub(crate) fn is_op(&self, op: &str) -> bool {
        self.kind == TokenKind::Op && self.text == op
    }

    /// +1 for an opening bracket, -1 for a closing one.
    pub(crate) fn nesting(&self) -> i32 {
        match (self.kind, self.text) {
            (TokenKind::Op, "(" | "[" | "{") => 1,
            (TokenKind::Op, ")" | "]" | "}") => -1,
            _ => 0,
        }
    }
}

/// Line ends as Jinja2 reads them.
pub(crate) fn normalise_newlines(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

/// The source minijinja is given.
pub(crate) fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 64);
    for piece in pieces(source) {
        match rewrite_statement(&piece) {
            Some(inner) => {
                let start = piece.inner.as_ptr() as usize - piece.text.as_ptr() as usize;
                out.push_str(piece.text.get(..start).unwrap_or_default());
                out.push_str(&inner);
                out.push_str(piece.text.get(start + piece.inner.len()..).unwrap_or_default());
            }
            None => out.push_str(piece.text),
        }
    }
    out
}

/// Whether there is a `{% generation %}` tag.
pub(crate) fn has_generation(source: &str) -> bool {
    let is_tag =
        |piece: &Piece<'_>| piece.kind == Kind::Statement && piece.inner.trim() == "generation";
    pieces(source).iter().any(is_tag)
}

fn rewrite_statement(piece: &Piece<'_>) -> Option<String> {
    if piece.kind != Kind::Statement {
        return None;
    }
    let tokens = tokens(piece.inner);
    match tokens.as_slice() {
        [t] if t.is_name("generation") => Some(" with ".to_owned()),
        [t] if t.is_name("endgeneration") => Some(" endwith ".to_owned()),
        [first, ..] if first.is_name("for") => {
            let iterable = loop_iterable(&tokens)?;
            let (start, end) = (iterable.first()?.at, iterable.last()?);
            let end = end.at + end.text.len();
            Some(format!(
                "{}({})|{ITER_FILTER}{}",
                piece.inner.get(..start)?,
                piece.inner.get(start..end)?,
                piece.inner.get(end..)?
            ))
        }
        _ => None,
    }
}

/// The tokens between `in` and `if` or `recursive` of a `for` tag.
pub(crate) fn loop_iterable<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<&'t [Token<'a>]> {
    let start = tokens.iter().position(|t| t.is_name("in"))? + 1;
    let mut depth = 0;
    let rest = tokens.get(start..)?;
    let end = rest.iter().position(|t| {
        depth += t.nesting();
        depth == 0 && (t.is_name("if") || t.is_name("recursive"))
    });
    rest.get(..end.unwrap_or(rest.len()))
}

/// Cuts source into pieces. Together they are the source.
pub(crate) fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = source;
    while let Some((before, tag)) = next_tag(rest) {
        if !before.is_empty() {
            out.push(Piece { kind: Kind::Data, text: before, inner: before });
        }
        let Some(piece) = read_tag(tag) else {
            rest = tag;
            break;
        };
        out.push(piece);
        rest = tag.get(piece.text.len()..).unwrap_or_default();
    }
    if !rest.is_empty() {
        out.push(Piece { kind: Kind::Data, text: rest, inner: rest });
    }
    out
}

fn next_tag(text: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find('{')?;
        if matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')) {
            return text.split_at_checked(at);
        }
        from = at + 1;
    }
}

/// The tag at the start of the text; `None` when it does not end.
fn read_tag(text: &str) -> Option<Piece<'_>> {
    let data = |len: usize| {
        let text = text.get(..len)?;
        Some(Piece { kind: Kind::Data, text, inner: text })
    };
    match text.as_bytes().get(1)? {
        b'#' => data(text.get(2..)?.find("#}")? + 4),
        b'%' => {
            let piece = delimited(text, Kind::Statement, "%}")?;
            if piece.inner.trim() != "raw" {
                return Some(piece);
            }
            data(piece.text.len() + end_of_raw(text.get(piece.text.len()..)?)?)
        }
        _ => delimited(text, Kind::Print, "}}"),
    }
}

fn end_of_raw(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find("{%")?;
        let tag = delimited(text.get(at..)?, Kind::Statement, "%}");
        match tag {
            Some(tag) if tag.inner.trim() == "endraw" => return Some(at + tag.text.len()),
            _ => from = at + 2,
        }
    }
}

/// A tag from its opening to its end, which strings and brackets hide.
fn delimited<'a>(text: &'a str, kind: Kind, end: &str) -> Option<Piece<'a>> {
    let body = text.get(2..)?;
    let start = usize::from(body.starts_with(['-', '+']));
    let mut depth = 0_i32;
    let mut at = start;
    loop {
        let rest = body.get(at..)?;
        if depth == 0 {
            for (mark, len) in [("-", 1), ("+", 1), ("", 0)] {
                if rest.starts_with(mark) && rest.get(len..).is_some_and(|r| r.starts_with(end)) {
                    return Some(Piece {
                        kind,
                        text: text.get(..2 + at + len + end.len())?,
                        inner: body.get(start..at)?,
                    });
                }
            }
        }
        let token = next_token(rest)?;
        depth = (depth + token.nesting()).max(0);
        at += token.at + token.text.len();
        // White space before the end mark is no token.
        at += body.get(at..)?.len() - body.get(at..)?.trim_start().len();
    }
}

/// The tokens of a tag's inner text.
pub(crate) fn tokens(inner: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(token) = inner.get(at..).and_then(next_token) {
        let token = Token { at: at + token.at, ..token };
        at = token.at + token.text.len();
        out.push(token);
    }
    out
}

fn next_token(text: &str) -> Option<Token<'_>> {
    let start = text.trim_start();
    let at = text.len() - start.len();
    let first = start.chars().next()?;
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (kind, len) = if first == '"' || first == '\'' {
        (TokenKind::Str, string_len(start, first)?)
    } else if first.is_ascii_digit() {
        (TokenKind::Number, start.find(|c| !word(c)).unwrap_or(start.len()))
    } else if word(first) {
        (TokenKind::Name, start.find(|c| !word(c)).unwrap_or(start.len()))
    } else {
        (TokenKind::Op, first.len_utf8())
    };
    Some(Token { kind, text: start.get(..len)?, at })
}

fn string_len(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().skip(1).find_map(|(i, c)| {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return Some(i + 1);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_generation_and_loops() {
        assert_eq!(
            rewrite("a{%- generation +%}b{% endgeneration -%}c"),
            "a{%- with +%}b{% endwith -%}c"
        );
        assert_eq!(
            rewrite("{%- for m in messages[1:] if m.role in ['a'] recursive -%}"),
            "{%- for m in (messages[1:])|__iter if m.role in ['a'] recursive -%}"
        );
        assert_eq!(rewrite("{% for a,b in x|f(' if ')%}"), "{% for a,b in (x|f(' if '))|__iter%}");
        let untouched = "{% raw %}{% generation %}{% endraw %}{# {% for x in y %} #}{{ '{% for x in y %}' }}{% if 'generation' %}";
        assert_eq!(rewrite(untouched), untouched);
    }

    #[test]
    fn tags_end_outside_strings_and_brackets() {
        let texts = |s| pieces(s).into_iter().map(|p| p.text).collect::<Vec<_>>();
        assert_eq!(texts("{{ {'a': {}} }}x"), ["{{ {'a': {}} }}", "x"]);
        assert_eq!(texts("{% set x = '%}' -%}y"), ["{% set x = '%}' -%}", "y"]);
        assert_eq!(texts("{ {{ a - b }}{{"), ["{ ", "{{ a - b }}", "{{"]);
        assert_eq!(pieces("{%- x -%}")[0].inner, " x ");
        assert_eq!(pieces("{{-1}}")[0].inner, "1");
    }

    proptest::proptest! {
        #[test]
        fn pieces_are_the_source(source in "[{}%#'\"a-c\\\\ \\n-]{0,40}|.*") {
            let joined: String = pieces(&source).into_iter().map(|p| p.text).collect();
            proptest::prop_assert_eq!(joined, source.clone());
            let _ = rewrite(&source);
        }
    }
}
