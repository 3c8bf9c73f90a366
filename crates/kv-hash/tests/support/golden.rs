//! Reading of golden files.

#![allow(dead_code, reason = "each test uses some of it")]

use std::path::PathBuf;

use serde_json::Value;

/// A named token set, or a formula of the file: `formula:<name>:<count>`.
pub(crate) fn tokens(doc: &Value, name: &str) -> Vec<u32> {
    let Some(formula) = name.strip_prefix("formula:") else {
        let ids = doc["token_sets"][name].as_array().unwrap();
        let ids: Vec<i64> = ids.iter().map(|t| t.as_i64().unwrap()).collect();
        return ids.into_iter().map(|id| u32::try_from(id).unwrap()).collect();
    };
    let (name, count) = formula.split_once(':').unwrap();
    let formula = &doc["formulas"][name];
    assert_eq!(formula["kind"], "lcg", "{name}");
    let [mul, add, modulus] = ["mul", "add", "mod"].map(|k| formula[k].as_u64().unwrap());
    let token = |i: u64| u32::try_from((i * mul + add) % modulus).unwrap();
    (0..count.parse().unwrap()).map(token).collect()
}

/// A directory below `testdata/golden`.
pub(crate) fn dir(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../testdata/golden", name].iter().collect()
}

pub(crate) fn json(directory: &str, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir(directory).join(file)).unwrap()).unwrap()
}

/// The names of a directory's files that start with `prefix`.
pub(crate) fn files_on_disk(directory: &str, prefix: &str) -> Vec<String> {
    let names = std::fs::read_dir(dir(directory)).unwrap().map(|e| e.unwrap().file_name());
    names.map(|n| n.into_string().unwrap()).filter(|n| n.starts_with(prefix)).collect()
}

/// What files say of themselves and of their inputs.
const ABOUT: [&str; 14] = [
    "algos",
    "cpp_agrees",
    "engine",
    "formulas",
    "libs",
    "note",
    "notes",
    "python",
    "recorder_note",
    "reference",
    "source",
    "source_sha256",
    "token_sets",
    "version",
];

/// Fails on a section of a file that no test reads.
pub(crate) fn assert_all_read(file: &str, doc: &Value, read: &[&str]) {
    for section in doc.as_object().unwrap().keys().map(String::as_str) {
        let known = ABOUT.contains(&section) || section.starts_with('_') || read.contains(&section);
        assert!(known, "{file}: no test reads {section:?}");
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}"))
}

pub(crate) fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().unwrap().iter().map(text)
}

pub(crate) fn size(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("not a size: {value}")) as usize
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}
