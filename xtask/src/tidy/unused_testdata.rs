//! No test data lies unused: a file that nobody reads proves nothing, and nobody notices.

use super::tree::{File, Tree};
use std::collections::BTreeSet;

/// Directories whose files a test goes through, whatever they are called: directory, how their names
/// begin and end, and the source that reads them.
const GONE_THROUGH: &[(&str, &str, &str, &str)] = &[
    ("captures", "", ".jsonl", "bins/kvasirctl/tests/recordings.rs"),
    ("chat-golden", "tiny-", ".json", "crates/prompt/tests/vectors/tiny.rs"),
];

/// Every file below `testdata/` is named by a Rust source, with or without its ending, or in the
/// `index.json` beside it, or gone through. READMEs and what makes the data (`generate`) are none.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let sources: Vec<&File> = tree.files.iter().filter(|file| file.is_rust()).collect();
    let named: BTreeSet<&str> = sources.iter().flat_map(|file| words(&file.text)).collect();
    let data = tree.files.iter().filter_map(|file| file.path.strip_prefix("testdata/"));
    let unused = data.filter(|path| {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_none = name == "README.md" || path.split('/').any(|part| part == "generate");
        let index = tree.get(&format!("testdata/{dir}/index.json"));
        let in_index = || index.is_some_and(|index| words(&index.text).any(|word| word == name));
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let quoted = format!("\"{stem}\"");
        let is_quoted = || sources.iter().any(|source| source.text.contains(&quoted));
        !(is_none
            || named.contains(name)
            || in_index()
            || is_gone_through(dir, name)
            || is_quoted())
    });
    let unused = unused.map(|path| {
        format!(
            "testdata/{path}: no test reads it: use it, name it in its index.json, or delete it"
        )
    });
    let stale = GONE_THROUGH.iter().filter(|(dir, .., source)| {
        let reads = |file: &File| file.text.contains("read_dir") && file.text.contains(dir);
        !tree.get(source).is_some_and(reads)
    });
    let stale = stale.map(|(dir, .., source)| {
        format!("{source}: it does not go through testdata/{dir} any more: correct GONE_THROUGH")
    });
    unused.chain(stale).collect()
}

fn is_gone_through(dir: &str, name: &str) -> bool {
    GONE_THROUGH.iter().any(|(known, begin, end, _)| {
        *known == dir && name.starts_with(begin) && name.ends_with(end)
    })
}

/// What may be file names in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.split(move |c| !is_part(c)).filter(|word| word.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sources that go through what is gone through.
    const GOING: [(&str, &str); 2] = [
        ("bins/kvasirctl/tests/recordings.rs", "read_dir(\"captures\")"),
        ("crates/prompt/tests/vectors/tiny.rs", "read_dir(\"chat-golden\")"),
    ];

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(&[files, &GOING].concat()))
    }

    #[test]
    fn files_that_nobody_reads_are_found() {
        let errors = found(&[
            ("testdata/golden/a/index.json", "{\"x\": \"x-1.json\"}"),
            ("testdata/golden/a/x-1.json", ""),
            ("testdata/golden/a/x-2.json", ""),
            ("testdata/golden/b/index.txt", ""),
            ("testdata/captures/new.json", ""),
            ("crates/z/tests/golden.rs", "let index = read(\"a/index.json\");"),
        ]);
        let paths: Vec<&str> = errors.iter().filter_map(|error| error.split(':').next()).collect();
        let unused = [
            "testdata/golden/a/x-2.json",
            "testdata/golden/b/index.txt",
            "testdata/captures/new.json",
        ];
        assert_eq!(paths, unused);
    }

    #[test]
    fn names_with_and_without_their_ending_are_uses() {
        let errors = found(&[
            ("testdata/README.md", ""),
            ("testdata/golden/generate/gen.py", ""),
            ("testdata/captures/0.1.jsonl", ""),
            ("testdata/chat-golden/tiny-a.json", ""),
            ("testdata/c/one.json", ""),
            ("testdata/c/two.body", ""),
            ("crates/z/src/tests.rs", "read(\"../testdata/c/one.json\"); for name in [\"two\"] {}"),
        ]);
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn a_source_that_goes_through_nothing_any_more_is_found() {
        let errors = check(&Tree::of(&GOING[..1]));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("crates/prompt/"), "{errors:?}");
    }
}
