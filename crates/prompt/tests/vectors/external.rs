//! Real models, whose vocabularies and templates must not be redistributed: recorded cases are in
//! `testdata/chat-golden/external`, the model directories where `KVASIR_TOKENIZERS` says.

use std::path::PathBuf;

use kvasir_prompt::{Api, Renderer};
use serde_json::Value;

use crate::case::{Case, Findings, load, testdata, with_golden};
use crate::shapes::{CUT, api};

/// Cases that do not match, and why.
const OPEN: &crate::case::Open = &[];
const OPEN_HARMONY: &crate::case::Open = &[
    ("gptoss", "responses truncation_auto", CUT),
    ("gptoss", "responses previous_messages", PREVIOUS),
    ("gptoss", "responses previous_messages_empty_input", PREVIOUS),
];
const PREVIOUS: &str = "`previous_input_messages` are not reproduced";

const MODELS: [&str; 12] = [
    "deepseek_v3",
    "deepseek_v4",
    "gemma3",
    "gpt4o",
    "llama2",
    "llama3",
    "llama3_1",
    "mistral_tekken",
    "mistral_v3",
    "qwen1",
    "qwen3",
    "qwen3_6",
];

fn models() -> PathBuf {
    PathBuf::from(std::env::var_os("KVASIR_TOKENIZERS").unwrap())
}

#[test]
#[ignore = "needs model directories that must not be redistributed"]
fn external_models() {
    let mut findings = Findings::new(OPEN);
    for name in MODELS {
        with_golden(&testdata().join(format!("chat-golden/external/{name}.json")), |golden| {
            let renderer = load(&models().join(name), golden);
            findings.run(golden, |case| renderer.prompts(api(case), case.body.get().as_bytes()));
        });
    }
    findings.judge();
}

/// The template of gpt-oss judges the template engine; what counts for its chats is Harmony.
#[test]
#[ignore = "needs model directories that must not be redistributed"]
fn external_gpt_oss() {
    let mut findings = Findings::new(OPEN_HARMONY);
    let by_template = |renderer: &Renderer, case: &Case<'_>| match api(case) {
        Api::Chat => renderer.template_prompts(case.body.get().as_bytes()),
        other => renderer.prompts(other, case.body.get().as_bytes()),
    };
    let golden = |name: &str| testdata().join(name);
    with_golden(&golden("chat-golden/external/gptoss.json"), |golden| {
        let renderer = load(&models().join("gptoss"), golden);
        findings.run(golden, |case| by_template(&renderer, case));
    });
    for name in ["chat-golden/external/gptoss-harmony.json", "chat-shapes/gptoss.json"] {
        with_golden(&golden(name), |golden| {
            let renderer = load(&models().join("gptoss"), golden);
            findings.run(golden, |case| renderer.prompts(api(case), case.body.get().as_bytes()));
        });
    }
    findings.judge();
}

/// The blocks of LoxiLB's vectors for a Qwen model, from their prompt on: Qwen2.5 and Qwen3 share a
/// vocabulary.
#[test]
#[ignore = "needs model directories that must not be redistributed"]
fn external_loxilb_qwen() {
    let file = testdata().join("golden/loxilb/kv_hash_vectors.json");
    let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let set = &file["models"]["Qwen/Qwen2.5-7B-Instruct"];
    let size = usize::try_from(set["block_size"].as_u64().unwrap()).unwrap();
    let renderer = Renderer::load(&models().join("qwen3")).unwrap();
    let body = serde_json::json!({ "prompt": set["_fixed_prompts"]["block0_prompt"] });
    let ids = renderer.prompts(Api::Completions, body.to_string().as_bytes()).unwrap().prompts;
    let blocks: Vec<Value> = ids[0].chunks_exact(size).map(Into::into).collect();
    let fixtures = set["fixtures"].as_array().unwrap();
    for (at, fixture) in fixtures.iter().enumerate() {
        // Each algorithm has the first two blocks.
        assert_eq!(fixture["tokens"], blocks[at % 2], "{}", fixture["name"]);
    }
    assert_eq!(fixtures.len(), 4);
}
