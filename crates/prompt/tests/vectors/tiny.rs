//! `testdata/chat-golden/tiny-*.json`: chats and completions on our own small models.

use std::fs;
use std::path::PathBuf;

use kvasir_prompt::Api;

use crate::case::{Findings, assemble, load, testdata, with_golden};

/// Cases that do not match, and why.
const OPEN: &crate::case::Open = &[];

#[test]
fn tiny_models() {
    let mut files: Vec<PathBuf> = fs::read_dir(testdata().join("chat-golden"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("tiny-"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 10, "golden files are missing");
    let mut findings = Findings::new(OPEN);
    for file in files {
        with_golden(&file, |golden| {
            let models = testdata().join("chat-models");
            let dir = assemble(&models, golden.model.strip_prefix("tiny-").unwrap());
            let renderer = load(&dir, golden);
            fs::remove_dir_all(&dir).unwrap();
            findings.run(golden, |case| {
                let api = if case.kind == "chat" { Api::Chat } else { Api::Completions };
                renderer.prompts(api, case.body.get().as_bytes())
            });
        });
    }
    findings.judge();
}
