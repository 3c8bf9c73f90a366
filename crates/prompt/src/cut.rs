//! Texts that are cut between two characters.

/// The beginning of a text: of at most so many bytes, and whole characters.
#[must_use]
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut() {
        let text = "a\u{e9}\u{1f600}b";
        let cut: Vec<&str> = (0..=9).map(|most| beginning(text, most)).collect();
        let two = "a\u{e9}";
        let three = "a\u{e9}\u{1f600}";
        assert_eq!(cut, ["", "a", "a", two, two, two, two, three, text, text]);
    }
}
