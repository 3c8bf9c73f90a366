//! Against the library: random texts for the expressions of published models, and single stages.

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::{Value, json};

use super::*;
use crate::tokenizer::Settings;
use crate::tokenizer::engine::TokenizerEngine;
use crate::tokenizer::library::Library;
use crate::tokenizer::tests::kinds::tiny;

/// Pre-tokenizers as models of these families have them.
const PATTERNS: &[(&str, &[&str])] = &[
    ("gpt-2", &[]),
    (
        "llama 3",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "qwen 3.6",
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "o200k",
        &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    (
        "deepseek v3",
        &[
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
        ],
    ),
];

fn with_splits(patterns: &[&str], invert: bool) -> Value {
    let mut json = tiny();
    if !patterns.is_empty() {
        let behavior = if invert { "Removed" } else { "Isolated" };
        let mut parts: Vec<Value> = patterns
            .iter()
            .map(|p| json!({"type": "Split", "pattern": {"Regex": p}, "behavior": behavior, "invert": invert}))
            .collect();
        parts.push(json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}));
        json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": parts});
    }
    json
}

fn both(json: &Value) -> (Library, Result<Fast, String>) {
    let json = serde_json::to_vec(json).unwrap();
    let library = Library::from_json(&json, Settings::default()).unwrap();
    let fast = Fast::new(&json, &library.added_tokens(), false);
    (library, fast)
}

fn ids(fast: &Fast, text: &str) -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    fast.append_ids(text, &mut ids).map(|()| ids)
}

fn check(name: &str, json: &Value, cases: u32) {
    let (library, fast) = both(json);
    let fast = fast.unwrap_or_else(|e| panic!("{name}: {e}"));
    let piece = prop_oneof![
        4 => "[ -~]{0,20}",
        3 => "\\PC{0,8}",
        2 => "[ \t\r\n\u{a0}\u{3000}\u{2028}]{1,4}",
        2 => "[a-zA-Z'’ ]{0,16}",
        1 => "[0-9０-９²Ⅷ]{1,8}",
        1 => "[一-二あ-いァ-イ가-각e\u{300}-\u{302}ǄǅʰÀ]{1,6}",
        1 => prop::sample::select(vec!["<|im_start|>", "<|end|>", " <|user|> \n", "</think>", "'LL", "İ", "ſ"])
            .prop_map(str::to_owned),
    ];
    let text = prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat());
    let mut runner = TestRunner::new(Cases { cases, ..Cases::default() });
    let result = runner.run(&text, |text| {
        prop_assert_eq!(ids(&fast, &text), library.ids(&text), "{:?}", text);
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{name}: {e}"));
}

#[test]
fn ids_are_the_librarys_for_published_expressions() {
    for (name, patterns) in PATTERNS {
        check(name, &with_splits(patterns, false), 200);
    }
    check("kept by inversion", &with_splits(&PATTERNS[3].1[..1], true), 100);
    check("gaps dropped by inversion", &with_splits(&[r"\p{L}+"], true), 100);
    let mut whole = with_splits(PATTERNS[1].1, false);
    whole["model"]["ignore_merges"] = json!(true);
    // Words that are tokens although no merge makes them.
    let mut next = 5000;
    for word in ["qqq", "Ġhello", "ĠĠĠĠ", "zx"] {
        if whole["model"]["vocab"].get(word).is_none() {
            whole["model"]["vocab"][word] = json!(next);
            next += 1;
        }
    }
    check("whole words", &whole, 100);
    let mut nfc = with_splits(PATTERNS[2].1, false);
    nfc["normalizer"] = json!({"type": "NFC"});
    check("NFC", &nfc, 300);
}

#[test]
fn merges_as_lists_are_merges_as_texts() {
    let mut json = tiny();
    let list = json["model"]["merges"].as_array_mut().unwrap();
    for merge in list.iter_mut() {
        *merge = match merge {
            Value::String(text) => json!(text.split(' ').collect::<Vec<_>>()),
            Value::Array(two) => {
                json!(format!("{} {}", two[0].as_str().unwrap(), two[1].as_str().unwrap()))
            }
            _ => unreachable!(),
        };
    }
    check("merges", &json, 20);
}

#[test]
fn long_words_and_runs() {
    let (library, fast) = both(&with_splits(PATTERNS[1].1, false));
    let fast = fast.unwrap();
    for text in
        ["a".repeat(5000), "ab".repeat(3000), " ".repeat(3000), "\n".repeat(999), "é".repeat(2000)]
    {
        for text in [text.clone(), format!("{text}x"), format!("x{text} y")] {
            assert_eq!(ids(&fast, &text), library.ids(&text), "{} of {:?}", text.len(), &text[..4]);
        }
    }
}

#[test]
fn more_words_than_are_remembered() {
    let (library, fast) = both(&tiny());
    let fast = fast.unwrap();
    for round in 0..4 {
        let text: String = (0..20_000).map(|n| format!(" w{}", n * 7 + round)).collect();
        let got = ids(&fast, &text).unwrap();
        let head: String = text.chars().take(2000).collect();
        assert_eq!(ids(&fast, &head), library.ids(&head));
        assert!(got.len() >= 20_000);
    }
}

#[test]
fn what_is_not_done_here_is_refused_with_the_reason() {
    let set = |path: &str, value: Value| {
        let mut json = tiny();
        *json.pointer_mut(path).unwrap() = value;
        serde_json::to_vec(&json).unwrap()
    };
    let split = |pattern: &str| serde_json::to_vec(&with_splits(&[pattern], false)).unwrap();
    for (json, why) in [
        (set("/normalizer", json!({"type": "NFKC"})), "normalizer NFKC"),
        (
            set(
                "/normalizer",
                json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}),
            ),
            "normalizer Sequence",
        ),
        (set("/pre_tokenizer/add_prefix_space", json!(true)), "pre-tokenizer ByteLevel"),
        (set("/pre_tokenizer", json!({"type": "Metaspace"})), "pre-tokenizer Metaspace"),
        (set("/pre_tokenizer", Value::Null), "no pre-tokenizer"),
        (set("/model/dropout", json!(0.1)), "model with dropout"),
        (set("/model/end_of_word_suffix", json!("</w>")), "model with end_of_word_suffix"),
        (set("/model/vocab", json!({"a": 0})), "a byte without a token"),
        (set("/model/merges", json!([["a", "qqqq"]])), "a merge without a token"),
        (split(r"\s+(?!\S)"), "special group"),
        (split(r"(?=a)b|\s+(?!\S)|\s+"), "special group"),
        (split(r"(?i)b|\s+(?!\S)|\s+"), "flag for all"),
        (split(r"\ba+"), "looks around"),
        (split("^a"), "looks around"),
        (split("a*"), "looks around"),
        (b"{".to_vec(), ""),
        (b"[]".to_vec(), "not a JSON object"),
    ] {
        match Fast::new(&json, &[], false) {
            Ok(_) => panic!("taken: {why}"),
            Err(message) => assert!(message.contains(why), "{message} for {why}"),
        }
    }
    let single = [(9, AddedToken::from("x", true).single_word(true))];
    assert!(Fast::new(&set("/normalizer", Value::Null), &single, false).is_err());
}

#[test]
fn nfc_in_parts_is_nfc() {
    let nfc = NormalizerWrapper::NFC(tokenizers::normalizers::NFC);
    proptest!(Cases::with_cases(300), |(text in "[a-e \u{300}-\u{304}\u{1100}-\u{1112}\u{1161}-\u{1164}\u{11a8}À-ÿ\u{1e9b}\u{323}가-각]{0,24}")| {
        let mut whole = NormalizedString::from(text.as_str());
        nfc.normalize(&mut whole).unwrap();
        prop_assert_eq!(normalise(Some(&nfc), &text).unwrap(), whole.get());
    });
}

#[test]
fn the_tiny_model_takes_the_fast_way() {
    let tokenizer = crate::tokenizer::Tokenizer::from_json(
        &serde_json::to_vec(&tiny()).unwrap(),
        Settings::default(),
        0,
    );
    assert_eq!(tokenizer.unwrap().engine(), TokenizerEngine::ByteLevel);
}
