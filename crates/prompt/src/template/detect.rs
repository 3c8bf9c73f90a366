//! Whether a template wants message content as one string or as a list of parts.
//!
//! vLLM 0.32 decides this from the template's syntax tree: a template that loops over a
//! message's `content` (directly, or in a macro that is called with it) gets lists, every other
//! one strings. The same is read here from the tags, whose few shapes that matter need no full
//! parser.

use super::source::{Kind, Piece, Token, TokenKind, loop_iterable, pieces, tokens};

/// How message content is given to the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentFormat {
    /// Text parts joined with a newline.
    String,
    /// A list of parts.
    OpenAi,
}

/// The format for a template's source (line ends normalised).
pub(crate) fn content_format(source: &str) -> ContentFormat {
    let all = pieces(source);
    let tags: Vec<Tag<'_>> = tags(&all);
    match Detector::new(&tags).and_then(|d| d.finds_content_loop()) {
        Some(true) => ContentFormat::OpenAi,
        // `None`: vLLM's detection fails on the template and falls back.
        Some(false) | None => ContentFormat::String,
    }
}

struct Tag<'a> {
    kind: Kind,
    tokens: Vec<Token<'a>>,
    /// Indices of the enclosing macro tags, outermost first.
    macros: Vec<usize>,
}

fn tags<'a>(pieces: &[Piece<'a>]) -> Vec<Tag<'a>> {
    let mut out: Vec<Tag<'a>> = Vec::new();
    let mut open = Vec::new();
    for piece in pieces.iter().filter(|p| p.kind != Kind::Data) {
        let tokens = tokens(piece.inner);
        let keyword = |name: &str| {
            piece.kind == Kind::Statement && tokens.first().is_some_and(|t| t.is_name(name))
        };
        if keyword("endmacro") {
            open.pop();
        }
        let opens = keyword("macro");
        out.push(Tag { kind: piece.kind, tokens, macros: open.clone() });
        if opens {
            open.push(out.len() - 1);
        }
    }
    out
}

impl<'a> Tag<'a> {
    fn after(&self, keyword: &str) -> Option<&[Token<'a>]> {
        let (first, rest) = self.tokens.split_first()?;
        (self.kind == Kind::Statement && first.is_name(keyword)).then_some(rest)
    }

    /// Target and iterable of a `for` tag.
    fn for_loop(&self) -> Option<(&[Token<'a>], &[Token<'a>])> {
        let rest = self.after("for")?;
        let target = rest.split(|t| t.is_name("in")).next()?;
        Some((target, loop_iterable(rest)?))
    }
}

/// A single name, as the target of a loop or an assignment. vLLM's detection asserts that it is
/// one wherever it follows a variable; `None` stands for that failure.
fn single_name<'a>(target: &[Token<'a>]) -> Option<&'a str> {
    match target {
        [t] if t.kind == TokenKind::Name => Some(t.text),
        _ => None,
    }
}

struct Detector<'t, 'a> {
    tags: &'t [Tag<'a>],
    message_names: Vec<&'a str>,
}

impl<'t, 'a> Detector<'t, 'a> {
    fn new(tags: &'t [Tag<'a>]) -> Option<Self> {
        let lists = names_of_messages(tags)?;
        let mut message_names = Vec::new();
        for (target, iterable) in tags.iter().filter_map(Tag::for_loop) {
            if access(iterable).is_some_and(|a| a.key.is_none() && lists.contains(&a.name)) {
                message_names.push(single_name(target)?);
            }
        }
        Some(Self { tags, message_names })
    }

    fn is_content(&self, expression: &[Token<'a>]) -> bool {
        access(expression)
            .is_some_and(|a| a.key == Some("content") && self.message_names.contains(&a.name))
    }

    fn finds_content_loop(&self) -> Option<bool> {
        for tag in self.tags {
            let Some((target, iterable)) = tag.for_loop() else { continue };
            let name = match iterable {
                [t] if t.kind == TokenKind::Name => Some(t.text),
                _ => None,
            };
            let hit = self.is_content(iterable)
                || name.is_some_and(|name| match tag.macros.as_slice() {
                    [] => name == "content",
                    // The outermost macro is visited first and its loops are overwritten by the
                    // inner one that also holds them.
                    macros => macros
                        .iter()
                        .rev()
                        .map(|m| self.content_parameters(*m))
                        .find(|p| !p.is_empty())
                        .is_some_and(|p| p.contains(&name)),
                });
            if hit {
                single_name(target)?;
                return Some(true);
            }
        }
        Some(false)
    }

    /// The parameters of a macro that receive a message's content in some call.
    fn content_parameters(&self, macro_tag: usize) -> Vec<&'a str> {
        let Some((name, parameters)) = self.tags.get(macro_tag).and_then(macro_head) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        for arguments in self.tags.iter().flat_map(|t| calls(t, name)) {
            for (i, argument) in split_arguments(arguments).into_iter().enumerate() {
                let (key, value) = match argument {
                    [k, eq, value @ ..] if k.kind == TokenKind::Name && eq.is_op("=") => {
                        (Some(k.text), value)
                    }
                    value => (parameters.get(i).copied(), value),
                };
                if let Some(key) = key.filter(|k| parameters.contains(k))
                    && self.is_content(value)
                {
                    out.push(key);
                }
            }
        }
        out
    }
}

/// `messages` and every variable a `set` makes of it.
fn names_of_messages<'a>(tags: &[Tag<'a>]) -> Option<Vec<&'a str>> {
    let mut names = vec!["messages"];
    let mut next = 0;
    while let Some(name) = names.get(next).copied() {
        next += 1;
        for set in tags.iter().filter_map(|t| t.after("set")) {
            let mut sides = set.splitn(2, |t| t.is_op("="));
            let (Some(target), Some(value)) = (sides.next(), sides.next()) else { continue };
            if access(value).is_some_and(|a| a.key.is_none() && a.name == name) {
                let target = single_name(target)?;
                if !names.contains(&target) {
                    names.push(target);
                }
            }
        }
    }
    Some(names)
}

/// Name and parameter names of a `macro` tag.
fn macro_head<'a>(tag: &Tag<'a>) -> Option<(&'a str, Vec<&'a str>)> {
    let (name, rest) = tag.after("macro")?.split_first()?;
    let inside = bracketed(rest)?;
    let parameters = split_arguments(inside)
        .into_iter()
        .filter_map(|p| p.first())
        .filter(|t| t.kind == TokenKind::Name)
        .map(|t| t.text)
        .collect();
    Some((name.text, parameters))
}

/// The argument tokens of each call of `name` in a tag.
fn calls<'s, 'a>(tag: &'s Tag<'a>, name: &'s str) -> impl Iterator<Item = &'s [Token<'a>]> {
    tag.tokens.iter().enumerate().filter_map(move |(i, t)| {
        if !t.is_name(name) {
            return None;
        }
        // Not a definition, an attribute, a filter or a test of that name.
        let before = i.checked_sub(1).and_then(|i| tag.tokens.get(i));
        let other = before
            .is_some_and(|b| b.is_name("macro") || b.is_name("is") || b.is_op(".") || b.is_op("|"));
        if other { None } else { bracketed(tag.tokens.get(i + 1..)?) }
    })
}

/// What is inside the brackets the tokens start with.
fn bracketed<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<&'t [Token<'a>]> {
    if !tokens.first()?.is_op("(") {
        return None;
    }
    tokens.get(1..closing(tokens)?)
}

/// Index of the token that closes the bracket the tokens start with.
fn closing(tokens: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|t| {
        depth += t.nesting();
        depth == 0
    })
}

fn split_arguments<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let mut depth = 0;
    tokens
        .split(|t| {
            depth += t.nesting();
            depth == 0 && t.is_op(",")
        })
        .collect()
}

/// A variable, or one key of it, possibly filtered, tested or sliced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access<'a> {
    name: &'a str,
    key: Option<&'a str>,
}

/// Reads the whole expression as an [`Access`]; `None` if it is anything else.
fn access<'a>(tokens: &[Token<'a>]) -> Option<Access<'a>> {
    let (found, rest) = access_prefix(tokens)?;
    rest.is_empty().then_some(found)
}

fn access_prefix<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<(Access<'a>, &'t [Token<'a>])> {
    let first = tokens.first()?;
    // A filtered or sliced value has no key of its own that counts.
    let mut sealed = false;
    let (mut found, mut rest) = if first.is_op("(") {
        let end = closing(tokens)?;
        let inner = access(tokens.get(1..end)?)?;
        sealed = end > 2 && inner.key.is_none();
        (inner, tokens.get(end + 1..)?)
    } else if first.kind == TokenKind::Name && first.text != "not" {
        (Access { name: first.text, key: None }, tokens.get(1..)?)
    } else {
        return None;
    };
    loop {
        match rest {
            [dot, name, tail @ ..] if dot.is_op(".") && name.kind == TokenKind::Name => {
                if sealed || found.key.is_some() {
                    return None;
                }
                found.key = Some(name.text);
                rest = tail;
            }
            [open, ..] if open.is_op("[") => {
                let end = closing(rest)?;
                let inside = rest.get(1..end)?;
                if is_slice(inside) {
                    sealed = true;
                } else {
                    let [key] = inside else { return None };
                    if sealed || found.key.is_some() || key.kind != TokenKind::Str {
                        return None;
                    }
                    found.key = Some(key.text.get(1..key.text.len() - 1)?);
                }
                rest = rest.get(end + 1..)?;
            }
            [pipe, name, tail @ ..] if pipe.is_op("|") && name.kind == TokenKind::Name => {
                sealed = true;
                rest = skip_call(skip_dotted(tail));
            }
            [is, tail @ ..] if is.is_name("is") => {
                sealed = true;
                rest = skip_test(tail)?;
            }
            _ => return Some((found, rest)),
        }
    }
}

fn is_slice(inside: &[Token<'_>]) -> bool {
    let mut depth = 0;
    inside.iter().any(|t| {
        depth += t.nesting();
        depth == 0 && t.is_op(":")
    })
}

fn skip_dotted<'t, 'a>(mut tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    while let [dot, name, tail @ ..] = tokens {
        if !dot.is_op(".") || name.kind != TokenKind::Name {
            break;
        }
        tokens = tail;
    }
    tokens
}

fn skip_call<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    match tokens.first() {
        Some(t) if t.is_op("(") => {
            closing(tokens).and_then(|end| tokens.get(end + 1..)).unwrap_or_default()
        }
        _ => tokens,
    }
}

/// Name and argument of a test; a negated test is another node to vLLM.
fn skip_test<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<&'t [Token<'a>]> {
    let (name, rest) = tokens.split_first()?;
    if name.kind != TokenKind::Name || name.text == "not" {
        return None;
    }
    let rest = skip_dotted(rest);
    match rest {
        [t, ..] if t.is_op("(") => Some(skip_call(rest)),
        [t, ..] if t.is_op("[") || t.is_op("{") => rest.get(closing(rest)? + 1..),
        [t, tail @ ..] if takes_as_argument(t) => Some(tail),
        _ => Some(rest),
    }
}

fn takes_as_argument(token: &Token<'_>) -> bool {
    match token.kind {
        TokenKind::Name => !["else", "or", "and", "is"].contains(&token.text),
        TokenKind::Str | TokenKind::Number => true,
        TokenKind::Op => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openai(source: &str) -> bool {
        content_format(source) == ContentFormat::OpenAi
    }

    #[test]
    fn loops_over_content_are_found() {
        for source in [
            "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
            "{%- for m in messages[1:] -%}{%- for c in m['content'] | list -%}{% endfor %}{% endfor %}",
            "{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{% for c in (m.content) if c %}{% endfor %}{% endfor %}",
            "{% for c in content %}{% endfor %}",
            "{% macro text(x) %}{% for i in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ text(m.content) }}{% endfor %}",
            "{% macro text(a, x=none) %}{% for i in x %}{% endfor %}{% endmacro %}{% for m in messages %}{% set y = text(1, x=m['content']) %}{% endfor %}",
        ] {
            assert!(openai(source), "{source}");
        }
    }

    #[test]
    fn other_loops_are_not() {
        for source in [
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}",
            "{% for m in messages %}{% for c in m.content.parts %}{% endfor %}{% endfor %}",
            "{% for m in (messages if a else b) %}{% for c in m.content %}{% endfor %}{% endfor %}",
            "{% macro text(content) %}{% for i in content %}{% endfor %}{% endmacro %}{{ text(1) }}",
            "{# {% for c in content %} #}{% raw %}{% for c in content %}{% endraw %}",
            // vLLM's detection fails on these targets and falls back to strings.
            "{% for i, m in messages | items %}{% endfor %}{% for c in content %}{% endfor %}",
            "{% for m in messages %}{% for k, v in m.content %}{% endfor %}{% endfor %}",
            "{% set ns.rest = messages[1:] %}{% for c in content %}{% endfor %}",
        ] {
            assert!(!openai(source), "{source}");
        }
    }
}
