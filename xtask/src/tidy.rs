//! Checks that keep the repository in order: each is a pure function from the tree's
//! contents to messages, and runs both as `cargo xtask tidy` and as a test.

mod errors;
mod layers;
mod length;
mod links;
mod manifest;
mod manifests;
mod prints;
mod pure;
mod testdata;
mod text;
mod tree;
mod unused;
mod unused_testdata;
mod versions;

pub(crate) use self::length::notes;
pub(crate) use self::tree::Tree;

/// From contents to errors; each message says what to do.
type Check = fn(&Tree) -> Vec<String>;

/// All checks with their names.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("layers", layers::check),
    ("pure crates", pure::check),
    ("prints", prints::check),
    ("errors", errors::check),
    ("length", length::check),
    ("manifests", manifests::check_manifests),
    ("module docs", manifests::check_module_docs),
    ("unused dependencies", unused::check),
    ("versions", versions::check),
    ("text", text::check),
    ("links", links::check),
    ("testdata", testdata::check),
    ("unused testdata", unused_testdata::check),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails with all messages of one check on the repository itself.
    fn passes(name: &str) {
        let tree = Tree::load(&crate::root()).unwrap();
        let (_, check) = CHECKS.iter().find(|(n, _)| *n == name).unwrap();
        let errors = check(&tree);
        assert!(errors.is_empty(), "\n{}\n", errors.join("\n"));
    }

    #[test]
    fn the_tree_is_the_repository() {
        let tree = Tree::load(&crate::root()).unwrap();
        for path in ["Cargo.toml", "Cargo.lock", "xtask/src/tidy.rs", "crates/kv-hash/Cargo.toml"] {
            assert!(tree.get(path).is_some_and(|f| !f.text.is_empty()), "{path} was not read");
        }
        assert!(tree.files.iter().all(|f| !f.path.starts_with("target/")));
    }

    #[test]
    fn layers_point_down() {
        passes("layers");
    }

    #[test]
    fn pure_crates_are_pure() {
        passes("pure crates");
    }

    #[test]
    fn libraries_do_not_print() {
        passes("prints");
    }

    #[test]
    fn errors_say_their_cause_once() {
        passes("errors");
    }

    #[test]
    fn files_are_short() {
        passes("length");
    }

    #[test]
    fn manifests_are_complete() {
        passes("manifests");
    }

    #[test]
    fn modules_say_what_they_are() {
        passes("module docs");
    }

    #[test]
    fn dependencies_are_used() {
        passes("unused dependencies");
    }

    #[test]
    fn versions_have_reasons() {
        passes("versions");
    }

    #[test]
    fn text_is_clean() {
        passes("text");
    }

    #[test]
    fn links_lead_somewhere() {
        passes("links");
    }

    #[test]
    fn testdata_says_where_it_comes_from() {
        passes("testdata");
    }

    #[test]
    fn no_testdata_lies_unused() {
        passes("unused testdata");
    }
}
