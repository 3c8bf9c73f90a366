//! Methods of Python's `str`, `list` and `dict` that templates call and minijinja's own
//! compatibility layer lacks or does otherwise.
#![expect(clippy::needless_pass_by_value, reason = "the signatures are minijinja's")]

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::python::{self, is_space};

/// Widest result of the padding methods (characters): a template bug must not exhaust memory.
const MAX_WIDTH: usize = 1 << 20;

/// minijinja's callback for methods it does not know.
pub(crate) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string_method(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq => list_method(value, method, args)?,
        ValueKind::Map if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn list_method(list: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "index" => {
            let (wanted,): (Value,) = from_args(args)?;
            let at = list.try_iter()?.position(|item| item == wanted);
            at.map(|i| Some(Value::from(i))).ok_or_else(|| invalid("the value is not in list"))
        }
        "copy" => Ok(Some(list.clone())),
        _ => Ok(None),
    }
}

fn string_method(s: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (set,): (Option<Value>,) = from_args(args)?;
            Value::from(strip(s, method, set.as_ref().and_then(Value::as_str)))
        }
        "split" | "rsplit" => split(s, method == "rsplit", args)?,
        "splitlines" => {
            let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(kwargs.get("keepends")?).unwrap_or(false);
            let line = |(line, end): (&str, &str)| {
                if keep { Value::from(format!("{line}{end}")) } else { Value::from(line) }
            };
            Value::from(lines(s).into_iter().map(line).collect::<Vec<_>>())
        }
        "partition" | "rpartition" => partition(s, method == "rpartition", args)?,
        "removeprefix" => {
            let (affix,): (&str,) = from_args(args)?;
            Value::from(s.strip_prefix(affix).unwrap_or(s))
        }
        "removesuffix" => {
            let (affix,): (&str,) = from_args(args)?;
            Value::from(s.strip_suffix(affix).unwrap_or(s))
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let at = if method == "index" { s.find(wanted) } else { s.rfind(wanted) };
            let at = at.and_then(|at| s.get(..at)).ok_or_else(|| invalid("substring not found"))?;
            Value::from(at.chars().count())
        }
        "zfill" | "center" | "ljust" | "rjust" => pad(s, method, args)?,
        "title" => Value::from(python::title(s)),
        "capitalize" => Value::from(python::capitalize(s)),
        "casefold" => Value::from(s.to_lowercase().replace('ß', "ss").replace('ς', "σ")),
        "swapcase" => Value::from(swapcase(s)),
        "expandtabs" => {
            let (size,): (Option<usize>,) = from_args(args)?;
            Value::from(expandtabs(s, size.unwrap_or(8).min(64)))
        }
        "isspace" => Value::from(!s.is_empty() && s.chars().all(is_space)),
        "isdecimal" => {
            Value::from(!s.is_empty() && s.chars().all(|c| c.is_numeric() && c.is_alphanumeric()))
        }
        "istitle" => {
            let cased = s.chars().any(|c| c.is_uppercase() || c.is_lowercase());
            Value::from(cased && python::title(s) == s)
        }
        _ => return Ok(None),
    }))
}

/// `strip`, `lstrip` or `rstrip` with a set of characters, or Python's white space.
pub(crate) fn strip(s: &str, method: &str, set: Option<&str>) -> String {
    let drop = |c: char| set.map_or_else(|| is_space(c), |set| set.contains(c));
    match method {
        "lstrip" => s.trim_start_matches(drop),
        "rstrip" => s.trim_end_matches(drop),
        _ => s.trim_matches(drop),
    }
    .to_owned()
}

fn split(s: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (sep, max, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let sep = sep.or(kwargs.get("sep")?).filter(|v| !v.is_none());
    let max = max.or(kwargs.get("maxsplit")?).and_then(|max| usize::try_from(max).ok());
    kwargs.assert_all_used()?;
    let parts: Vec<&str> = match sep.as_ref().map(Value::as_str) {
        Some(Some("")) => return Err(invalid("empty separator")),
        Some(None) => return Err(invalid("must be str or None")),
        Some(Some(sep)) => match (max, from_right) {
            (None, _) => s.split(sep).collect(),
            (Some(max), false) => s.splitn(max + 1, sep).collect(),
            (Some(max), true) => {
                let mut parts: Vec<&str> = s.rsplitn(max + 1, sep).collect();
                parts.reverse();
                parts
            }
        },
        None => split_space(s, max, from_right),
    };
    Ok(Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>()))
}

fn split_space(s: &str, max: Option<usize>, from_right: bool) -> Vec<&str> {
    let Some(max) = max else {
        return s.split(is_space).filter(|part| !part.is_empty()).collect();
    };
    let mut parts = Vec::new();
    let mut rest =
        if from_right { s.trim_end_matches(is_space) } else { s.trim_start_matches(is_space) };
    while !rest.is_empty() && parts.len() < max {
        let cut = if from_right { rest.rsplit_once(is_space) } else { rest.split_once(is_space) };
        match (cut, from_right) {
            (Some((head, word)), true) => {
                parts.push(word);
                rest = head.trim_end_matches(is_space);
            }
            (Some((word, tail)), false) => {
                parts.push(word);
                rest = tail.trim_start_matches(is_space);
            }
            (None, _) => {
                parts.push(rest);
                rest = "";
            }
        }
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    if from_right {
        parts.reverse();
    }
    parts
}

fn partition(s: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (sep,): (&str,) = from_args(args)?;
    if sep.is_empty() {
        return Err(invalid("empty separator"));
    }
    let cut = if from_right { s.rsplit_once(sep) } else { s.split_once(sep) };
    let parts = match cut {
        Some((head, tail)) => [head, sep, tail],
        None if from_right => ["", "", s],
        None => [s, "", ""],
    };
    Ok(Value::from(Tuple::new(parts.into_iter().map(Value::from).collect())))
}

fn pad(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let width = usize::try_from(width).unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(invalid("the width is too large"));
    }
    let missing = width.saturating_sub(s.chars().count());
    if method == "zfill" {
        let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
        return Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))));
    }
    let left = match method {
        "ljust" => 0,
        // Python puts the odd one left when both the width and the gap are odd.
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let fill = fill.unwrap_or(" ");
    Ok(Value::from(format!("{}{s}{}", fill.repeat(left), fill.repeat(missing - left))))
}

fn swapcase(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

fn expandtabs(s: &str, size: usize) -> String {
    let mut out = String::with_capacity(s.len());
    let mut column = 0;
    for c in s.chars() {
        match c {
            '\t' => {
                let fill = if size == 0 { 0 } else { size - column % size };
                out.extend(std::iter::repeat_n(' ', fill));
                column += fill;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            _ => {
                out.push(c);
                column += 1;
            }
        }
    }
    out
}

/// The lines of `str.splitlines` and what ends each.
pub(crate) fn lines(s: &str) -> Vec<(&str, &str)> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut out = Vec::new();
    let mut rest = s;
    while let Some(at) = rest.find(is_end) {
        let (line, tail) = rest.split_at(at);
        let len = if tail.starts_with("\r\n") {
            2
        } else {
            tail.chars().next().map_or(1, char::len_utf8)
        };
        let (end, next) = tail.split_at(len);
        out.push((line, end));
        rest = next;
    }
    if !rest.is_empty() {
        out.push((rest, ""));
    }
    out
}

/// `dict(…)`: from a mapping or pairs, and keyword arguments.
pub(crate) fn dict(args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    for source in args.iter() {
        for item in source.try_iter()? {
            if source.kind() == ValueKind::Map {
                let value = source.get_item(&item)?;
                pairs.push((item, value));
            } else {
                let pair: Vec<Value> = item.try_iter()?.collect();
                let [key, value] = pair.as_slice() else {
                    return Err(invalid("dictionary update sequence elements must be pairs"));
                };
                pairs.push((key.clone(), value.clone()));
            }
        }
    }
    for name in kwargs.args() {
        pairs.push((Value::from(name), kwargs.peek(name)?));
    }
    Ok(Value::from_pairs(pairs))
}
