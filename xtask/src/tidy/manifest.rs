//! As much of Cargo manifests and lock files as the checks need, read line by line.
//!
//! It understands the forms this repository uses: one dependency per line or one
//! table per dependency, keys of `[package]` and `[lints]` one per line.

use std::collections::BTreeMap;

/// What a member's manifest says.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Manifest {
    /// `package.name`.
    pub(super) name: String,
    /// Whether `package.description` says something.
    pub(super) has_description: bool,
    /// `[lints] workspace = true`.
    pub(super) workspace_lints: bool,
    /// Names in all `[dependencies]` and `[build-dependencies]`, of any target.
    pub(super) dependencies: Vec<String>,
    /// Names in `[dev-dependencies]`.
    pub(super) dev_dependencies: Vec<String>,
}

impl Manifest {
    pub(super) fn parse(text: &str) -> Self {
        let mut manifest = Self::default();
        let mut section = String::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[') {
                section = header.split(']').next().unwrap_or_default().trim().to_owned();
                // A cfg in the header may itself contain a bracket.
                if let Some(end) = header.rfind(']') {
                    section = header[..end].trim().to_owned();
                }
                if let Some((_, name)) = dependency_table(&section) {
                    manifest.add_dependency(name);
                }
                continue;
            }
            if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
                manifest.entry(&section, key.trim(), value.trim());
            }
        }
        manifest
    }

    fn entry(&mut self, section: &str, key: &str, value: &str) {
        match (section, key) {
            ("package", "name") => self.name = value.trim_matches('"').to_owned(),
            ("package", "description") => {
                self.has_description = !value.trim_matches(['"', ' ']).is_empty();
            }
            ("lints", "workspace") => self.workspace_lints = value == "true",
            _ if is_dependencies(section) => {
                // The name of a renamed dependency counts, not what it is called here.
                let renamed = value.split_once("package").and_then(|(_, v)| v.split('"').nth(1));
                self.add_dependency(renamed.unwrap_or(key.split('.').next().unwrap_or(key)));
            }
            ("dev-dependencies", key) => {
                self.dev_dependencies.push(key.split('.').next().unwrap_or(key).to_owned());
            }
            _ => {}
        }
    }

    fn add_dependency(&mut self, name: &str) {
        let name = name.trim_matches(['"', ' ']);
        if !self.dependencies.iter().any(|d| d == name) {
            self.dependencies.push(name.to_owned());
        }
    }
}

/// `[dependencies]`, `[build-dependencies]`, and both below `target.*`.
fn is_dependencies(section: &str) -> bool {
    let last = section.rsplit('.').next().unwrap_or_default();
    let plain = ["dependencies", "build-dependencies"].contains(&last);
    plain && (section == last || section.starts_with("target."))
}

/// `[dependencies.name]` and its like: the table and the name.
fn dependency_table(section: &str) -> Option<(&str, &str)> {
    section.rsplit_once('.').filter(|(table, _)| is_dependencies(table))
}

/// Packages of a lock file: `name version` and the entries they depend on, as
/// written there (`name` or `name version`).
pub(super) fn parse_lock(text: &str) -> BTreeMap<(String, String), Vec<String>> {
    let mut packages = BTreeMap::new();
    for block in text.split("[[package]]").skip(1) {
        let field = |key: &str| {
            let mut lines = block.lines();
            let value = lines.find_map(|l| l.strip_prefix(key)?.trim().strip_prefix('='));
            value.map(|v| v.trim().trim_matches('"').to_owned()).unwrap_or_default()
        };
        let listed = block.split_once("dependencies = [").map_or("", |(_, rest)| rest);
        let listed = listed.split(']').next().unwrap_or_default();
        let dependencies = listed.lines().map(|l| l.trim().trim_matches([',', '"']).to_owned());
        let dependencies = dependencies.filter(|d| !d.is_empty()).collect();
        packages.insert((field("name"), field("version")), dependencies);
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_forms_of_dependencies() {
        let text = r#"
[package]
name = "kvasir-x"
description = "What it is"
[lints]
workspace = true
[dependencies]
# a = "1"
bytes.workspace = true
tokio = { workspace = true, features = ["net"] }
alias = { package = "real", version = "1" }
[dependencies.table]
version = "1"
[target.'cfg(unix)'.dependencies]
unixy = "1"
[build-dependencies]
cc = "1"
[dev-dependencies]
proptest.workspace = true
[features]
default = []
"#;
        let manifest = Manifest::parse(text);
        assert_eq!(manifest.name, "kvasir-x");
        assert!(manifest.has_description && manifest.workspace_lints);
        assert_eq!(manifest.dependencies, ["bytes", "tokio", "real", "table", "unixy", "cc"]);
        assert_eq!(manifest.dev_dependencies, ["proptest"]);
    }

    #[test]
    fn reads_nothing_that_is_not_there() {
        assert_eq!(Manifest::parse("[package]\ndescription = \"\"\n"), Manifest::default());
    }

    #[test]
    fn reads_a_lock_file() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\n \
                    \"b\",\n \"c 2.0.0\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"0.1.0\"\n";
        let lock = parse_lock(text);
        assert_eq!(lock[&("a".into(), "1.0.0".into())], ["b", "c 2.0.0"]);
        assert!(lock[&("b".into(), "0.1.0".into())].is_empty());
    }
}
