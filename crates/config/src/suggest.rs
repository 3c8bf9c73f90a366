//! What a misspelt word was meant to be.

/// The word among `names` that `word` is most likely meant to be, if any is near enough.
pub(crate) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody misspells more than this, and distances of long texts take long.
    if word.chars().count() > 64 {
        return None;
    }
    let plain = plain(word);
    let most = (plain.chars().count() / 3).max(1);
    let near = names.into_iter().map(|name| (distance(&plain, &self::plain(name)), name));
    near.filter(|(far, _)| *far <= most).min_by_key(|(far, _)| *far).map(|(_, name)| name)
}

/// `, did you mean …?` with what follows, or nothing.
#[must_use]
pub fn hint<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names).map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}

/// The message of an unknown word, with what it was meant to be.
pub(crate) fn unknown(what: &str, word: &str, allowed: &[&str]) -> String {
    let hint = hint(word, allowed.iter().copied());
    let comma = if hint.is_empty() { "," } else { "" };
    match allowed {
        [] => format!("unknown {what} `{word}`: none is expected here"),
        [one] => format!("unknown {what} `{word}`{hint}{comma} expected {one}"),
        _ => format!("unknown {what} `{word}`{hint}{comma} expected one of {}", allowed.join(", ")),
    }
}

/// Adds to a message of the form "unknown … `word`, expected one of `a`, `b`" what was meant.
pub(crate) fn with_hint(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown ") {
        return message.to_owned();
    }
    let Some(word) = words.next() else { return message.to_owned() };
    match nearest(word, words) {
        Some(name) => {
            let plain = format!("`{word}`,");
            message.replacen(&plain, &format!("`{word}`, did you mean `{name}`?"), 1)
        }
        None => message.to_owned(),
    }
}

/// Without what is confused most: case, and what stands between words.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Letters that were left out, added, changed, or swapped with the next one.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_typing() {
        for (one, other, far) in [
            ("", "", 0),
            ("", "abc", 3),
            ("policy", "policy", 0),
            ("polcy", "policy", 1),
            ("poilcy", "policy", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (far, far), "{one} {other}");
        }
    }

    #[test]
    fn what_is_near_is_suggested_and_nothing_else() {
        let names = ["policy", "pools", "listen", "api_key", "http2"];
        for (word, wanted) in [
            ("polcy", Some("policy")),
            ("pool", Some("pools")),
            ("apiKey", Some("api_key")),
            ("API-KEY", Some("api_key")),
            ("htpt2", Some("http2")),
            ("timeouts", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, names), wanted, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), names), None);
    }

    #[test]
    fn messages_say_it() {
        assert_eq!(
            unknown("field", "polcy", &["policy", "model"]),
            "unknown field `polcy`, did you mean `policy`? expected one of policy, model"
        );
        assert_eq!(unknown("field", "zzz", &["model"]), "unknown field `zzz`, expected model");
        let message = "unknown policy `lateny`, expected one of `latency`, `ttft`";
        let wanted =
            "unknown policy `lateny`, did you mean `latency`? expected one of `latency`, `ttft`";
        assert_eq!(with_hint(message), wanted);
        for same in ["", "unknown", "unknown `", "unknown `x`", "other `a`, `b`"] {
            assert_eq!(with_hint(same), same);
        }
    }
}
