//! Models, text, conversations and clocks for the measurements.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_prompt::{Api, CivilTime, Limits, Renderer};
use serde_json::json;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// CPU time of this thread so far.
pub(crate) fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Names and directories of the models to measure.
pub(crate) fn models() -> Vec<(String, PathBuf)> {
    if let Some(dir) = std::env::var_os("KVASIR_TOKENIZERS") {
        let mut found: Vec<(String, PathBuf)> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("tokenizer.json").exists())
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
            .filter(|(name, _)| !name.starts_with("tiny-"))
            .collect();
        found.sort();
        return found;
    }
    let tiny = workspace().join("testdata/chat-models");
    let dir = std::env::temp_dir().join(format!("kvasir-prompt-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    for file in [tiny.join("tokenizer.json"), tiny.join("chatml/chat_template.jinja")] {
        fs::copy(&file, dir.join(file.file_name().unwrap())).unwrap();
    }
    vec![("tiny".to_owned(), dir)]
}

pub(crate) fn load(dir: &Path, limits: Limits) -> Renderer {
    Renderer::load_with(dir, limits, CivilTime::now_utc).unwrap()
}

/// The sources and pages of this repository.
pub(crate) fn corpus() -> String {
    let mut files = Vec::new();
    let mut dirs = vec![workspace().join("crates"), workspace().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs" || e == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    // No text of a chat has the tokens that mark its messages.
    files.iter().map(|f| fs::read_to_string(f).unwrap().replace("<|", "< |")).collect()
}

/// About `bytes` bytes of a text from `at` on, going around at its end.
pub(crate) fn slice(text: &str, at: usize, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + 4);
    let from = (at % text.len()..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap();
    for c in text[from..].chars().chain(text.chars()) {
        if out.len() >= bytes {
            break;
        }
        out.push(c);
    }
    out
}

/// A text in pieces of some size.
pub(crate) fn slices(text: &str, bytes: usize) -> impl Iterator<Item = String> {
    (0..text.len() / bytes).map(move |n| slice(text, n * bytes, bytes))
}

/// How many bytes of this text are that many tokens.
pub(crate) fn bytes_for(renderer: &Renderer, text: &str, tokens: usize) -> usize {
    let sample = slice(text, 100_000, 100_000);
    let body = json!({ "prompt": sample }).to_string();
    let ids = renderer.prompts(Api::Completions, body.as_bytes()).unwrap().prompts[0].len();
    tokens * sample.len() / ids
}

/// A chat that grows.
pub(crate) struct Conversation<'a> {
    text: &'a str,
    at: usize,
    bytes: usize,
    messages: Vec<serde_json::Value>,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at, bytes: 0, messages: Vec::new() }
    }

    pub(crate) fn user(&mut self, bytes: usize) {
        self.say("user", bytes);
    }

    pub(crate) fn assistant(&mut self, bytes: usize) {
        self.say("assistant", bytes);
    }

    fn say(&mut self, role: &str, bytes: usize) {
        let content = slice(self.text, self.at, bytes);
        self.at += bytes;
        self.bytes += bytes;
        self.messages.push(json!({ "role": role, "content": content }));
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        serde_json::to_vec(&json!({ "model": "m", "messages": self.messages })).unwrap()
    }
}
