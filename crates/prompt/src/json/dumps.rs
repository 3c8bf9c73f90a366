//! JSON text as Python's `json.dumps` writes it.

use std::fmt::Write as _;

use super::{Dict, Json};
use crate::template::python::float_repr;

/// The text, with blanks after commas and colons; `ascii` escapes every other character.
pub(crate) fn dumps(value: &Json, ascii: bool) -> String {
    let mut out = String::new();
    write(value, ascii, &mut out);
    out
}

fn write(value: &Json, ascii: bool, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Int(i) => drop(write!(out, "{i}")),
        Json::BigInt(digits) => out.push_str(digits),
        Json::Float(f) if f.is_nan() => out.push_str("NaN"),
        Json::Float(f) if f.is_infinite() => {
            out.push_str(if *f > 0.0 { "Infinity" } else { "-Infinity" });
        }
        Json::Float(f) => out.push_str(&float_repr(*f)),
        Json::Str(s) => write_string(s, ascii, out),
        Json::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write(item, ascii, out);
            }
            out.push(']');
        }
        Json::Dict(Dict(fields)) => {
            out.push('{');
            for (i, (key, item)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_string(key, ascii, out);
                out.push_str(": ");
                write(item, ascii, out);
            }
            out.push('}');
        }
    }
}

/// A string in quotes.
pub(crate) fn write_string(s: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' => push_unicode(u32::from(c), out),
            // Python's pattern for ASCII output ends at the tilde.
            _ if ascii && c > '~' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    push_unicode(u32::from(*unit), out);
                }
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn push_unicode(code: u32, out: &mut String) {
    let _ = write!(out, "\\u{code:04x}");
}
