//! The catalogue against the sources: no family is used that is not in it, and none is in it that nobody uses.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kvasir_metrics::all;

/// Names that are those of something else: targets of log lines.
const NO_FAMILIES: [&str; 1] = ["kvasir_audit"];

/// Where families are written; elsewhere their names are those of what is read.
const WRITERS: [&str; 6] = [
    "crates/admin",
    "crates/advice",
    "crates/fleet",
    "crates/proxy",
    "crates/upstream",
    "bins/gateway",
];

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
    let is_name = |word: &&str| {
        let rest = word.strip_prefix("kvasir_").unwrap_or_default();
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    literals(shipped).into_iter().filter(is_name).collect()
}

/// What stands between quotes, without comments.
fn literals(text: &str) -> Vec<&str> {
    let (mut found, mut opened, mut at) = (Vec::new(), None, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let skipped = match (opened, rest.as_bytes()) {
            (Some(_), [b'\\', ..]) => 2,
            (Some(start), [b'"', ..]) => {
                found.push(&text[start..at]);
                opened = None;
                1
            }
            (None, [b'/', b'/', ..]) => rest.find('\n').unwrap_or(rest.len()),
            (None, [b'\'', b'\\', _, b'\'', ..]) => 4,
            (None, [b'\'', b'"', b'\'', ..]) => 3,
            (None, [b'r', b'#', b'"', ..]) => {
                rest[3..].find("\"#").map_or(rest.len(), |length| length + 5)
            }
            (None, [b'"', ..]) => {
                opened = Some(at + 1);
                1
            }
            _ => 1,
        };
        at += skipped;
        while !text.is_char_boundary(at.min(text.len())) {
            at += 1;
        }
    }
    assert!(opened.is_none(), "a literal without an end: {:?}", opened.map(|at| &text[at..]));
    found
}

/// Names that are used in these parts, and a file each is used in.
fn used(parts: &[&str]) -> BTreeMap<String, PathBuf> {
    let mut files = Vec::new();
    for part in parts {
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
    let used = used(&["crates", "bins"]);
    assert!(used.len() > 100, "the sources were not found");
    let unknown: Vec<_> =
        used.iter().filter(|(name, _)| all().all(|family| family.name != **name)).collect();
    assert!(unknown.is_empty(), "not in crates/metrics/src/families: {unknown:#?}");
}

#[test]
fn every_family_of_the_catalogue_is_written() {
    let used = used(&WRITERS);
    let unused: Vec<_> =
        all().map(|family| family.name).filter(|name| !used.contains_key(*name)).collect();
    assert!(unused.is_empty(), "in the catalogue, and written nowhere: {unused:#?}");
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

#[test]
fn what_stands_between_two_literals_is_none() {
    let text = r###"f("x",kvasir_a,"y"); // it's "kvasir_b" or " alone
        let quote = '"'; g("say \"kvasir_c\"", r#"{"kvasir_d": 1}"#, '\'', "kvasir_e")"###;
    assert_eq!(literals("a(\"x\"kvasir_a\"ü\")"), ["x", "ü"]);
    assert_eq!(names(text), BTreeSet::from(["kvasir_e"]));
}
