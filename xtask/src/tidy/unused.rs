//! Every dependency is named by the code that asks for it.

use super::manifest::Manifest;
use super::tree::{File, Tree};

/// Members' dependencies that no source names, those for tests that no file names, and entries of the
/// workspace's table that no member takes.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    let mut taken = Vec::new();
    for (folder, file) in tree.manifests() {
        let manifest = Manifest::parse(&file.text);
        let below = |file: &&File| file.is_rust() && file.path.starts_with(&format!("{folder}/"));
        let all: Vec<&File> = tree.files.iter().filter(below).collect();
        let tests = |file: &&&File| {
            ["tests/", "benches/", "examples/"].iter().any(|kind| {
                file.path.strip_prefix(folder).is_some_and(|rest| rest[1..].starts_with(kind))
            })
        };
        let sources: Vec<&File> = all.iter().filter(|file| !tests(file)).copied().collect();
        for (names, files) in
            [(&manifest.dependencies, &sources), (&manifest.dev_dependencies, &all)]
        {
            let unused = names.iter().filter(|name| !files.iter().any(|file| names_it(file, name)));
            errors.extend(unused.map(|name| {
                format!("{}: nothing names `{name}`: take the dependency out", file.path)
            }));
        }
        taken.extend(manifest.dependencies);
        taken.extend(manifest.dev_dependencies);
    }
    let offered = tree.get("Cargo.toml").map(|file| offered(&file.text)).unwrap_or_default();
    let left = offered.into_iter().filter(|name| !taken.contains(name));
    errors.extend(left.map(|name| format!("Cargo.toml: no member takes `{name}`: take it out")));
    errors
}

/// Whether the crate's name stands in a file as a word.
fn names_it(file: &File, name: &str) -> bool {
    let name = name.replace('-', "_");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    file.text.match_indices(&name).any(|(at, _)| {
        !file.text[..at].ends_with(is_word) && !file.text[at + name.len()..].starts_with(is_word)
    })
}

/// The names in `[workspace.dependencies]`.
fn offered(text: &str) -> Vec<String> {
    let table = text.split_once("[workspace.dependencies]").map_or("", |(_, rest)| rest);
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let keys = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    keys.map(|(key, _)| key.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(manifest: &str, files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("crates/a/Cargo.toml", manifest)];
        all.extend_from_slice(files);
        check(&Tree::of(&all))
    }

    #[test]
    fn a_dependency_that_nothing_names_is_found() {
        let manifest = "[dependencies]\nfast-hash.workspace = true\n";
        for text in ["", "use breakfast_hash::x;", "use fast_hashes;"] {
            let errors = with(manifest, &[("crates/a/src/lib.rs", text)]);
            assert_eq!(errors.len(), 1, "{text}");
        }
        let use_it = "use fast_hash::hash;";
        assert!(with(manifest, &[("crates/a/src/lib.rs", use_it)]).is_empty());
        // Where only a test names it, it is one for tests.
        assert_eq!(with(manifest, &[("crates/a/tests/x.rs", use_it)]).len(), 1);
        assert_eq!(with(manifest, &[("crates/ab/src/lib.rs", use_it)]).len(), 1);
        let dev = manifest.replace("[dep", "[dev-dep");
        assert!(with(&dev, &[("crates/a/tests/x.rs", use_it)]).is_empty());
        assert_eq!(with(&dev, &[]).len(), 1);
    }

    #[test]
    fn an_entry_that_no_member_takes_is_found() {
        let root =
            "[workspace.dependencies]\n# kept = \"1\"\nbytes = \"1\"\n[profile.dev]\nx = 1\n";
        let taken = "[dependencies]\nbytes.workspace = true\n";
        let source = ("crates/a/src/lib.rs", "use bytes::Bytes;");
        assert_eq!(with("", &[("Cargo.toml", root)]).len(), 1);
        assert!(with(taken, &[("Cargo.toml", root), source]).is_empty());
    }
}
