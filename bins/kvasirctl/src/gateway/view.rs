//! Parts of the API's documents as cells and lines.

use serde_json::Value;

pub(crate) use crate::table::plain;

/// A text, a number or a word for yes and no; empty for nothing.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(_) => number(value),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Object(_) => value.to_string(),
    }
}

fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(real) if value.is_f64() && real.fract() == 0.0 && real.abs() < 1e15 => {
            format!("{real:.0}")
        }
        Some(real) if value.is_f64() => format!("{real:.3}"),
        _ => value.to_string(),
    }
}

/// A text of an object.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A list of an object.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A count of an object, whether written as a number or as a text.
pub(crate) fn count(value: &Value, key: &str) -> u64 {
    let value = value.get(key);
    let number = value.and_then(Value::as_u64);
    number.or_else(|| value?.as_str()?.parse().ok()).unwrap_or(0)
}

/// A share as percent; empty for none.
pub(crate) fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(String::new, |share| format!("{:.1}%", share * 100.0))
}

/// Bytes in the largest unit that leaves a number above one.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let place = (0..UNITS.len()).rev().find(|place| count >> (10 * place) > 0).unwrap_or(0);
    if place == 0 {
        return format!("{count} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let number = count as f64 / (1_u64 << (10 * place)) as f64;
    format!("{number:.1} {}", UNITS[place])
}

/// Trust with its reason.
pub(crate) fn trust(value: &Value, state: &str, reason: &str) -> String {
    match text(value, reason) {
        "" => text(value, state).to_owned(),
        why => format!("{}({why})", text(value, state)),
    }
}

/// Counts by word, the largest first.
pub(crate) fn counts(value: &Value) -> String {
    let mut all: Vec<(&String, u64)> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(word, count)| (word, count.as_u64().unwrap_or(0)))
        .collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    all.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_short() {
        for (value, expected) in [
            (json!(null), ""),
            (json!(true), "yes"),
            (json!(3), "3"),
            (json!(60000.0), "60000"),
            (json!(0.12345), "0.123"),
            (json!(["a", "b"]), "a,b"),
        ] {
            assert_eq!(cell(&value), expected);
        }
        assert_eq!(
            (bytes(5), bytes(1536), bytes(3 << 40)),
            ("5 B".to_owned(), "1.5 KiB".to_owned(), "3.0 TiB".to_owned())
        );
        assert_eq!(counts(&json!({"a": 1, "b": 7, "c": 1})), "b 7, a 1, c 1");
        assert_eq!((count(&json!({"n": "12"}), "n"), count(&json!({"n": 3}), "n")), (12, 3));
    }
}
