//! The catalogue against the sources: no family is used that is not in it, and none is in it that nobody uses.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kvasir_metrics::all;

/// Names that are those of something else: targets of log lines.
const NO_FAMILIES: [&str; 1] = ["kvasir_audit"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Sources of what is shipped: without tests, and without the catalogue itself.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_test = name.starts_with("test") || name == "benches" || name == "examples";
        if path.is_dir() && !is_test && name != "target" {
            sources(&path, found);
        } else if !is_test && path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// All string literals of a source that are names in `kvasir_`, of code before its tests.
fn names(text: &str) -> BTreeSet<&str> {
    let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let literals = shipped.split('"').skip(1).step_by(1);
    let is_name = |word: &&str| {
        let rest = word.strip_prefix("kvasir_").unwrap_or_default();
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    literals.filter(is_name).collect()
}

fn used() -> BTreeMap<String, PathBuf> {
    let mut files = Vec::new();
    for part in ["crates", "bins"] {
        sources(&root().join(part), &mut files);
    }
    let mut used = BTreeMap::new();
    for file in files.iter().filter(|file| !file.to_str().unwrap().contains("crates/metrics/")) {
        for name in names(&fs::read_to_string(file).unwrap()) {
            used.insert(name.to_owned(), file.clone());
        }
    }
    for name in NO_FAMILIES {
        assert!(used.remove(name).is_some(), "{name} is no longer used: take it out here");
    }
    used
}

#[test]
fn every_family_that_is_used_is_in_the_catalogue() {
    let used = used();
    assert!(used.len() > 100, "the sources were not found");
    let unknown: Vec<_> =
        used.iter().filter(|(name, _)| all().all(|family| family.name != **name)).collect();
    assert!(unknown.is_empty(), "not in crates/metrics/src/families: {unknown:#?}");
}

#[test]
fn every_family_of_the_catalogue_is_used() {
    let used = used();
    let unused: Vec<_> =
        all().map(|family| family.name).filter(|name| !used.contains_key(*name)).collect();
    assert!(unused.is_empty(), "in the catalogue, and nowhere in the sources: {unused:#?}");
}

#[test]
fn names_of_families_are_not_put_together() {
    let mut files = Vec::new();
    for part in ["crates", "bins"] {
        sources(&root().join(part), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            !text.contains("format!(\"kvasir_"),
            "{}: nobody finds such a family",
            file.display()
        );
    }
}

#[test]
fn literals_are_found() {
    let text = "counter!(\"kvasir_a_total\", \"x\" => 1); use kvasir_fleet::x; \"kvasir_b\"\n\
                #[cfg(test)]\nmod tests { \"kvasir_c\" }";
    assert_eq!(names(text), BTreeSet::from(["kvasir_a_total", "kvasir_b"]));
}
