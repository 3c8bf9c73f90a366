//! Recorded data says where it comes from.

use super::tree::Tree;
use std::collections::BTreeSet;

/// Every directory with files below `testdata/` has a README.md, its own or that of
/// a directory above it below `testdata/`.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let below = tree.files.iter().filter_map(|f| f.path.strip_prefix("testdata/"));
    let dirs: BTreeSet<&str> =
        below.filter_map(|path| path.rsplit_once('/').map(|(dir, _)| dir)).collect();
    let explained = |dir: &str| {
        let ends = dir.match_indices('/').map(|(at, _)| at).chain([dir.len()]);
        let readme = |end: usize| format!("testdata/{}/README.md", &dir[..end]);
        ends.map(readme).any(|path| tree.get(&path).is_some())
    };
    dirs.into_iter()
        .filter(|dir| !explained(dir))
        .map(|dir| {
            format!(
                "testdata/{dir}: add a README.md that says where the data comes from and how to \
                 make it again"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexplained_directories_are_found() {
        let tree = Tree::of(&[
            ("testdata/README.md", ""),
            ("testdata/a/x.json", ""),
            ("testdata/b/c/y.json", ""),
            ("testdata/b/c/deep/README.md", ""),
        ]);
        let errors = check(&tree);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].starts_with("testdata/a: add a README.md"), "{errors:?}");
        assert!(errors[1].starts_with("testdata/b/c: "), "{errors:?}");
    }

    #[test]
    fn a_readme_covers_what_is_below_it() {
        let tree = Tree::of(&[
            ("testdata/a/README.md", ""),
            ("testdata/a/x.json", ""),
            ("testdata/a/b/c/y.json", ""),
            ("testdata/loose.json", ""),
            ("crates/z/testdata/w.json", ""),
        ]);
        assert!(check(&tree).is_empty());
    }
}
