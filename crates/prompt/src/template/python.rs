//! Python's text forms of values: `str`, `repr`, float formatting, white space, title case.

use std::fmt::Write as _;

use minijinja::value::{Value, ValueKind};

use super::value::PyNum;

/// `repr` of a float.
pub(crate) fn float_repr(f: f64) -> String {
    if f.is_nan() {
        return "nan".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Rust's shortest digits are Python's; the choice of form and the exponent are not.
    let scientific = format!("{f:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{f}");
        if plain.contains('.') { plain } else { plain + ".0" }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

/// `str.isspace` of one character: Unicode white space and U+001C to U+001F.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip()` without arguments.
pub(crate) fn strip(s: &str) -> &str {
    s.trim_matches(is_space)
}

/// `repr` of a string.
pub(crate) fn string_repr(s: &str) -> String {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(s.len() + 2);
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if is_printable(c) => out.push(c),
            _ => {
                let code = u32::from(c);
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// `str.isprintable` of one character: Rust's `escape_debug` knows the same categories
/// (controls, formats, separators, unassigned). It also escapes a combining mark at the start,
/// hence the character in front.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let probe: String = ['x', c].iter().collect();
    probe.escape_debug().count() == 2
}

/// `str(value)`, or `repr(value)` inside containers.
pub(crate) fn text(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        ValueKind::Undefined => String::new(),
        _ => {
            let mut out = String::new();
            write_repr(value, &mut out, 0);
            out
        }
    }
}

fn write_repr(value: &Value, out: &mut String, depth: usize) {
    if depth > crate::json::MAX_DEPTH {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::String => out.push_str(&string_repr(value.as_str().unwrap_or_default())),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(f) => out.push_str(&float_repr(f)),
            Err(_) => out.push_str(&value.to_string()),
        },
        ValueKind::Map if is_plain_map(value) => {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, out, depth + 1);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), out, depth + 1);
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter().into_iter().flatten() {
                if count > 0 {
                    out.push_str(", ");
                }
                write_repr(&item, out, depth + 1);
                count += 1;
            }
            if tuple && count == 1 {
                out.push(',');
            }
            out.push(if tuple { ')' } else { ']' });
        }
        _ => out.push_str(&value.to_string()),
    }
}

/// A map that is a dict, not an object with a form of its own such as a loop or a namespace.
fn is_plain_map(value: &Value) -> bool {
    value.len().is_some()
}

/// A number's text where Python's differs from minijinja's.
pub(crate) fn number_text(value: &Value) -> Option<String> {
    if let Some(number) = value.downcast_object_ref::<PyNum>() {
        return Some(number.0.clone());
    }
    if value.kind() == ValueKind::Number && !value.is_integer() {
        return f64::try_from(value.clone()).ok().map(float_repr);
    }
    None
}

/// `str.title`: a letter after anything but a letter is upper case.
pub(crate) fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut start = true;
    for c in s.chars() {
        if c.is_alphabetic() {
            if start {
                push_titlecase(c, &mut out);
            } else {
                out.extend(c.to_lowercase());
            }
            start = false;
        } else {
            out.push(c);
            start = true;
        }
    }
    out
}

/// Upper case, except for the digraphs that have a title case of their own.
fn push_titlecase(c: char, out: &mut String) {
    let digraph = match c {
        'Ǆ' | 'ǆ' | 'ǅ' => 'ǅ',
        'Ǉ' | 'ǉ' | 'ǈ' => 'ǈ',
        'Ǌ' | 'ǌ' | 'ǋ' => 'ǋ',
        'Ǳ' | 'ǳ' | 'ǲ' => 'ǲ',
        _ => {
            // A character that becomes several (as ß) has only its first one in upper case.
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
            return;
        }
    };
    out.push(digraph);
}

/// `str.capitalize`.
pub(crate) fn capitalize(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut chars = s.chars();
    if let Some(first) = chars.next() {
        push_titlecase(first, &mut out);
    }
    out.push_str(&chars.as_str().to_lowercase());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        for (f, want) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e22, "1e+22"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.234_567_890_123_456_8e17, "1.2345678901234568e+17"),
            (5e-324, "5e-324"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (0.1, "0.1"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float_repr(f), want);
        }
    }

    #[test]
    fn strings_quote_as_in_python() {
        assert_eq!(string_repr("it's"), "\"it's\"");
        assert_eq!(string_repr("both ' and \""), "'both \\' and \"'");
        assert_eq!(
            string_repr("\u{2028}\u{7f}\u{a0}\u{200b}é\u{301}😀\0"),
            "'\\u2028\\x7f\\xa0\\u200bé\u{301}😀\\x00'"
        );
    }
}
