//! Foreign text in findings: on one line, and not longer than a line can bear.

/// Most characters of a name or message that are shown.
const TEXT: usize = 120;
/// Most members of a list that are shown.
const ITEMS: usize = 6;

/// A text with control characters escaped, cut after 120 characters.
pub(crate) fn shown(text: &str) -> String {
    shortened(text.trim(), TEXT)
}

/// The same, cut after `most` characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(most) {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

/// Names separated by commas, the first few of them.
pub(crate) fn list<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<T> = names.into_iter().collect();
    let first: Vec<String> = names.iter().take(ITEMS).map(|name| shown(name.as_ref())).collect();
    match names.len().checked_sub(ITEMS) {
        Some(more) if more > 0 => format!("{} and {more} more", first.join(", ")),
        _ => first.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_and_short() {
        assert_eq!(shown(" a\nb\u{1b}[31m "), "a\\nb\\u{1b}[31m");
        assert_eq!(shortened("äöü", 2), "äö…");
        assert_eq!(shortened("äö", 2), "äö");
        assert_eq!(list(["a", "b"]), "a, b");
        assert_eq!(list((0..8).map(|i| i.to_string())), "0, 1, 2, 3, 4, 5 and 2 more");
        assert_eq!(list(Vec::<&str>::new()), "");
    }
}
