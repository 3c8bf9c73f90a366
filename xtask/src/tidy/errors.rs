//! An error's text has its cause, or its `source()` is the cause; with both, a printed chain says it
//! twice.

use super::tree::Tree;

const ATTRIBUTE: &str = "#[error(";

/// Looks at thiserror's attributes in all Rust files.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        for (at, _) in file.text.match_indices(ATTRIBUTE) {
            // The line's beginning: in text and comments the attribute means nothing.
            let indent = file.text[..at].rsplit('\n').next().unwrap_or_default();
            if indent.trim().is_empty() && says_twice(&file.text[at + ATTRIBUTE.len()..]) {
                let line = file.text[..at].split('\n').count();
                errors.push(format!(
                    "{}:{line}: the text has the cause and so has `source()`: call the field \
                     `error`, without `#[from]` or `#[source]`, or take it out of the text",
                    file.path
                ));
            }
        }
    }
    errors
}

/// Whether the attribute that begins here, and what it stands on, name a cause both ways.
fn says_twice(rest: &str) -> bool {
    let Some((text, item)) = rest.split_once(")]\n") else { return false };
    let item = item.split(ATTRIBUTE).next().unwrap_or_default();
    let mut code = item.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let by_place = code
        .clone()
        .next()
        .is_some_and(|line| ["(#[from]", "(#[source]"].iter().any(|mark| line.contains(mark)));
    let by_name = code.any(|line| line.starts_with("source:") || line.starts_with("pub source:"));
    (by_place && text.contains("{0")) || (by_name && text.contains("{source"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Vec<String> {
        check(&Tree::of(&[("crates/a/src/lib.rs", text)]))
    }

    #[test]
    fn a_cause_that_is_said_twice_is_found() {
        for text in [
            "enum E {\n    #[error(\"b: {0}\")]\n    B(#[from] C),\n}\n",
            "enum E {\n    #[error(\"{0}\")]\n    B(#[source] C),\n}\n",
            "\n#[error(\"b: {0}\")]\npub struct B(#[from] C);\n",
            "enum E {\n    #[error(\n        \"{b}: {source}\"\n    )]\n    B {\n        /// It.\n        b: u8,\n        /// Why.\n        source: C,\n    },\n}\n",
        ] {
            let errors = with(text);
            assert_eq!(errors.len(), 1, "{text}: {errors:?}");
            assert!(errors[0].starts_with("crates/a/src/lib.rs:2: "), "{errors:?}");
        }
    }

    #[test]
    fn one_way_is_fine() {
        for text in [
            "    #[error(transparent)]\n    B(#[from] C),\n",
            "    #[error(\"b: {0}\")]\n    B(C),\n    #[error(\"d\")]\n    D(#[source] C),\n",
            "    #[error(\"b: {error}\")]\n    B { error: C },\n",
            "    #[error(\"b\")]\n    B {\n        source: C,\n    },\n",
            "    // #[error(\"{0}\")]\n    B(#[from] C),\n",
        ] {
            assert_eq!(with(text), [""; 0], "{text}");
        }
    }
}
