//! Every crate says what it is and takes the workspace's lints; every module says
//! what it holds.

use super::manifest::Manifest;
use super::tree::Tree;

/// Description and lints of each member.
pub(super) fn check_manifests(tree: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    for (_, file) in tree.manifests() {
        let manifest = Manifest::parse(&file.text);
        if !manifest.has_description {
            let path = &file.path;
            errors.push(format!("{path}: add a one-sentence `description` to [package]"));
        }
        if !manifest.workspace_lints {
            errors.push(format!("{}: add `[lints]` with `workspace = true`", file.path));
        }
    }
    errors
}

/// The `//!` at the head of each source file that is not a test.
pub(super) fn check_module_docs(tree: &Tree) -> Vec<String> {
    let source = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        matches!(parts.as_slice(), ["crates" | "bins", _, "src", ..] | ["xtask", "src", ..])
    };
    let mut errors = Vec::new();
    for file in tree.files.iter().filter(|f| f.is_rust() && source(&f.path)) {
        let first = file.text.lines().next().unwrap_or_default();
        let says = first.strip_prefix("//!").is_some_and(|doc| !doc.trim().is_empty());
        if !says && !file.is_test() && !file.is_generated() {
            let path = &file.path;
            errors.push(format!("{path}: start it with `//!` and a sentence on what it holds"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_manifest_is_found() {
        let bare = Tree::of(&[("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")]);
        let errors = check_manifests(&bare);
        assert_eq!(errors.len(), 2, "{errors:?}");
        let whole = "[package]\ndescription = \"A.\"\n[lints]\nworkspace = true\n";
        assert!(check_manifests(&Tree::of(&[("crates/a/Cargo.toml", whole)])).is_empty());
        let off = whole.replace("true", "false");
        assert_eq!(check_manifests(&Tree::of(&[("xtask/Cargo.toml", &off)])).len(), 1);
    }

    #[test]
    fn a_module_without_doc_is_found() {
        for text in ["", "use a;\n//! Late.\n", "// Plain.\n", "//!\n", "/// Of the item.\n"] {
            let tree = Tree::of(&[("crates/a/src/b.rs", text)]);
            assert_eq!(check_module_docs(&tree).len(), 1, "{text:?}");
        }
        let main = Tree::of(&[("bins/a/src/main.rs", "fn main() {}\n")]);
        assert_eq!(check_module_docs(&main).len(), 1);
    }

    #[test]
    fn documented_modules_tests_and_other_files_pass() {
        let tree = Tree::of(&[
            ("crates/a/src/b.rs", "//! What it holds.\n"),
            ("crates/a/src/b/tests.rs", "use super::*;\n"),
            ("crates/a/benches/c.rs", "fn main() {}\n"),
            ("crates/a/src/generated/d.rs", "pub struct D;\n"),
        ]);
        assert!(check_module_docs(&tree).is_empty());
    }
}
