//! No golden file lies unused.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;

#[path = "support/golden.rs"]
mod golden;

use golden::{files_on_disk, json, text};

/// Directories whose files the tests of this crate read.
const OURS: [&str; 4] = ["loxilb", "sglang", "trtllm", "vllm-hash"];

/// The files that the tests named after their directory read, each of which asserts so.
fn used(directory: &str) -> BTreeSet<String> {
    let of_index = |sections: &[&str]| -> BTreeSet<String> {
        let index = json(directory, "index.json");
        let files = sections.iter().flat_map(|s| index[s].as_object().unwrap().values());
        let files = files.map(|file| text(file).to_owned());
        files.chain(["index.json".to_owned()]).collect()
    };
    match directory {
        "vllm-hash" => {
            let mut files = of_index(&["vllm_hash", "vllm_inputs"]);
            files.insert("pickle-edges.json".into());
            files
        }
        "sglang" => of_index(&["sglang"]),
        "trtllm" => BTreeSet::from(["trtllm-v1_block_key.json".into()]),
        "loxilb" => BTreeSet::from(["kv_hash_vectors.json".into()]),
        other => panic!("{other}"),
    }
}

#[test]
fn every_file_is_used() {
    for directory in OURS {
        let files: BTreeSet<String> = files_on_disk(directory, "").into_iter().collect();
        assert_eq!(files, used(directory), "testdata/golden/{directory}");
    }
}
