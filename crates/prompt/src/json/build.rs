//! Builds a [`Json`] value from text.

use std::collections::HashMap;

use super::scan::walk;
use super::{Dict, Json, JsonError, MAX_DEPTH, MAX_INT_DIGITS, Scanner};

/// Parses a complete JSON text.
///
/// Half surrogate pairs are refused: Python keeps them, but then neither pydantic's string
/// fields nor a tokenizer takes them.
pub(crate) fn parse(text: &str) -> Result<Json, JsonError> {
    let mut scanner = Scanner::new(text);
    let value = value(&mut scanner, 0)?;
    scanner.end()?;
    Ok(value)
}

/// Each top-level field whose key is wanted: its key, its raw text and its value, or what is wrong
/// with it though its grammar is right. In order, duplicates included; the whole text is checked.
pub(crate) fn wanted_fields<'a>(
    text: &'a str,
    wanted: impl Fn(&str) -> bool,
    mut field: impl FnMut(&str, &'a str, Result<Json, JsonError>),
) -> Result<(), JsonError> {
    walk(text, |s, key, _| {
        if !wanted(key) {
            return s.skip();
        }
        let start = s.pos;
        let built = value(s, 0);
        if built.is_err() {
            s.pos = start;
            s.skip()?;
        }
        field(key, text.get(start..s.pos).unwrap_or_default(), built);
        Ok(())
    })
}

fn value(s: &mut Scanner<'_>, depth: usize) -> Result<Json, JsonError> {
    if depth > MAX_DEPTH {
        return Err(JsonError::refused("nested too deeply", s.pos));
    }
    s.space();
    match s.peek() {
        Some(b'{') => object(s, depth),
        Some(b'[') => array(s, depth),
        Some(b'"') => string(s).map(Json::Str),
        _ => {
            let at = s.pos;
            let text = s.scalar()?;
            scalar(text).ok_or(JsonError::refused("integer has too many digits", at))
        }
    }
}

fn string(s: &mut Scanner<'_>) -> Result<String, JsonError> {
    let at = s.pos;
    let (text, lone) = s.string()?;
    if lone {
        return Err(JsonError::refused("a string has half a surrogate pair", at));
    }
    Ok(text.into_owned())
}

fn array(s: &mut Scanner<'_>, depth: usize) -> Result<Json, JsonError> {
    s.pos += 1;
    let mut items = Vec::new();
    s.space();
    if s.eat(b']') {
        return Ok(Json::List(items));
    }
    loop {
        items.push(value(s, depth + 1)?);
        s.space();
        if s.eat(b',') {
            continue;
        }
        s.expect(b']', "expected `,` or `]`")?;
        return Ok(Json::List(items));
    }
}

fn object(s: &mut Scanner<'_>, depth: usize) -> Result<Json, JsonError> {
    s.pos += 1;
    let mut fields: Vec<(String, Json)> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    s.space();
    if s.eat(b'}') {
        return Ok(Json::Dict(Dict(fields)));
    }
    loop {
        s.space();
        if s.peek() != Some(b'"') {
            return s.error("expected a key in double quotes");
        }
        let key = string(s)?;
        s.space();
        s.expect(b':', "expected `:` after a key")?;
        let item = value(s, depth + 1)?;
        match index.get(&key).and_then(|at| fields.get_mut(*at)) {
            Some(slot) => slot.1 = item,
            None => {
                index.insert(key.clone(), fields.len());
                fields.push((key, item));
            }
        }
        s.space();
        if s.eat(b',') {
            continue;
        }
        s.expect(b'}', "expected `,` or `}`")?;
        return Ok(Json::Dict(Dict(fields)));
    }
}

/// A literal or number whose grammar the scanner has checked.
fn scalar(text: &str) -> Option<Json> {
    Some(match text {
        "null" => Json::Null,
        "true" => Json::Bool(true),
        "false" => Json::Bool(false),
        "NaN" => Json::Float(f64::NAN),
        "Infinity" => Json::Float(f64::INFINITY),
        "-Infinity" => Json::Float(f64::NEG_INFINITY),
        _ if text.contains(['.', 'e', 'E']) => Json::Float(text.parse().ok()?),
        _ => match text.parse::<i128>() {
            Ok(i) => Json::Int(i),
            Err(_) if text.len() <= MAX_INT_DIGITS => Json::BigInt(text.to_owned()),
            Err(_) => return None,
        },
    })
}
