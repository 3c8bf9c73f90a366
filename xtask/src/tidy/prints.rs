//! Libraries log through tracing; they never print.

use super::tree::Tree;

const MACROS: &[&str] = &["println!", "eprintln!", "print!", "eprint!", "dbg!"];

/// Looks at `crates/*/src` without tests and comments.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    for file in &tree.files {
        // What is compared in a workspace of its own is a program.
        let library = file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && !file.path.contains("/compare/src/");
        if !library || !file.is_rust() || file.is_test() {
            continue;
        }
        for (number, line) in outside_tests(&file.text) {
            if let Some(name) = MACROS.iter().find(|name| calls(line, name)) {
                errors.push(format!(
                    "{}:{number}: `{name}` in a library: use a tracing macro, or return the text",
                    file.path
                ));
            }
        }
    }
    errors
}

/// Whether the line names the macro as a whole word and not in a comment.
fn calls(line: &str, name: &str) -> bool {
    let code = line.trim_start();
    !code.starts_with("//")
        && code
            .match_indices(name)
            .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Numbered lines that are not in a `#[cfg(test)]` item. Formatted code ends an item
/// at the indent of its attribute, with a brace or a semicolon.
fn outside_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut item_indent = None;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let code = line.trim();
        let indent = line.len() - line.trim_start().len();
        if item_indent.is_some() {
            if item_indent == Some(indent) && code.ends_with(['}', ';']) {
                item_indent = None;
            }
            return None;
        }
        if code.starts_with("#[cfg(test)]") {
            item_indent = Some(indent);
            return None;
        }
        Some((i + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Vec<String> {
        check(&Tree::of(&[("crates/a/src/lib.rs", text)]))
    }

    #[test]
    fn prints_are_found_with_their_line() {
        for name in MACROS {
            let errors = with(&format!("fn f() {{\n    {name}(x);\n}}\n"));
            assert_eq!(errors.len(), 1, "{name}: {errors:?}");
            assert!(errors[0].starts_with("crates/a/src/lib.rs:2: "), "{errors:?}");
            assert!(errors[0].contains(name), "{errors:?}");
        }
    }

    #[test]
    fn code_after_a_test_item_is_looked_at_again() {
        let block = "#[cfg(test)]\nmod tests {\n    fn f() {\n        dbg!(1);\n    }\n}\n";
        assert!(with(block).is_empty());
        assert_eq!(with(&format!("{block}fn g() {{ dbg!(1) }}\n")).len(), 1);
        assert_eq!(with("#[cfg(test)]\nmod tests;\nfn g() { dbg!(1) }\n").len(), 1);
        let inner = "impl A {\n    #[cfg(test)]\n    fn f() {\n        dbg!(1);\n    }\n    fn g() { dbg!(2) }\n}\n";
        assert_eq!(with(inner).len(), 1);
    }

    #[test]
    fn comments_other_words_and_other_places_are_free() {
        assert!(with("/// println!(\"example\")\nmy_println!(x); // fine\n").is_empty());
        for path in [
            "bins/a/src/main.rs",
            "crates/a/tests/t.rs",
            "crates/a/src/b/tests.rs",
            "crates/a/compare/src/main.rs",
        ] {
            assert!(check(&Tree::of(&[(path, "println!()\n")])).is_empty(), "{path}");
        }
    }
}
