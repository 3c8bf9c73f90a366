use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::*;
use crate::template::ContentFormat;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
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

#[derive(Deserialize)]
struct Sweep<'a> {
    special_tokens: BTreeMap<String, Option<String>>,
    #[serde(borrow)]
    bodies: BTreeMap<String, &'a RawValue>,
    templates: BTreeMap<String, SweepTemplate>,
}

#[derive(Deserialize)]
struct SweepTemplate {
    frozen: Option<BTreeMap<String, String>>,
    cases: BTreeMap<String, serde_json::Value>,
}

/// Cases of templates that differ, and why.
const OPEN: &[(&str, usize, &str)] =
    &[("meetkai-functionary-medium-v3.1", 13, "`\"a\"|safe + x` does not escape `x` here")];

/// Published templates from `$KVASIR_TOKENIZERS/.templates` against the recorded sweep.
#[test]
#[ignore = "needs templates that must not be redistributed"]
fn external_published_templates() {
    let templates =
        PathBuf::from(std::env::var_os("KVASIR_TOKENIZERS").unwrap()).join(".templates");
    let golden = testdata().join("chat-golden/external/template-sweep.json");
    let text = fs::read_to_string(golden).unwrap();
    let sweep: Sweep<'_> = serde_json::from_str(&text).unwrap();
    let dir = std::env::temp_dir().join(format!("kvasir-prompt-sweep-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::copy(testdata().join("chat-models/tokenizer.json"), dir.join("tokenizer.json")).unwrap();
    let config = serde_json::to_string(&sweep.special_tokens).unwrap();
    fs::write(dir.join("tokenizer_config.json"), config).unwrap();
    fs::write(dir.join("config.json"), r#"{"model_type":"llama"}"#).unwrap();
    let (mut equal, mut total, mut whole) = (0, 0, 0);
    let mut unexpected = Vec::new();
    for (name, template) in &sweep.templates {
        let source = fs::read(templates.join(format!("{name}.jinja"))).unwrap();
        fs::write(dir.join("chat_template.jinja"), source).unwrap();
        let now = template.frozen.as_ref().and_then(|f| f.get("now"));
        let time = frozen_time(now.map_or("2000-01-01T00:00:00", String::as_str));
        let mut renderer = Renderer::load_with(&dir, Limits::default(), move || time).unwrap();
        // The sweep was recorded with the string format throughout.
        if let TemplateState::Ready(template) = &mut renderer.plain {
            template.content_format = ContentFormat::String;
        }
        let mut wrong = Vec::new();
        for (case, want) in &template.cases {
            let got = renderer.prompts(Api::Chat, sweep.bodies[case].get().as_bytes());
            let same = match (want.as_str(), &got) {
                (Some(hash), Ok(got)) => {
                    let text = got.texts[0].as_deref().unwrap();
                    hex(&Sha256::digest(text.as_bytes())).starts_with(hash)
                }
                (None, Err(_)) => true,
                _ => false,
            };
            if !same {
                let got = got.map(|p| p.texts[0].clone().unwrap_or_default().len());
                wrong.push(format!("  {case}: want {want}, got {got:?}"));
            }
        }
        total += template.cases.len();
        equal += template.cases.len() - wrong.len();
        whole += usize::from(wrong.is_empty());
        let open = OPEN.iter().find(|open| open.0 == name).map_or(0, |open| open.1);
        if wrong.len() != open {
            let count = wrong.len();
            wrong.truncate(4);
            unexpected.push(format!("{name}: {count} differ, {open} known\n{}", wrong.join("\n")));
        }
    }
    fs::remove_dir_all(&dir).unwrap();
    println!("{equal} of {total} equal, {whole} of {} templates fully", sweep.templates.len());
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}
