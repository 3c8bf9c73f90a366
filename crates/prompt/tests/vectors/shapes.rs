//! `testdata/chat-shapes`: responses, messages, embeddings, long chats and other kinds of tokenizers.

use std::fs;

use kvasir_prompt::Api;

use crate::case::{Case, Findings, assemble, load, testdata, with_golden};

/// Cases that do not match, and why.
const OPEN: &crate::case::Open = &[
    ("chatml", "responses truncation_auto", CUT),
    ("features-b", "responses truncation_auto", CUT),
    ("glm4", "responses truncation_auto", CUT),
    ("mistral-v3", "responses truncation_auto", CUT),
];
/// The ids are equal, but not called exact.
pub(crate) const CUT: &str = "where the engine cuts is not known";

pub(crate) fn api(case: &Case<'_>) -> Api {
    match case.kind.as_str() {
        "chat" => Api::Chat,
        "completions" | "completion" => Api::Completions,
        "responses" => Api::Responses,
        "messages" => Api::Messages,
        "embeddings" => Api::Embeddings,
        other => panic!("{other}"),
    }
}

#[test]
fn shapes_of_our_own_models() {
    let mut findings = Findings::new(OPEN);
    for (models, names) in [
        ("chat-models", &["chatml", "features-b", "glm4", "mistral-v3"][..]),
        ("chat-shapes/models", &["unigram", "wordpiece"]),
    ] {
        for name in names {
            with_golden(&testdata().join(format!("chat-shapes/{name}.json")), |golden| {
                let dir = assemble(&testdata().join(models), name);
                let renderer = load(&dir, golden);
                fs::remove_dir_all(&dir).unwrap();
                findings
                    .run(golden, |case| renderer.prompts(api(case), case.body.get().as_bytes()));
            });
        }
    }
    findings.judge();
}
