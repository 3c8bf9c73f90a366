//! Plain text: no tabs, no trailing white space, one line end at the end.

use super::tree::Tree;

/// Looks at Rust, Markdown and TOML files.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    for file in &tree.files {
        let path = &file.path;
        let ours = [".rs", ".md", ".toml"].iter().any(|ending| path.ends_with(ending));
        if !ours || file.is_generated() {
            continue;
        }
        for (i, line) in file.text.split('\n').enumerate() {
            let number = i + 1;
            if line.contains('\t') {
                errors.push(format!("{path}:{number}: replace the tab by spaces (or `\\t`)"));
            }
            if line.ends_with(char::is_whitespace) {
                errors.push(format!("{path}:{number}: remove the white space at the line's end"));
            }
        }
        if file.text.ends_with("\n\n") {
            errors.push(format!("{path}: remove the empty lines at the end"));
        } else if !file.text.is_empty() && !file.text.ends_with('\n') {
            errors.push(format!("{path}: end the last line with a line feed"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_found_once() {
        for (text, message) in [
            ("a\n\tb\n", "x.md:2: replace the tab"),
            ("a \nb\n", "x.md:1: remove the white space"),
            ("a\r\n", "x.md:1: remove the white space"),
            ("a\nb", "x.md: end the last line"),
            ("a\n\n", "x.md: remove the empty lines"),
        ] {
            let errors = check(&Tree::of(&[("x.md", text)]));
            assert_eq!(errors.len(), 1, "{text:?}: {errors:?}");
            assert!(errors[0].starts_with(message), "{errors:?}");
        }
    }

    #[test]
    fn clean_and_foreign_text_passes() {
        let tree = Tree::of(&[
            ("x.rs", "a\n\n    b\n"),
            ("empty.toml", ""),
            ("Cargo.lock", "a \n"),
            ("crates/a/src/generated/x.rs", "\ta"),
        ]);
        assert!(check(&tree).is_empty());
    }
}
