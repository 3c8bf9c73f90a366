//! One subject per file: long files are reported, very long ones are errors.

use super::tree::{File, Tree};

/// Longer files are reported.
const SOFT: usize = 400;

/// Longer files are errors.
const HARD: usize = 500;

/// Files over the hard limit.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let say = |file: &File, lines| {
        format!("{}: {lines} lines, more than {HARD}: split it by idea", file.path)
    };
    longer(tree, HARD).map(|(file, lines)| say(file, lines)).collect()
}

/// Files between the soft and the hard limit.
pub(super) fn notes(tree: &Tree) -> Vec<String> {
    longer(tree, SOFT)
        .filter(|(_, lines)| *lines <= HARD)
        .map(|(file, lines)| format!("{}: {lines} lines, more than {SOFT}", file.path))
        .collect()
}

fn longer(tree: &Tree, limit: usize) -> impl Iterator<Item = (&File, usize)> {
    let rust = tree.files.iter().filter(|f| f.is_rust() && !f.is_generated());
    rust.map(|f| (f, f.text.lines().count())).filter(move |(_, lines)| *lines > limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        for (lines, noted, failed) in [(400, 0, 0), (401, 1, 0), (500, 1, 0), (501, 0, 1)] {
            let tree = Tree::of(&[("crates/a/src/lib.rs", &"//\n".repeat(lines))]);
            assert_eq!((notes(&tree).len(), check(&tree).len()), (noted, failed), "{lines}");
        }
    }

    #[test]
    fn generated_and_other_files_are_free() {
        let long = "x\n".repeat(1000);
        let tree = Tree::of(&[("crates/a/src/generated/p.rs", &long), ("docs/a.md", &long)]);
        assert!(check(&tree).is_empty() && notes(&tree).is_empty());
    }
}
