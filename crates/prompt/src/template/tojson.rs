//! The `tojson` filter as transformers defines it: Python's `json.dumps` with
//! `ensure_ascii=False`, no HTML escaping.
#![expect(clippy::needless_pass_by_value, reason = "the signatures are minijinja's")]

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::python::float_repr;
use super::value::PyNum;
use crate::json::{MAX_DEPTH, write_string};

struct Style {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// `x | tojson(ensure_ascii, indent, separators, sort_keys)`
pub(crate) fn tojson(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let style = style(&args, &kwargs)?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write(value, &style, 0, &mut out)?;
    Ok(Value::from(out))
}

fn style(args: &[Value], kwargs: &Kwargs) -> Result<Style, Error> {
    let option = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(named.or_else(|| args.get(at).cloned()).filter(|v| !v.is_none()))
    };
    let indent = option(1, "indent")?.map(|v| match v.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(usize::try_from(v).unwrap_or(0).min(64)),
    });
    let mut item = if indent.is_some() { "," } else { ", " }.to_owned();
    let mut key = ": ".to_owned();
    if let Some(pair) = option(2, "separators")? {
        let parts: Vec<Value> = pair.try_iter()?.collect();
        match parts.as_slice() {
            [a, b] => (item, key) = (a.to_string(), b.to_string()),
            _ => return Err(invalid("separators are a pair")),
        }
    }
    Ok(Style {
        ascii: option(0, "ensure_ascii")?.is_some_and(|v| v.is_true()),
        indent,
        item,
        key,
        sort: option(3, "sort_keys")?.is_some_and(|v| v.is_true()),
    })
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::BadSerialization, message.to_owned())
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid("nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style.ascii, out),
        ValueKind::Map => write_map(value, style, depth, out)?,
        ValueKind::Iterable if value.len().is_none() => {
            return Err(invalid("Object of type generator is not JSON serializable"));
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let mut any = false;
            out.push('[');
            for item in value.try_iter()? {
                separate(any, style, depth + 1, out);
                any = true;
                write(&item, style, depth + 1, out)?;
            }
            finish(any, ']', style, depth, out);
        }
        _ => match value.downcast_object_ref::<PyNum>() {
            Some(number) => out.push_str(json_number(&number.0)),
            None => {
                let kind = value.kind();
                return Err(invalid(&format!("Object of type {kind} is not JSON serializable")));
            }
        },
    }
    Ok(())
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let text = f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float_repr);
    json_number(&text).to_owned()
}

fn json_number(python: &str) -> &str {
    match python {
        "nan" => "NaN",
        "inf" => "Infinity",
        "-inf" => "-Infinity",
        other => other,
    }
}

fn write_map(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if style.sort {
        keys.sort();
    }
    out.push('{');
    for (i, key) in keys.iter().enumerate() {
        separate(i > 0, style, depth + 1, out);
        let name = match key.kind() {
            ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
            ValueKind::None => "null".to_owned(),
            ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
            ValueKind::Number => number(key),
            _ => return Err(invalid("keys must be str, int, float, bool or None")),
        };
        write_string(&name, style.ascii, out);
        out.push_str(&style.key);
        write(&value.get_item(key)?, style, depth + 1, out)?;
    }
    finish(!keys.is_empty(), '}', style, depth, out);
    Ok(())
}

fn separate(not_first: bool, style: &Style, depth: usize, out: &mut String) {
    if not_first {
        out.push_str(&style.item);
    }
    new_line(style, depth, out);
}

fn finish(any: bool, end: char, style: &Style, depth: usize, out: &mut String) {
    if any {
        new_line(style, depth, out);
    }
    out.push(end);
}

fn new_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}
