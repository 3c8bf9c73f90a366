//! What `log.level` may be: levels, and levels of parts of the program. The filter itself takes any word
//! for the name of a part, which would log nothing of all others.

use crate::suggest;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What other programs call them.
const ALSO: [(&str, &str); 6] = [
    ("warning", "warn"),
    ("verbose", "debug"),
    ("fatal", "error"),
    ("critical", "error"),
    ("notice", "info"),
    ("none", "off"),
];

/// No name of a part is longer.
const MOST_BYTES: usize = 128;

/// Whether every word without a `=` is a level.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    // Spans have commas of their own, and no slip of the hand has brackets.
    if text.contains(['[', '{']) {
        return Ok(());
    }
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).try_for_each(bare)
}

fn bare(part: &str) -> Result<(), String> {
    if part.len() > MOST_BYTES && !part.contains('=') {
        return Err("a level is one short word".to_owned());
    }
    let is_level = |level: &str| level.eq_ignore_ascii_case(part);
    let is_number = matches!(part.as_bytes(), [b'0'..=b'5']);
    if part.contains('=') || is_number || LEVELS.iter().any(|level| is_level(level)) {
        return Ok(());
    }
    if part.contains("::") {
        return Err(format!("`{part}` has no level: `{part}=trace` is all of it"));
    }
    let also = ALSO.iter().find(|(word, _)| word.eq_ignore_ascii_case(part));
    let meant = also.map(|(_, level)| format!(", did you mean `{level}`?"));
    let hint = meant.unwrap_or_else(|| suggest::hint(part, LEVELS));
    let comma = if hint.is_empty() { "," } else { "" };
    let levels = LEVELS.join(", ");
    Err(format!(
        "`{part}` is no level{hint}{comma} expected one of {levels}, or parts such as \
         `info,kvasir_fleet=debug`"
    ))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_bare_word_is_a_level() {
        for good in [
            "info",
            "WARN",
            "off",
            "3",
            "info,kvasir_fleet=debug",
            "a::b=trace",
            "info,[span{a=1,b=2}]=debug",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, wanted) in [
            ("verbose", "did you mean `debug`?"),
            ("warning", "did you mean `warn`?"),
            ("inof", "did you mean `info`?"),
            ("info,wran", "did you mean `warn`?"),
            ("loud", "`loud` is no level, expected one of off, error"),
            ("kvasir_fleet", "kvasir_fleet` is no level"),
            ("a::b", "`a::b=trace`"),
            (" ", "must not be empty"),
        ] {
            assert!(check(bad).is_err_and(|why| why.contains(wanted)), "{bad}: {:?}", check(bad));
        }
    }
}
