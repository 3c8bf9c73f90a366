//! Prompts above the size limit: what is known of them is what the whole begins with.

use kvasir_prompt::{Api, CivilTime, Level, Limits, Prompts, Renderer};
use serde_json::{Value, json};

use crate::dir::Dir;

const LIMIT: usize = 8_192;
const TURNS: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
const CONFIG: &str = r#"{"model_type":"gpt_oss"}"#;

/// The same request without a limit that matters, and with one that does.
fn both(dir: &Dir, api: Api, body: &Value) -> (Prompts, Prompts) {
    let read = |limits| {
        let clock = || CivilTime::from_unix(std::time::Duration::ZERO);
        let renderer = Renderer::load_with(&dir.0, limits, clock).unwrap();
        renderer.prompts(api, body.to_string().as_bytes()).unwrap()
    };
    let limited = Limits { prompt_bytes: LIMIT, ..Limits::default() };
    (read(Limits::default()), read(limited))
}

#[track_caller]
fn check(dir: &Dir, api: Api, body: &Value) {
    let (whole, head) = both(dir, api, body);
    assert_eq!((whole.level, whole.why), (Level::Tokens, None));
    assert_eq!((head.level, head.why.unwrap().as_str()), (Level::Text, "head"));
    assert!(whole.prompts[0].starts_with(&head.prompts[0]));
    let text = whole.texts[0].as_deref().unwrap();
    assert!(text.starts_with(head.texts[0].as_deref().unwrap()));
    // Nearly all of what the limit allows is known.
    let share = whole.prompts[0].len() * LIMIT / text.len();
    assert!(head.prompts[0].len() + 200 > share, "{} of {share}", head.prompts[0].len());
    let off = head.tokens.abs_diff(whole.tokens);
    assert!(off * 10 < whole.tokens, "{} for {}", head.tokens, whole.tokens);
}

fn conversation(turns: usize) -> Value {
    let turn = |n: usize| {
        let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": format!("turn {n}: {}", "some words again ".repeat(20))})
    };
    json!({"messages": (0..turns).map(turn).collect::<Vec<_>>(), "add_generation_prompt": false})
}

#[test]
fn of_texts_and_chats() {
    let dir = Dir::new(&[("chat_template.jinja", TURNS)]);
    let words = "The quick brown fox jumps over the lazy dog. ".repeat(1_000);
    check(&dir, Api::Completions, &json!({ "prompt": words }));
    check(&dir, Api::Chat, &conversation(120));
    check(&dir, Api::Chat, &json!({"messages": [{"role": "user", "content": words}]}));
}

#[test]
fn of_chats_rendered_with_harmony() {
    let marks = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"];
    let listed: serde_json::Map<String, Value> = (5_000..)
        .zip(marks)
        .map(|(id, mark)| (id.to_string(), json!({"content": mark, "special": true})))
        .collect();
    let listed = json!({ "added_tokens_decoder": listed }).to_string();
    let dir = Dir::new(&[
        ("tokenizer_config.json", listed.as_str()),
        ("config.json", CONFIG),
        ("chat_template.jinja", &marks.concat()),
    ]);
    // Cut between messages, and in the middle of one.
    check(&dir, Api::Chat, &conversation(120));
    let words = "The quick brown fox jumps over the lazy dog. ".repeat(1_000);
    check(&dir, Api::Chat, &json!({"messages": [{"role": "user", "content": words}]}));
}
