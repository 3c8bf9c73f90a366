//! Small tokenizers of every kind.

use serde_json::{Value, json};

use super::*;

/// A tokenizer and what texts for it are made of.
pub(super) struct Kind {
    pub(super) name: &'static str,
    build: fn() -> Value,
    settings: fn() -> Settings,
    /// Added tokens and the like.
    pub(super) tokens: &'static [&'static str],
    /// Whether it has tokens a text may be cut behind.
    pub(super) cacheable: bool,
    /// Whether the faster code does it.
    pub(super) fast: bool,
}

const CHATML: &[&str] = &[
    "<|im_start|>",
    "<|im_end|>",
    "<|user|>",
    "<|end|>",
    "<|assistant|>",
    "<think>",
    "</think>",
    "[INST]",
    "</s>",
    "<s>",
    "<|/tool|>",
    "<BOS_TOKEN>",
];
const MARKS: &[&str] =
    &["<a>", "<b>", "<l>", "<r>", "<w>", "<n>", "ab<c", "<c>", "<c>d", "  ", "\n\n"];

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "byte-level BPE",
        build: tiny,
        settings: Settings::default,
        tokens: CHATML,
        cacheable: true,
        fast: true,
    },
    Kind {
        name: "with NFC",
        build: tiny_nfc,
        settings: Settings::default,
        tokens: CHATML,
        cacheable: true,
        fast: true,
    },
    Kind {
        name: "with prefix space",
        build: tiny_prefix_space,
        settings: Settings::default,
        tokens: CHATML,
        cacheable: true,
        fast: false,
    },
    Kind {
        name: "special tokens split",
        build: tiny,
        settings: split_special,
        tokens: CHATML,
        cacheable: true,
        fast: true,
    },
    Kind {
        name: "no added tokens",
        build: tiny_bare,
        settings: Settings::default,
        tokens: CHATML,
        cacheable: false,
        fast: true,
    },
    Kind {
        name: "awkward tokens",
        build: tiny_bare,
        settings: awkward,
        tokens: MARKS,
        cacheable: true,
        fast: false,
    },
    Kind {
        name: "stripping tokens",
        build: tiny_nfc_bare,
        settings: stripping,
        tokens: MARKS,
        cacheable: true,
        fast: true,
    },
    Kind {
        name: "Unigram, first",
        build: || unigram("first"),
        settings: awkward,
        tokens: MARKS,
        cacheable: true,
        fast: false,
    },
    Kind {
        name: "Unigram, always",
        build: || unigram("always"),
        settings: awkward,
        tokens: MARKS,
        cacheable: true,
        fast: false,
    },
    Kind {
        name: "Prepend",
        build: prepend,
        settings: awkward,
        tokens: MARKS,
        cacheable: true,
        fast: false,
    },
    Kind {
        name: "WordPiece",
        build: word_piece,
        settings: Settings::default,
        tokens: &["[CLS]", "[SEP]", "[UNK]", "[MASK]", "[sep]"],
        cacheable: true,
        fast: false,
    },
    Kind {
        name: "text twice",
        build: twice,
        settings: Settings::default,
        tokens: CHATML,
        cacheable: false,
        fast: false,
    },
];

pub(super) fn load(kind: &Kind, cache_bytes: usize) -> Tokenizer {
    let json = serde_json::to_vec(&(kind.build)()).unwrap();
    Tokenizer::from_json(&json, (kind.settings)(), cache_bytes)
        .unwrap_or_else(|e| panic!("{}: {e}", kind.name))
}

fn split_special() -> Settings {
    Settings { split_special: true, ..Settings::default() }
}

/// Tokens that strip, need a word of their own, are normalised, or overlap.
fn awkward() -> Settings {
    let token = |text: &str| AddedToken::from(text, true);
    let listed = vec![
        token("<a>"),
        token("<b>"),
        token("<l>").lstrip(true),
        token("<r>").rstrip(true),
        token("<w>").single_word(true),
        token("ab").single_word(true),
        token("<n>").normalized(true),
        token("ab<c"),
        token("<c>"),
        token("<c>d"),
        token("  "),
        token("\n\n"),
    ];
    Settings { listed, ..Settings::default() }
}

/// The same but for those that need a word of their own.
fn stripping() -> Settings {
    let mut settings = awkward();
    settings.listed.retain(|token| !token.single_word);
    settings.listed.push(AddedToken::from("e\u{301}<n>", false).normalized(true));
    settings
}

pub(in crate::tokenizer) fn tiny() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/chat-models/tokenizer.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn tiny_bare() -> Value {
    let mut json = tiny();
    json["added_tokens"] = json!([]);
    json["post_processor"] = Value::Null;
    json
}

fn tiny_nfc_bare() -> Value {
    let mut json = tiny_bare();
    json["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]});
    json
}

fn tiny_nfc() -> Value {
    let mut json = tiny();
    json["normalizer"] = json!({"type": "NFC"});
    json
}

fn tiny_prefix_space() -> Value {
    let mut json = tiny();
    json["pre_tokenizer"]["add_prefix_space"] = json!(true);
    json
}

/// A post-processor that repeats the text.
fn twice() -> Value {
    let mut json = tiny();
    json["post_processor"]["single"] =
        json!([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
    json
}

/// All characters of the tests' words, some words, and byte tokens for the rest.
fn pieces() -> Vec<String> {
    let words = [
        "▁", "▁the", "▁quick", "he", "ll", "▁hell", "hello", "▁World", "un", "aff", "able", "▁▁",
        "ck",
    ];
    let bytes = (0..=255).map(|b| format!("<0x{b:02X}>"));
    let chars = (' '..='~').map(|c| c.to_string());
    ["<unk>", "<s>", "</s>"]
        .into_iter()
        .map(str::to_owned)
        .chain(bytes)
        .chain(chars)
        .chain(words.map(str::to_owned))
        .collect()
}

fn sentence_piece_tokens() -> Value {
    json!([
        {"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
    ])
}

fn unigram(scheme: &str) -> Value {
    let vocab: Vec<Value> =
        pieces().iter().enumerate().map(|(i, p)| json!([p, -(i as f64) / 50.0])).collect();
    json!({
        "version": "1.0",
        "added_tokens": sentence_piece_tokens(),
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}
        },
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": true}
    })
}

/// As Llama 2: a space is put before each piece by the normalizer.
fn prepend() -> Value {
    let vocab: serde_json::Map<String, Value> =
        pieces().into_iter().enumerate().map(|(i, p)| (p, json!(i))).collect();
    json!({
        "version": "1.0",
        "added_tokens": sentence_piece_tokens(),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        ]},
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": vocab, "merges": [["▁", "▁"], ["l", "l"], ["h", "e"], ["c", "k"], ["u", "n"]]
        }
    })
}

fn word_piece() -> Value {
    let letters = ('a'..='z').flat_map(|c| [c.to_string(), format!("##{c}")]);
    let words = ["the", "quick", "hello", "world", "un", "##aff", "##able", "##12", "."];
    let vocab: serde_json::Map<String, Value> = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        .into_iter()
        .map(str::to_owned)
        .chain(letters)
        .chain(words.map(str::to_owned))
        .enumerate()
        .map(|(i, p)| (p, json!(i)))
        .collect();
    let special = |id: u32, text: &str, normalized: bool| json!({"id": id, "content": text, "single_word": false, "lstrip": text == "[MASK]", "rstrip": false, "normalized": normalized, "special": true});
    json!({
        "version": "1.0",
        "added_tokens": [special(0, "[UNK]", false), special(1, "[CLS]", false), special(2, "[SEP]", true), special(3, "[MASK]", false)],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 20, "vocab": vocab}
    })
}
