//! The files of the repository: paths of all, contents of those that are checked.

use std::fs;
use std::io;
use std::path::Path;

/// One file.
#[derive(Debug)]
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Contents of Rust, Markdown, TOML and lock files, and of indexes of test data; empty for others.
    pub(crate) text: String,
}

impl File {
    /// Whether the file's name ends with `.rs`.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether a program wrote it: below a directory `generated`.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.contains("/generated/")
    }

    /// Whether all of it is test code: `tests.rs`, or below a directory `tests`.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

/// All files of the repository in order of their paths.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The files.
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads the repository at `root`, without build output and version control.
    pub(crate) fn load(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        walk(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// A tree out of paths and contents.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        Self { files: files.iter().map(file).collect() }
    }

    /// The file at this path.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Manifests of the workspace's members: path of the directory, and the file.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().filter_map(|file| {
            let dir = file.path.strip_suffix("/Cargo.toml")?;
            let member = match dir.split('/').collect::<Vec<_>>().as_slice() {
                ["xtask"] => true,
                ["crates" | "bins", _] => true,
                // Deeper ones, such as fuzz targets, are workspaces of their own.
                _ => false,
            };
            member.then_some((dir, file))
        })
    }
}

fn walk(root: &Path, dir: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(dir))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !matches!(name.as_str(), "target" | ".git" | "node_modules" | "__pycache__") {
                walk(root, &path, files)?;
            }
            continue;
        }
        let read = kind.is_file()
            && [".rs", ".md", ".toml", ".lock", "/index.json"]
                .iter()
                .any(|ending| path.ends_with(ending));
        let text = if read { read_text(&root.join(&path))? } else { String::new() };
        files.push(File { path, text });
    }
    Ok(())
}

fn read_text(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}; save it as UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_and_nested_workspaces_are_not() {
        let tree = Tree::of(&[
            ("Cargo.toml", ""),
            ("bins/gateway/Cargo.toml", ""),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/fuzz/Cargo.toml", ""),
            ("xtask/Cargo.toml", ""),
        ]);
        let dirs: Vec<&str> = tree.manifests().map(|(dir, _)| dir).collect();
        assert_eq!(dirs, ["bins/gateway", "crates/a", "xtask"]);
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        let is_test = |path: &str| File { path: path.into(), text: String::new() }.is_test();
        assert!(is_test("crates/a/src/foo/tests.rs"));
        assert!(is_test("crates/a/tests/it.rs"));
        assert!(!is_test("crates/a/src/contests.rs"));
        assert!(!is_test("crates/testkit/src/lib.rs"));
    }
}
