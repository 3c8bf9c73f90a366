//! Filters and tests that Jinja2 has and minijinja lacks or does otherwise.
#![expect(clippy::needless_pass_by_value, reason = "the signatures are minijinja's")]

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use super::methods::{lines, strip};
use super::python;
use super::source::ITER_FILTER;
use super::tojson::tojson;
use super::value::PyNum;

/// Adds everything of this module to an environment.
pub(crate) fn install(env: &mut Environment<'_>) {
    // Not in Jinja2: a template that uses them fails in the engine.
    for name in ["split", "lines", "bool", "chain", "zip"] {
        env.remove_filter(name);
    }
    for name in ["startingwith", "endingwith"] {
        env.remove_test(name);
    }
    env.add_filter("tojson", tojson);
    env.add_filter(ITER_FILTER, iterate);
    env.add_filter("attr", attr);
    env.add_filter("list", list);
    env.add_filter("join", join);
    env.add_filter("string", |v: &Value| string(v));
    env.add_filter("trim", |v: &Value, set: Option<&str>| strip(&python::text(v), "strip", set));
    env.add_filter("capitalize", |v: &Value| python::capitalize(&python::text(v)));
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("int", int);
    env.add_filter("indent", indent);
    env.add_filter("center", center);
    env.add_filter("wordcount", |v: &Value| wordcount(&python::text(v)));
    env.add_filter("truncate", truncate);
    env.add_filter("urlencode", |v: &Value| urlencode(&python::text(v)));
    install_tests(env);
}

fn install_tests(env: &mut Environment<'_>) {
    let is_num = |v: &Value| v.downcast_object_ref::<PyNum>().is_some();
    env.add_test("iterable", |v: &Value| {
        matches!(
            v.kind(),
            ValueKind::Seq
                | ValueKind::Map
                | ValueKind::Iterable
                | ValueKind::String
                | ValueKind::Undefined
        )
    });
    env.add_test("sequence", |v: &Value| {
        matches!(
            v.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined
        )
    });
    env.add_test("number", move |v: &Value| {
        v.is_number() || v.kind() == ValueKind::Bool || is_num(v)
    });
    env.add_test("integer", |v: &Value| {
        let digits = |n: &PyNum| n.0.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit());
        v.is_integer() || v.downcast_object_ref::<PyNum>().is_some_and(digits)
    });
    env.add_test("float", |v: &Value| {
        let text = |n: &PyNum| n.0.bytes().any(|b| b.is_ascii_alphabetic());
        v.kind() == ValueKind::Number && !v.is_integer()
            || v.downcast_object_ref::<PyNum>().is_some_and(text)
    });
    env.add_test("callable", move |v: &Value| {
        matches!(v.kind(), ValueKind::Plain | ValueKind::Undefined) && !is_num(v)
    });
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// What a loop walks over: an error for what Python cannot walk over.
fn iterate(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            Err(invalid(format!("{} object is not iterable", value.kind())))
        }
        ValueKind::String => Ok(characters(value.as_str().unwrap_or_default())),
        _ if value.downcast_object_ref::<PyNum>().is_some() => {
            Err(invalid("number object is not iterable".to_owned()))
        }
        _ => Ok(value.clone()),
    }
}

fn characters(s: &str) -> Value {
    Value::from(s.chars().map(|c| Value::from(c.to_string())).collect::<Vec<_>>())
}

/// `x | attr("y")`: attributes only. A dict's keys are none.
fn attr(value: &Value, name: &str) -> Result<Value, Error> {
    let is_dict = value.kind() == ValueKind::Map && value.len().is_some();
    if is_dict { Ok(Value::UNDEFINED) } else { value.get_attr(name) }
}

fn list(value: &Value) -> Result<Value, Error> {
    let items = iterate(value)?;
    if items.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    Ok(Value::from(items.try_iter()?.collect::<Vec<_>>()))
}

fn join(
    value: &Value,
    d: Option<&str>,
    attribute: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let named: Option<String> = kwargs.get("d")?;
    let attribute = attribute.or(kwargs.get("attribute")?);
    kwargs.assert_all_used()?;
    let separator = d.map(str::to_owned).or(named).unwrap_or_default();
    let mut out = String::new();
    let items = iterate(value)?;
    if items.is_undefined() {
        return Ok(out);
    }
    for (i, item) in items.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(&separator);
        }
        let item = match &attribute {
            Some(path) => attribute_of(&item, path)?,
            None => item,
        };
        out.push_str(&python::text(&item));
    }
    Ok(out)
}

/// An attribute by name, index, or dotted path of both.
fn attribute_of(item: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return item.get_item(path) };
    path.split('.').try_fold(item.clone(), |value, part| match part.parse::<usize>() {
        Ok(index) => value.get_item(&Value::from(index)),
        Err(_) => value.get_item(&Value::from(part)),
    })
}

fn string(value: &Value) -> Value {
    if value.kind() == ValueKind::String { value.clone() } else { Value::from(python::text(value)) }
}

fn default(
    value: &Value,
    other: Option<Value>,
    lax: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let other = kwargs.get::<Option<Value>>("default_value")?.or(other);
    let lax = lax.or(kwargs.get("boolean")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    if value.is_undefined() || (lax && !value.is_true()) {
        return Ok(other.unwrap_or_else(|| Value::from("")));
    }
    Ok(value.clone())
}

/// `x | int(default=0, base=10)`: never fails, unlike minijinja's.
fn int(
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = base.or(kwargs.get("base")?).unwrap_or(10);
    kwargs.assert_all_used()?;
    let from_float = |f: f64| {
        // Beyond this a float does not fit an integer type here.
        if f.is_finite() && f.abs() < 1e38 {
            Value::from(f.trunc() as i128)
        } else {
            default.clone()
        }
    };
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.clone(),
        ValueKind::Number => {
            f64::try_from(value.clone()).map_or_else(|_| default.clone(), from_float)
        }
        ValueKind::String => {
            let text = python::strip(value.as_str().unwrap_or_default()).replace('_', "");
            let digits = match base {
                16 => text.trim_start_matches("0x").trim_start_matches("0X"),
                8 => text.trim_start_matches("0o").trim_start_matches("0O"),
                2 => text.trim_start_matches("0b").trim_start_matches("0B"),
                _ => &text,
            };
            match i128::from_str_radix(digits, base.clamp(2, 36)) {
                Ok(i) => Value::from(i),
                Err(_) => text.parse().map_or_else(|_| default.clone(), from_float),
            }
        }
        _ => default,
    })
}

fn indent(
    value: &Value,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width = width.or(kwargs.get("width")?).unwrap_or_else(|| Value::from(4));
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let margin = match width.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(usize::try_from(width).unwrap_or(0).min(1024)),
    };
    let text = python::text(value) + "\n";
    let mut out = String::new();
    for (i, (line, _)) in lines(&text).into_iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i == 0 && first) || (i > 0 && (blank || !line.is_empty())) {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn center(value: &Value, width: Option<usize>) -> String {
    let text = python::text(value);
    let width = width.unwrap_or(80).min(1 << 20);
    let missing = width.saturating_sub(text.chars().count());
    let left = missing / 2 + (missing & width & 1);
    format!("{}{text}{}", " ".repeat(left), " ".repeat(missing - left))
}

fn wordcount(s: &str) -> usize {
    s.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).count()
}

fn truncate(
    value: &Value,
    length: Option<usize>,
    kill_words: Option<bool>,
    end: Option<&str>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let length = length.or(kwargs.get("length")?).unwrap_or(255);
    let kill = kill_words.or(kwargs.get("killwords")?).unwrap_or(false);
    let end = end.map(str::to_owned).or(kwargs.get("end")?).unwrap_or_else(|| "...".to_owned());
    let leeway: usize = kwargs.get::<Option<usize>>("leeway")?.unwrap_or(5);
    kwargs.assert_all_used()?;
    let text = python::text(value);
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let kept: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept = if kill {
        kept.as_str()
    } else {
        kept.rsplit_once(' ').map_or(kept.as_str(), |(head, _)| head)
    };
    Ok(format!("{kept}{end}"))
}

fn urlencode(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for b in s.bytes() {
        if b.is_ascii_alphanumeric() || b"_.-~/".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}
