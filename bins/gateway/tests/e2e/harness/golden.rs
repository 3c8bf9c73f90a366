//! The staged tokenizer, and prompts whose token ids a real engine has given.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kvasir_testkit::engine::Tokenize;
use serde_json::Value;

/// Prompts with the token ids vLLM 0.32 gives them, from `testdata/chat-golden`.
#[derive(Debug)]
pub(crate) struct Golden {
    cases: Vec<Value>,
}

impl Golden {
    pub(crate) fn read() -> &'static Self {
        static READ: OnceLock<Golden> = OnceLock::new();
        READ.get_or_init(|| {
            let path = testdata().join("chat-golden/tiny-chatml.json");
            let text = std::fs::read_to_string(&path).unwrap();
            let mut file: Value = serde_json::from_str(&text).unwrap();
            let Value::Array(cases) = file["cases"].take() else { panic!("{}", path.display()) };
            Self { cases }
        })
    }

    /// The directory with the tokenizer those ids are of, staged for the model `tiny`.
    pub(crate) fn staged() -> PathBuf {
        Self::staged_as("tiny")
    }

    /// The same, staged for another model.
    pub(crate) fn staged_as(model: &str) -> PathBuf {
        let models = testdata().join("chat-models");
        let staged = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e-tokenizers");
        let dir = staged.join(model);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, file) in [
            ("tokenizer.json", "tokenizer.json"),
            ("tokenizer_config.json", "chatml/tokenizer_config.json"),
            ("chat_template.jinja", "chatml/chat_template.jinja"),
        ] {
            // It may be there from another run, or just be made by one.
            let _ = std::os::unix::fs::symlink(models.join(file), dir.join(name));
            assert!(dir.join(name).exists(), "{name} is not in {}", models.display());
        }
        staged
    }

    /// A request body and its token ids.
    pub(crate) fn case(&self, name: &str) -> (Value, Vec<u32>) {
        let case = self.cases.iter().find(|case| case["name"] == name).unwrap();
        let mut body = case["body"].clone();
        body["model"] = "tiny".into();
        body["max_tokens"] = 2.into();
        (body, ids_of(case))
    }

    /// An engine's tokenizer: knows these prompts, and prompts of token ids.
    pub(crate) fn tokenize() -> Tokenize {
        std::sync::Arc::new(|body| {
            if let Some(ids) = body["prompt"].as_array() {
                return ids.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect();
            }
            let asked = |case: &&Value| {
                let asks = &case["body"];
                asks["messages"] == body["messages"] && asks["prompt"] == body["prompt"]
            };
            Self::read().cases.iter().find(asked).map(ids_of)
        })
    }
}

fn ids_of(case: &Value) -> Vec<u32> {
    let ids = case["ids"].as_array().unwrap();
    ids.iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").canonicalize().unwrap()
}
