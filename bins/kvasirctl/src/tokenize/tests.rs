use std::path::PathBuf;

use super::*;

fn args(path: &str) -> TokenizeArgs {
    let model_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/models/tiny");
    TokenizeArgs {
        model_dir,
        path: path.to_owned(),
        body: PathBuf::from("-"),
        json: true,
        by_template: false,
    }
}

fn shown(path: &str, body: &str) -> Value {
    super::shown(&args(path), path, body.as_bytes()).unwrap()
}

#[test]
fn every_level_is_shown_with_its_reason() {
    let exact = shown("/v1/completions", r#"{"prompt":["a","b c"]}"#);
    assert_eq!((&exact["level"], &exact["reason"]), (&json!("tokens"), &Value::Null));
    assert_eq!(exact["prompts"][1]["text"], "b c");
    assert!(exact["prompts"][1]["token_ids"][0].is_u64());
    let given = shown("/v1/completions", r#"{"prompt":[5,6]}"#);
    assert_eq!(given["prompts"], json!([{"text": null, "token_ids": [5, 6]}]));
    let image = r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}"#;
    let image = shown("/v1/chat/completions", image);
    assert_eq!((&image["level"], &image["reason"]), (&json!("text"), &json!("multimodal")));
    assert!(lines(&image).contains("reason: multimodal (multimodal content part `image_url`)"));
    let none = shown("/v1/chat/completions", "{}");
    assert_eq!((&none["level"], &none["reason"]), (&json!("none"), &json!("body")));
    assert_eq!(none["prompts"], json!([]));
    let other = shown("/v1/audio/speech", "{}");
    assert_eq!(other["reason"], "unsupported_api");
    assert_eq!(other["detail"], "requests to `/v1/audio/speech` are not routed by tokens");
}

#[test]
fn a_model_is_needed_only_for_text() {
    let mut args = args("/v1/completions");
    args.model_dir = PathBuf::from("/no/such/dir");
    assert!(prompts(&args, Api::Completions, br#"{"prompt":[1]}"#).unwrap().is_ok());
    let error = prompts(&args, Api::Completions, br#"{"prompt":"a"}"#).unwrap_err();
    assert!(format!("{error:#}").contains("/no/such/dir: no such directory"), "{error:#}");
}

#[test]
fn a_model_of_sentencepiece_says_what_to_do() {
    let mut args = args("/v1/completions");
    args.model_dir = std::env::temp_dir().join(format!("kvasir-pieces-{}", std::process::id()));
    fs::create_dir_all(&args.model_dir).unwrap();
    fs::write(args.model_dir.join("tokenizer.model"), b"").unwrap();
    let error = prompts(&args, Api::Completions, br#"{"prompt":"a"}"#).unwrap_err();
    fs::remove_dir_all(&args.model_dir).unwrap();
    let wanted =
        "only a SentencePiece tokenizer.model, no tokenizer.json; write one with transformers";
    assert!(format!("{error:#}").contains(wanted), "{error:#}");
}
