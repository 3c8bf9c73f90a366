//! Request shapes and model directories beyond the recorded cases.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod dir;
mod directories;
mod fuzz;
mod heads;

use std::sync::LazyLock;

use dir::Dir;
use kvasir_prompt::{Api, CivilTime, Level, Limits, Prompts, Renderer, Unrouted};
use serde_json::{Value, json};

/// Shows everything a template is given.
const DUMP: &str = "{{ messages | tojson }}|{{ tools | tojson }}|{{ documents | tojson }}|{{ add_generation_prompt }}";
const CONFIG: &str = r#"{"bos_token":"<s>","eos_token":{"content":"</s>","special":true}}"#;

static DUMPER: LazyLock<Renderer> = LazyLock::new(|| {
    Dir::new(&[("chat_template.jinja", DUMP), ("tokenizer_config.json", CONFIG)]).load()
});

fn chat(body: &Value) -> Result<String, Unrouted> {
    let prompts = DUMPER.prompts(Api::Chat, body.to_string().as_bytes())?;
    Ok(prompts.texts[0].clone().unwrap())
}

fn complete(body: &Value) -> Result<Prompts, Unrouted> {
    DUMPER.prompts(Api::Completions, body.to_string().as_bytes())
}

fn one(body: &Value) -> Vec<u32> {
    complete(body).unwrap().prompts.remove(0)
}

#[test]
fn completion_prompt_forms() {
    let hi = one(&json!({"prompt": "Hello world"}));
    assert_eq!(hi[0], 4096, "BOS");
    let without = one(&json!({"prompt": "Hello world", "add_special_tokens": false}));
    assert_eq!(hi[1..], without);
    let two = complete(&json!({"prompt": ["Hello world", "x"]})).unwrap();
    assert_eq!((two.prompts.len(), &two.prompts[0], two.level), (2, &hi, Level::Tokens));
    assert_eq!(two.texts, [Some("Hello world".to_owned()), Some("x".to_owned())]);
    let ids = complete(&json!({"prompt": [1, 2, 3]})).unwrap();
    assert_eq!((ids.prompts, ids.texts), (vec![vec![1, 2, 3]], vec![None]));
    assert_eq!(complete(&json!({"prompt": [[1], [2, 3]]})).unwrap().prompts, [vec![1], vec![2, 3]]);
    for bad in [
        json!(null),
        json!(5),
        json!([]),
        json!(["a", 1]),
        json!([1, "a"]),
        json!([-1]),
        json!([1.5]),
        json!([[1], "a"]),
        json!([4_294_967_296_u64]),
        json!({"a": 1}),
        json!([null]),
    ] {
        let got = complete(&json!({"prompt": bad}));
        assert!(matches!(got, Err(Unrouted::Body(_))), "{bad} gave {got:?}");
    }
    for (field, value) in [("suffix", json!("s")), ("prompt_embeds", json!("AA=="))] {
        let got = complete(&json!({"prompt": "x", field: value}));
        assert_eq!(got.unwrap_err().as_str(), "unsupported_field", "{field}");
    }
}

#[test]
fn truncation() {
    let text = "one two three four five six";
    let full = one(&json!({"prompt": text}));
    let cut = |k: i64| one(&json!({"prompt": text, "truncate_prompt_tokens": k}));
    // The tokenizer keeps the end of the text and room for its special tokens.
    assert_eq!(cut(3), [&full[..1], &full[full.len() - 2..]].concat());
    assert_eq!(cut(100), full);
    assert_eq!(cut(1), full[..1]);
    let sided = |side: &str| {
        one(&json!({"prompt": text, "truncate_prompt_tokens": 3, "truncation_side": side}))
    };
    assert_eq!(sided("left"), full[full.len() - 3..]);
    assert_eq!(sided("right"), full[..3]);
    assert_eq!(one(&json!({"prompt": [1, 2, 3], "truncate_prompt_tokens": 2})), [2, 3]);
    let refused =
        |k: Value| complete(&json!({"prompt": text, "truncate_prompt_tokens": k})).unwrap_err();
    let unknown = refused(json!(-1));
    assert!(unknown.to_string().contains("context length"), "{unknown}");
    assert_eq!(unknown.as_str(), "unsupported_field");
    for bad in [json!(-2), json!("3"), json!(1.5)] {
        assert_eq!(refused(bad).as_str(), "body");
    }
    let body =
        json!({"messages": [{"role": "user", "content": text}], "truncate_prompt_tokens": 4});
    let ids = DUMPER.prompts(Api::Chat, body.to_string().as_bytes()).unwrap().prompts.remove(0);
    assert_eq!(ids.len(), 4);
}

#[test]
fn limits() {
    let dir = Dir::new(&[("chat_template.jinja", "{{ messages[0].content * 3 }}")]);
    let limits = Limits { prompt_bytes: 20, prompts: 2, ..Limits::default() };
    let renderer = Renderer::load_with(&dir.0, limits, CivilTime::now_utc).unwrap();
    let go = |api, body: Value| renderer.prompts(api, body.to_string().as_bytes());
    assert!(go(Api::Completions, json!({"prompt": "x".repeat(20)})).is_ok());
    let two = json!({"prompt": ["x".repeat(10), "x".repeat(11)]});
    let head = go(Api::Completions, two.clone()).unwrap();
    assert_eq!(
        (head.level, head.why),
        (Level::Text, Some(Unrouted::Head { bytes: 21, limit: 20 }))
    );
    assert_eq!(head.prompts.len(), 2);
    let mut cut = two;
    cut["truncate_prompt_tokens"] = 5.into();
    assert_eq!(go(Api::Completions, cut), Err(Unrouted::TooLong { bytes: 21, limit: 20 }));
    let ids = go(Api::Completions, json!({"prompt": [1, 2, 3, 4, 5, 6]})).unwrap();
    assert_eq!((ids.prompts, ids.tokens), (vec![vec![1, 2, 3, 4, 5]], 6));
    assert_eq!(ids.why.unwrap().as_str(), "head");
    assert_eq!(
        go(Api::Completions, json!({"prompt": ["a", "b", "c"]})).unwrap_err().as_str(),
        "too_many"
    );
    let message = |n: usize| json!({"messages": [{"role": "user", "content": "x".repeat(n)}]});
    assert!(go(Api::Chat, message(6)).is_ok());
    let head = go(Api::Chat, message(7)).unwrap();
    assert_eq!(head.why, Some(Unrouted::Head { bytes: 21, limit: 20 }));
    assert_eq!(head.texts[0].as_deref().map(str::len), Some(20));
    assert!(head.tokens >= 5, "{}", head.tokens);
}

#[test]
fn messages_reach_the_template_as_in_vllm() {
    let content = |m: Value| chat(&json!({"messages": [m]}));
    let system = |text: &str| content(json!({"role": "system", "content": text})).unwrap();
    assert!(
        system("x-anthropic-billing-header: cch=1\nBe kind")
            .starts_with(r#"[{"role": "system", "content": "Be kind"}]"#)
    );
    assert!(
        system("x-anthropic-billing-header: cch=1")
            .starts_with(r#"[{"role": "system", "content": ""}]"#)
    );
    let user = content(json!({"role": "user", "content": [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "b",
        {"type": "thinking", "thinking": "c"}, {"type": "refusal", "refusal": null}, {"type": "text", "text": ""},
        {"type": "tool_reference", "name": "d"}]}));
    assert!(
        user.as_deref().unwrap().starts_with(r#"[{"role": "user", "content": "a\nb\nc\nd"}]"#),
        "{user:?}"
    );
    let reasoning = content(
        json!({"role": "assistant", "content": "x", "reasoning": null, "reasoning_content": "r"}),
    );
    assert!(
        reasoning
            .unwrap()
            .contains(r#""content": "x", "reasoning": "r", "reasoning_content": "r"}"#)
    );
    let tool = content(
        json!({"role": "tool", "content": "r", "tool_call_id": "1", "name": "f", "task": "t", "x": 1}),
    );
    assert!(tool.unwrap().starts_with(
        r#"[{"role": "tool", "content": "r", "tool_call_id": "1", "name": "f", "task": "t"}]"#
    ));
    for bad in [
        json!({"role": "user", "content": null}),
        json!({"role": "user", "content": ["only strings"]}),
        json!({"role": "user", "content": [{"text": "no type"}]}),
        json!({"role": "user", "content": [{"type": "text", "text": 5}]}),
        json!({"role": "user", "content": [{"type": 5}]}),
        json!({"role": "assistant", "tool_calls": {"a": 1}}),
        json!({"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]}),
        json!({"role": 5, "content": "x"}),
        json!("x"),
    ] {
        let got = content(bad.clone());
        assert!(matches!(got, Err(Unrouted::Body(_))), "{bad} gave {got:?}");
    }
}

#[test]
fn media_is_named() {
    for (part, kind) in [
        (json!({"type": "image_url", "image_url": {"url": "http://x/y.png"}}), "image_url"),
        (
            json!({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}),
            "input_audio",
        ),
        (json!({"image_url": "http://x/y.png"}), "image_url"),
        (json!({"type": "image_url", "image_url": null, "uuid": "u"}), "image_url"),
    ] {
        let body = json!({"messages": [{"role": "system", "content": "Before. "},
            {"role": "user", "content": [{"type": "text", "text": "a"}, part]}]});
        let got = DUMPER.prompts(Api::Chat, body.to_string().as_bytes()).unwrap();
        assert_eq!(got.level, Level::Text);
        assert_eq!(got.why, Some(Unrouted::Multimodal(kind.to_owned())));
        // The placeholder goes before all text of its message, wherever the part is.
        let text = got.texts[0].as_deref().unwrap();
        assert!(text.ends_with(r#"{"role": "user", "content": ""#), "{text}");
        assert!(got.tokens > got.prompts[0].len() as u64);
    }
}

#[test]
fn kwargs_and_fields() {
    let with = |extra: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "x"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        chat(&body)
    };
    assert!(with(json!({})).unwrap().ends_with("|null|null|True"));
    // The body's documents win, its tools do not; None and "auto" count as not given.
    let tool = json!([{"function": {"name": "body", "x": 1}, "defer_loading": true}]);
    let got = with(json!({"tools": tool, "documents": [{"a": "b"}],
        "chat_template_kwargs": {"tools": [{"own": 1}], "documents": [{"c": 1}]}}));
    assert!(got.as_deref().unwrap().ends_with(r#"|[{"own": 1}]|[{"a": "b"}]|True"#), "{got:?}");
    let got =
        with(json!({"tools": tool, "chat_template_kwargs": {"tools": null, "documents": "auto"}}));
    let dumped = r#"|[{"type": "function", "function": {"name": "body", "description": null, "parameters": null, "defer_loading": true}, "defer_loading": true}]|null|True"#;
    assert!(got.as_deref().unwrap().ends_with(dumped), "{got:?}");
    for (extra, reason) in [
        (json!({"chat_template": "x"}), "unsupported_field"),
        (json!({"chat_template_kwargs": {"chat_template": "x"}}), "unsupported_field"),
        (json!({"kv_transfer_params": {"prompt_token_ids": [1]}}), "unsupported_field"),
        (json!({"chat_template_kwargs": {"messages": []}}), "body"),
        (json!({"chat_template_kwargs": {"tools": ["f"]}}), "body"),
        (json!({"chat_template_kwargs": []}), "body"),
        (json!({"reasoning_effort": "huge"}), "body"),
        (json!({"add_generation_prompt": null}), "body"),
        (json!({"add_generation_prompt": "perhaps"}), "body"),
        (json!({"tools": [{"function": {"name": 1}}]}), "body"),
        (json!({"tools": [{"type": "web_search", "function": {"name": "x"}}]}), "body"),
        (json!({"continue_final_message": true}), "body"),
    ] {
        assert_eq!(with(extra.clone()).map_err(|e| e.as_str()), Err(reason), "{extra}");
    }
    assert!(with(json!({"add_generation_prompt": "off"})).unwrap().ends_with("False"));
}

#[test]
fn unsupported_apis_say_so() {
    for path in ["/tokenize", "/detokenize"] {
        let api = Api::from_path(path).unwrap();
        let got = DUMPER.prompts(api, b"{}").unwrap_err();
        assert_eq!(got.as_str(), "unsupported_api");
    }
    let stored = br#"{"input":"x","previous_response_id":"resp_1"}"#;
    assert_eq!(DUMPER.prompts(Api::Responses, stored), Err(Unrouted::StoredResponse));
    assert_eq!(Api::from_path("/v1/chat/completions"), Some(Api::Chat));
    assert_eq!(Api::from_path("/v1/chat/completions/"), None);
    assert!(Api::Messages.is_generation() && !Api::Tokenize.is_generation());
}
