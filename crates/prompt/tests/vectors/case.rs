//! One recorded case, and what is different about it here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use kvasir_prompt::{CivilTime, Level, Limits, Prompts, Renderer, Unrouted};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
pub(crate) struct Golden<'a> {
    pub(crate) model: String,
    frozen: Option<BTreeMap<String, String>>,
    #[serde(borrow)]
    pub(crate) cases: Vec<Case<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct Case<'a> {
    pub(crate) name: String,
    pub(crate) kind: String,
    #[serde(borrow)]
    pub(crate) body: &'a RawValue,
    frozen: Option<BTreeMap<String, String>>,
    /// Where there are several.
    prompts: Option<Vec<Prompt>>,
    #[serde(flatten)]
    prompt: Prompt,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Prompt {
    text: Option<String>,
    ids: Option<Vec<u32>>,
    ids_len: Option<usize>,
    ids_sha256: Option<String>,
}

pub(crate) fn testdata() -> PathBuf {
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

/// A renderer whose clock stands where it stood for the recording.
pub(crate) fn load(dir: &Path, golden: &Golden<'_>) -> Renderer {
    let cases = golden.cases.iter().map(|c| &c.frozen);
    let now = std::iter::once(&golden.frozen).chain(cases).find_map(|f| f.as_ref()?.get("now"));
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
pub(crate) fn compare(case: &Case<'_>, got: Result<Prompts, Unrouted>) -> Result<(), String> {
    let got = match (&case.error, got) {
        (Some(_), Err(_)) => return Ok(()),
        (Some(error), Ok(got)) => {
            return Err(format!("should fail ({error}), got {:?}", got.texts));
        }
        (None, Err(error)) => return Err(format!("{}: {error}", error.as_str())),
        (None, Ok(got)) => got,
    };
    if got.level != Level::Tokens {
        return Err(format!("level {} ({:?})", got.level.as_str(), got.why));
    }
    let want: Vec<&Prompt> = match &case.prompts {
        Some(prompts) => prompts.iter().collect(),
        None => vec![&case.prompt],
    };
    if want.len() != got.prompts.len() {
        return Err(format!("{} prompts, want {}", got.prompts.len(), want.len()));
    }
    let texts = got.texts.iter().map(Option::as_deref);
    for ((want, ids), text) in want.into_iter().zip(&got.prompts).zip(texts) {
        want.compare(text, ids)?;
    }
    let total: usize = got.prompts.iter().map(Vec::len).sum();
    assert_eq!(got.tokens, total as u64, "{}", case.name);
    Ok(())
}

impl Prompt {
    fn compare(&self, text: Option<&str>, ids: &[u32]) -> Result<(), String> {
        // A completion's text is its prompt, and is not always recorded.
        if let (Some(want), Some(text)) = (&self.text, text)
            && text != want
        {
            let at = text.bytes().zip(want.bytes()).take_while(|(a, b)| a == b).count();
            let around = |s: &str| {
                let start = at.saturating_sub(60);
                String::from_utf8_lossy(&s.as_bytes()[start..s.len().min(at + 80)]).into_owned()
            };
            return Err(format!("text at {at}: got {:?}, want {:?}", around(text), around(want)));
        }
        let same = match (&self.ids, self.ids_len, &self.ids_sha256) {
            (Some(want), _, _) => want == ids,
            (None, Some(len), Some(hash)) => len == ids.len() && *hash == ids_hash(ids),
            _ => panic!("no ids recorded"),
        };
        if same { Ok(()) } else { Err(format!("ids differ: got {ids:?}, want {:?}", self.ids)) }
    }
}

/// Reads a file of recorded cases and hands it on.
pub(crate) fn with_golden<T>(file: &Path, use_it: impl FnOnce(&Golden<'_>) -> T) -> T {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let golden: Golden<'_> = serde_json::from_str(&text).unwrap();
    assert!(!golden.cases.is_empty(), "{}", file.display());
    use_it(&golden)
}

/// Cases known to differ, as (model, kind and case, why). One that does not differ any more fails.
pub(crate) type Open = [(&'static str, &'static str, &'static str)];

/// Collects differences over files.
pub(crate) struct Findings {
    open: Vec<(&'static str, &'static str, &'static str)>,
    wrong: Vec<String>,
}

impl Findings {
    pub(crate) fn new(open: &Open) -> Self {
        Self { open: open.to_vec(), wrong: Vec::new() }
    }

    /// Runs all cases of one file.
    pub(crate) fn run(
        &mut self,
        golden: &Golden<'_>,
        prompts: impl Fn(&Case<'_>) -> Result<Prompts, Unrouted>,
    ) {
        let mut equal = 0;
        for case in &golden.cases {
            let Err(why) = compare(case, prompts(case)) else {
                equal += 1;
                continue;
            };
            let name = format!("{} {}", case.kind, case.name);
            let known = self.open.iter().position(|o| o.0 == golden.model && o.1 == name);
            match known {
                Some(at) => drop(self.open.remove(at)),
                None => self.wrong.push(format!("{} {name}: {why}", golden.model)),
            }
        }
        println!("{}: {equal} of {} equal", golden.model, golden.cases.len());
    }

    pub(crate) fn judge(self) {
        let wrong = self.wrong;
        assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
        assert!(self.open.is_empty(), "listed as open but equal now: {:?}", self.open);
    }
}

/// A model directory: the tokenizer the models share, if they do, beside the model's own files.
pub(crate) fn assemble(models: &Path, model: &str) -> PathBuf {
    // Tests run beside each other, on the same models.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "kvasir-prompt-{}-{}-{model}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let dir = std::env::temp_dir().join(name);
    fs::create_dir_all(&dir).unwrap();
    if models.join("tokenizer.json").exists() {
        fs::copy(models.join("tokenizer.json"), dir.join("tokenizer.json")).unwrap();
    }
    for entry in fs::read_dir(models.join(model)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
    }
    dir
}
