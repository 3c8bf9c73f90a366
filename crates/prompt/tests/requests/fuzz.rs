//! Random bodies: an answer or a reason, never a panic.

use std::fs;
use std::sync::LazyLock;

use kvasir_prompt::{Api, CivilTime, Limits, Renderer};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::dir::{Dir, testdata};
use crate::{CONFIG, DUMPER};

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            Just("user"),
            Just("assistant"),
            Just("system"),
            Just("developer"),
            Just("tool"),
            Just("text"),
            Just("function"),
            Just("image_url"),
            Just("auto"),
            Just("high"),
            Just("{\"a\":1}"),
            Just("<s>"),
        ]
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ]
}

const KEYS: [&str; 36] = [
    "messages",
    "role",
    "content",
    "type",
    "text",
    "tool_calls",
    "function",
    "arguments",
    "name",
    "id",
    "tools",
    "parameters",
    "documents",
    "chat_template_kwargs",
    "prompt",
    "truncate_prompt_tokens",
    "truncation_side",
    "add_generation_prompt",
    "continue_final_message",
    "reasoning_effort",
    "add_special_tokens",
    "reasoning",
    "reasoning_content",
    "uuid",
    "refusal",
    "thinking",
    "tool_call_id",
    "description",
    "strict",
    "echo",
    "kv_transfer_params",
    "model",
    "items",
    "keys",
    "properties",
    "required",
];

fn any_value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 48, 5, |inner| {
        let key = proptest::sample::select(KEYS.to_vec());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5).prop_map(|kv| Value::Object(
                kv.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
            )),
        ]
    })
}

/// A conversation that often is valid, so that templates are reached.
fn conversation() -> impl Strategy<Value = Value> {
    let role = proptest::sample::select(vec![
        "user",
        "assistant",
        "system",
        "developer",
        "tool",
        "critic",
    ]);
    let text = prop_oneof![
        ".{0,12}".prop_map(Value::from),
        prop::collection::vec(".{0,6}".prop_map(|t| json!({"type": "text", "text": t})), 0..3)
            .prop_map(Value::from),
        leaf(),
    ];
    let call = any_value().prop_map(|a| json!({"id": "c12345678", "type": "function", "function": {"name": "f", "arguments": a.to_string()}}));
    let message = (role, text, prop::collection::vec(call, 0..2), prop::option::of(any_value()))
        .prop_map(|(role, content, calls, extra)| {
            let mut m = json!({"role": role, "content": content});
            if role == "assistant" {
                m["tool_calls"] = calls.into();
            }
            if let Some(extra) = extra {
                m["reasoning"] = extra;
            }
            m
        });
    (prop::collection::vec(message, 0..4), any_value(), any_value(), any::<bool>()).prop_map(
        |(messages, parameters, kwargs, go_on)| {
            json!({"messages": messages, "chat_template_kwargs": {"x": kwargs}, "continue_final_message": go_on,
                "add_generation_prompt": !go_on, "tools": [{"function": {"name": "f", "parameters": {"properties": parameters}}}]})
        },
    )
}

/// Each model as it is used, and tokenized whole by the library. The clock stands: one of the
/// templates prints seconds.
static EVERY: LazyLock<Vec<[Renderer; 2]>> = LazyLock::new(|| {
    let plain = Limits { cache_bytes: 0, library_only: true, ..Limits::default() };
    let now = CivilTime::now_utc();
    ["chatml", "command-r", "features-a", "features-b", "glm4", "granite", "mistral-v3"]
        .iter()
        .map(|model| {
            let path = testdata().join(format!("chat-models/{model}/chat_template.jinja"));
            let template = fs::read_to_string(path).unwrap();
            let dir =
                Dir::new(&[("chat_template.jinja", &template), ("tokenizer_config.json", CONFIG)]);
            let load = |limits| Renderer::load_with(&dir.0, limits, move || now).unwrap();
            [load(Limits::default()), load(plain)]
        })
        .collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn never_panics_on_any_object(body in any_value()) {
        for api in [Api::Completions, Api::Chat, Api::Responses, Api::Messages, Api::Embeddings, Api::Score] {
            let _ = DUMPER.prompts(api, body.to_string().as_bytes());
        }
    }

    #[test]
    fn never_panics_on_conversations(body in conversation()) {
        let body = body.to_string();
        for [renderer, plain] in EVERY.iter() {
            let first = renderer.prompts(Api::Chat, body.as_bytes());
            prop_assert_eq!(&first, &renderer.prompts(Api::Chat, body.as_bytes()));
            prop_assert_eq!(&first, &plain.prompts(Api::Chat, body.as_bytes()));
        }
    }

    #[test]
    fn never_panics_on_bytes(body in prop::collection::vec(any::<u8>(), 0..80), cut in 0..60_usize) {
        let _ = DUMPER.prompts(Api::Chat, &body);
        let whole = br#"{"messages":[{"role":"user","content":"\ud83d\ude00 x"}],"n":1}"#;
        let _ = DUMPER.prompts(Api::Chat, &whole[..cut]);
    }
}
