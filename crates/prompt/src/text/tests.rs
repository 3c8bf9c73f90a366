use proptest::prelude::*;

use super::*;

fn text(api: Api, body: &str) -> Option<PromptText> {
    prompt_text(api, body.as_bytes(), 1 << 20)
}

fn chat(messages: &str) -> PromptText {
    text(Api::Chat, &format!(r#"{{"messages":{messages}}}"#)).unwrap()
}

const SYSTEM: &str = r#"{"role":"system","content":"Be brief.\nAlways."}"#;
const ASK: &str = r#"{"role":"user","content":"Why?"}"#;

#[test]
fn a_conversation_that_goes_on_grows_at_its_end() {
    let one = chat(&format!("[{SYSTEM}]"));
    let two = chat(&format!("[{SYSTEM},{ASK}]"));
    let answer = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]}"#;
    let three = chat(&format!("[{SYSTEM},{ASK},{answer}]"));
    assert!(two.text.starts_with(&one.text) && three.text.starts_with(&two.text));
    assert_eq!(three.bytes, three.text.len() as u64);
    // The same words cut otherwise are another conversation.
    let other = r#"{"role":"user","content":"Wh"},{"role":"user","content":"y?"}"#;
    assert!(!chat(&format!("[{SYSTEM},{other}]")).text.starts_with(&two.text));
    let by_another = r#"{"role":"tool","content":"Why?"}"#;
    assert_ne!(chat(&format!("[{SYSTEM},{by_another}]")), two);
    let called = r#"{"role":"assistant","tool_calls":[{"id":"b"}]}"#;
    assert_ne!(chat(&format!("[{SYSTEM},{ASK},{called}]")), three);
}

#[test]
fn spelling_does_not_matter() {
    let plain = chat(&format!("[{SYSTEM},{ASK}]"));
    let spaced = r#"[ { "content" : "Be brief.\u000aAlways." , "role":"system" } ,
        {"role":"user","content":[{"type":"text","text":"W\u0068y?","cache_control":{"a":1}}],"name":null}]"#;
    assert_eq!(chat(spaced), plain);
}

#[test]
fn tools_and_the_like_are_the_setting() {
    let with = |more: &str| {
        text(Api::Chat, &format!(r#"{{"messages":[{ASK}],{more}}}"#)).map(|found| found.setting)
    };
    let tools = with(r#""tools":[{"type":"function","a":1}]"#).unwrap();
    assert_eq!(
        with(r#" "tools" : [ {"type" : "function","a":1 } ] ,"seed":7"#),
        Some(tools.clone())
    );
    let others = [
        r#""tools":[{"type":"function","a":2}]"#,
        r#""functions":[{"type":"function","a":1}]"#,
        r#""documents":[]"#,
        r#""chat_template_kwargs":{"enable_thinking":false}"#,
        r#""tools":null"#,
    ];
    for other in others {
        assert_ne!(with(other), Some(tools.clone()), "{other}");
    }
    assert_eq!(with(r#""tools":null"#).as_deref(), Some(""));
}

#[test]
fn images_are_told_apart_without_their_bytes() {
    let image = |url: &str| {
        chat(&format!(
            r#"[{{"role":"user","content":[{{"type":"text","text":"Look"}},
                {{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]"#
        ))
    };
    let long = format!("data:{}", "a".repeat(100_000));
    assert!(image(&long).bytes < 40);
    assert_eq!(image("a"), image("a"));
    assert_ne!(image("a"), image("b"));
}

#[test]
fn every_shape_of_request_has_its_text() {
    let found = |api, body: &str| {
        text(api, body).map(|found| String::from_utf8_lossy(&found.text).into_owned())
    };
    assert_eq!(found(Api::Completions, r#"{"prompt":"a\u0062"}"#).as_deref(), Some("ab"));
    assert_eq!(found(Api::Completions, r#"{"prompt":["a","b"]}"#).as_deref(), Some("a"));
    assert_eq!(found(Api::Embeddings, r#"{"input":"x"}"#).as_deref(), Some("x"));
    let said = r#"{"instructions":"Be brief.","input":[{"role":"user","content":[{"type":"input_text","text":"Why?"}]}]}"#;
    let plain = r#"{"instructions":"Be brief.","input":"Why?"}"#;
    assert!(found(Api::Responses, plain).unwrap().contains("Why?"));
    assert_eq!(found(Api::Responses, said), found(Api::Responses, plain));
    let asked = r#"{"system":[{"type":"text","text":"Be brief."}],"messages":[{"role":"user","content":"Why?"}]}"#;
    assert_eq!(found(Api::Messages, asked), found(Api::Responses, plain));
    for (api, body) in [
        (Api::Completions, r#"{"prompt":[1,2]}"#),
        (Api::Completions, r#"{"prompt":""}"#),
        (Api::Completions, r#"{"prompt":[]}"#),
        (Api::Completions, "{}"),
        (Api::Completions, "["),
        (Api::Chat, r#"{"messages":["a"]}"#),
        (Api::Chat, r#"{"messages":[]}"#),
        (Api::Rerank, r#"{"query":"a","documents":["b"]}"#),
        (Api::Tokenize, r#"{"prompt":"a"}"#),
    ] {
        assert_eq!(found(api, body), None, "{body}");
    }
}

#[test]
fn of_a_long_text_the_beginning_is_kept() {
    let body = format!(r#"{{"prompt":"{}"}}"#, "ab".repeat(500));
    let found = prompt_text(Api::Completions, body.as_bytes(), 100).unwrap();
    assert_eq!((found.text.len(), found.bytes), (100, 1_000));
}

proptest! {
    #[test]
    fn whatever_the_body_it_is_bounded_and_nothing_breaks(
        messages in "[\\[\\]{}\",:a-z0-9 \\\\]{0,60}",
        limit in 0_usize..64,
    ) {
        for api in [Api::Completions, Api::Chat, Api::Messages, Api::Responses, Api::Embeddings] {
            for body in [
                format!(r#"{{"messages":{messages},"input":{messages},"prompt":{messages}}}"#),
                format!(r#"{{"messages":[{{"role":{messages},"content":[{messages}]}}]}}"#),
                messages.clone(),
            ] {
                if let Some(found) = prompt_text(api, body.as_bytes(), limit) {
                    prop_assert!(found.text.len() <= limit && found.bytes > 0);
                }
            }
        }
    }
}
