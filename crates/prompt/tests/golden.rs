//! Bodies against recorded vLLM 0.32: rendered text and token ids must be identical.
//!
//! `testdata/chat-golden/tiny-*.json` hold what vLLM's own request model, message parsing and
//! template rendering gave for each body. The ignored tests do the same for real models and
//! published templates, which must not be redistributed; see the crate's README for how to run
//! them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop at once")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kvasir_prompt::{Api, CivilTime, Limits, Prompts, Renderer, Unrouted};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Cases that do not match, and why. An entry that starts to match fails the test, too.
const OPEN: &[(&str, &str, &str)] = &[];

#[derive(Deserialize)]
struct Golden<'a> {
    model: String,
    content_format: Option<String>,
    #[serde(borrow)]
    cases: Vec<Case<'a>>,
}

#[derive(Deserialize)]
struct Case<'a> {
    name: String,
    kind: String,
    #[serde(borrow)]
    body: &'a RawValue,
    frozen: Option<BTreeMap<String, String>>,
    text: Option<String>,
    ids: Option<Vec<u32>>,
    ids_len: Option<usize>,
    ids_sha256: Option<String>,
    error: Option<serde_json::Value>,
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn frozen_time(now: &str) -> CivilTime {
    let n: Vec<i64> = now.split(['-', 'T', ':']).map(|p| p.parse().unwrap()).collect();
    let byte = |i: usize| u8::try_from(n[i]).unwrap();
    CivilTime {
        year: n[0],
        month: byte(1),
        day: byte(2),
        hour: byte(3),
        minute: byte(4),
        second: byte(5),
        microsecond: 0,
    }
}

fn load(dir: &Path, golden: &Golden<'_>) -> Renderer {
    let now = golden.cases.iter().find_map(|c| c.frozen.as_ref()?.get("now"));
    let time = frozen_time(now.map_or("2000-01-01T00:00:00", String::as_str));
    Renderer::load_with(dir, Limits::default(), move || time).unwrap()
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

fn ids_hash(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    hex(&Sha256::digest(bytes))
}

/// What differs, if anything.
fn compare(case: &Case<'_>, got: Result<Prompts, Unrouted>) -> Result<(), String> {
    let (want, got) = match (&case.error, got) {
        (Some(_), Err(_)) => return Ok(()),
        (Some(error), Ok(got)) => {
            return Err(format!("should fail ({error}), got {:?}", got.texts));
        }
        (None, Err(error)) => return Err(format!("{}: {error}", error.as_str())),
        (None, Ok(got)) => (case.text.as_deref(), got),
    };
    let text = got.texts[0].as_deref().unwrap();
    assert!(want.is_some() || case.kind == "completion", "{}: no text recorded", case.name);
    // A completion's text is its prompt.
    let want = want.unwrap_or(text);
    if text != want {
        let at = text.bytes().zip(want.bytes()).take_while(|(a, b)| a == b).count();
        let around = |s: &str| {
            let start = at.saturating_sub(40);
            String::from_utf8_lossy(&s.as_bytes()[start..s.len().min(at + 60)]).into_owned()
        };
        return Err(format!("text at {at}: got {:?}, want {:?}", around(text), around(want)));
    }
    let ids = &got.prompts[0];
    let same = match (&case.ids, case.ids_len, &case.ids_sha256) {
        (Some(want), _, _) => want == ids,
        (None, Some(len), Some(hash)) => len == ids.len() && *hash == ids_hash(ids),
        _ => panic!("{}: no ids recorded", case.name),
    };
    if same { Ok(()) } else { Err("token ids differ".to_owned()) }
}

/// Runs all cases; the differences by case name.
fn run(renderer: &Renderer, golden: &Golden<'_>) -> Vec<(String, String)> {
    let mut differences = Vec::new();
    for case in &golden.cases {
        let api = if case.kind == "chat" { Api::Chat } else { Api::Completions };
        let got = renderer.prompts(api, case.body.get().as_bytes());
        if let Err(why) = compare(case, got) {
            differences.push((case.name.clone(), why));
        }
    }
    differences
}

/// A model directory: the shared tokenizer beside the model's own files.
fn assemble(model: &str) -> PathBuf {
    let models = testdata().join("chat-models");
    let dir = std::env::temp_dir().join(format!("kvasir-prompt-{}-{model}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::copy(models.join("tokenizer.json"), dir.join("tokenizer.json")).unwrap();
    for entry in fs::read_dir(models.join(model)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
    }
    dir
}

#[test]
fn tiny_models() {
    let mut files: Vec<PathBuf> = fs::read_dir(testdata().join("chat-golden"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("tiny-"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 10, "golden files are missing");
    let mut wrong = Vec::new();
    let mut open: Vec<&(&str, &str, &str)> = OPEN.iter().collect();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let golden: Golden<'_> = serde_json::from_str(&text).unwrap();
        let dir = assemble(golden.model.strip_prefix("tiny-").unwrap());
        let renderer = load(&dir, &golden);
        fs::remove_dir_all(&dir).unwrap();
        let differences = run(&renderer, &golden);
        println!(
            "{}: {} of {} equal",
            golden.model,
            golden.cases.len() - differences.len(),
            golden.cases.len()
        );
        for (case, why) in differences {
            let known = open.iter().position(|o| o.0 == golden.model && o.1 == case);
            match known {
                Some(at) => drop(open.remove(at)),
                None => wrong.push(format!("{} {case}: {why}", golden.model)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(open.is_empty(), "listed as open but equal now: {open:?}");
}

/// `KVASIR_TOKENIZERS`: directories of real models; `KVASIR_CHAT_GOLDEN`: their golden files.
#[test]
#[ignore = "needs model directories that must not be redistributed"]
fn real_models() {
    let models = PathBuf::from(std::env::var_os("KVASIR_TOKENIZERS").unwrap());
    let goldens = PathBuf::from(std::env::var_os("KVASIR_CHAT_GOLDEN").unwrap());
    let mut wrong = Vec::new();
    for entry in fs::read_dir(models).unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(text) = fs::read_to_string(goldens.join(format!("{name}.json"))) else { continue };
        let golden: Golden<'_> = serde_json::from_str(&text).unwrap();
        let renderer = load(&dir, &golden);
        if renderer.chat_state().is_err() {
            println!("{name}: chats are not rendered: {:?}", renderer.chat_state());
        }
        let differences = run(&renderer, &golden);
        println!(
            "{name} ({}): {} of {} equal",
            golden.content_format.as_deref().unwrap_or("-"),
            golden.cases.len() - differences.len(),
            golden.cases.len()
        );
        wrong.extend(differences.into_iter().map(|(case, why)| format!("{name} {case}: {why}")));
    }
    println!("{}", wrong.join("\n"));
}
