//! What the files of a model directory mean.

use std::fs;
use std::path::Path;

use kvasir_prompt::{Api, LoadError, Prompts, Renderer, Unrouted};

use crate::dir::{Dir, testdata};
use crate::{CONFIG, DUMP, DUMPER};

#[test]
fn template_precedence() {
    let hello = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    let tools =
        br#"{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}]}"#;
    let text = |files: &[(&str, &str)], body: &[u8]| {
        Dir::new(files).load().prompts(Api::Chat, body).map(|p| p.texts[0].clone().unwrap())
    };
    let config = r#"{"chat_template":"config"}"#;
    let named = r#"{"chat_template":[{"name":"default","template":"default"},{"name":"tool_use","template":"tools"}]}"#;
    let jinja = ("chat_template.jinja", "file");
    let old = ("chat_template.json", r#"{"chat_template":"processor"}"#);
    assert_eq!(text(&[("tokenizer_config.json", config)], hello).unwrap(), "config");
    assert_eq!(text(&[("tokenizer_config.json", config), jinja], hello).unwrap(), "file");
    assert_eq!(text(&[("tokenizer_config.json", named)], hello).unwrap(), "default");
    assert_eq!(text(&[("tokenizer_config.json", named)], tools).unwrap(), "tools");
    assert_eq!(text(&[("tokenizer_config.json", named), jinja], tools).unwrap(), "file");
    let extra = ("additional_chat_templates/tool_use.jinja", "extra");
    assert_eq!(text(&[jinja, extra], tools).unwrap(), "extra");
    assert_eq!(text(&[jinja, extra], hello).unwrap(), "file");
    assert_eq!(text(&[("tokenizer_config.json", config), old], hello).unwrap(), "processor");
    assert_eq!(text(&[("tokenizer_config.json", config), old], tools).unwrap(), "config");
    assert_eq!(text(&[jinja, old], hello).unwrap(), "file");
    assert_eq!(text(&[], hello), Err(Unrouted::NoTemplate));
}

#[test]
fn template_failures_are_a_state() {
    let hello = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    let broken = Dir::new(&[("chat_template.jinja", "ok\n{% for %}")]).load();
    assert!(broken.template_error().unwrap().contains("line 2"), "{:?}", broken.template_error());
    assert_eq!(broken.prompts(Api::Chat, hello).unwrap_err().as_str(), "template_error");
    assert_eq!(broken.chat_state().unwrap_err().as_str(), "template_error");
    assert!(broken.prompts(Api::Completions, br#"{"prompt":"x"}"#).is_ok());
    let none = Dir::new(&[]).load();
    assert_eq!((none.template_error(), none.chat_state()), (None, Err(Unrouted::NoTemplate)));
    assert!(none.prompts(Api::Completions, br#"{"prompt":"x"}"#).is_ok());
    assert_eq!(DUMPER.chat_state(), Ok(()));
}

#[test]
fn models_the_engine_renders_itself() {
    let template = ("chat_template.jinja", DUMP);
    let hello = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    let reasons = |files: &[(&str, &str)]| {
        let renderer = Dir::new(files).load();
        let reason = |r: Result<Prompts, Unrouted>| match r {
            Ok(prompts) => prompts.why.map_or("ok", |why| why.as_str()),
            Err(why) => why.as_str(),
        };
        (
            reason(renderer.prompts(Api::Chat, hello)),
            reason(renderer.prompts(Api::Completions, br#"{"prompt":"x"}"#)),
        )
    };
    let config = |text| ("config.json", text);
    // Harmony needs tokens this vocabulary does not have.
    assert_eq!(reasons(&[template, config(r#"{"model_type":"gpt_oss"}"#)]), ("tokenizer", "ok"));
    let marks = ("chat_template.jinja", "<|start|><|channel|><|message|><|return|>");
    assert_eq!(reasons(&[marks]), ("tokenizer", "ok"));
    assert_eq!(reasons(&[marks, config(r#"{"model_type":"llama"}"#)]), ("ok", "ok"));
    assert_eq!(
        reasons(&[template, config(r#"{"model_type":"deepseek_v4"}"#)]),
        ("engine_rendered", "ok")
    );
    let v32 = config(r#"{"model_type":"deepseek_v3","architectures":["DeepseekV32ForCausalLM"]}"#);
    assert_eq!(reasons(&[template, v32]), ("engine_rendered", "ok"));
    let mistral = [template, ("tekken.json", "{}"), ("consolidated.safetensors", "")];
    assert_eq!(reasons(&mistral), ("engine_rendered", "engine_rendered"));
    assert_eq!(reasons(&mistral[..2]), ("ok", "ok"));
}

#[test]
fn special_tokens_by_precedence() {
    let show = (
        "chat_template.jinja",
        "{{ bos_token }}|{{ eos_token }}|{{ image_token }}|{{ cls_token is defined }}",
    );
    let hello = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    let text = |files: &[(&str, &str)]| {
        let prompts = Dir::new(files).load().prompts(Api::Chat, hello).unwrap();
        prompts.texts[0].clone().unwrap()
    };
    let config = r#"{"bos_token":"<a>","eos_token":{"__type":"AddedToken","content":"</a>"},"image_token":"<i>","cls_token":null}"#;
    assert_eq!(text(&[show, ("tokenizer_config.json", config)]), "<a>|</a>|<i>|False");
    let legacy = ("special_tokens_map.json", r#"{"bos_token":{"content":"<b>"}}"#);
    assert_eq!(text(&[show, ("tokenizer_config.json", config), legacy]), "<b>|</a>|<i>|False");
    let listed = config.replacen(
        '{',
        r#"{"added_tokens_decoder":{"5000":{"content":"<a>","special":true}},"#,
        1,
    );
    assert_eq!(text(&[show, ("tokenizer_config.json", &listed), legacy]), "<a>|</a>|<i>|False");
    // A token only the configuration has becomes one id.
    let dir = Dir::new(&[("tokenizer_config.json", &listed)]);
    let ids = |r: &Renderer| {
        r.prompts(Api::Completions, br#"{"prompt":"<a>","add_special_tokens":false}"#)
            .unwrap()
            .prompts
    };
    assert_eq!(ids(&dir.load())[0].len(), 1);
    assert!(ids(&Dir::new(&[]).load())[0].len() > 1);
}

#[test]
fn directories_that_cannot_be_loaded() {
    let missing = Renderer::load(Path::new("/no/such/dir")).unwrap_err();
    assert_eq!(missing.to_string(), "/no/such/dir: no such directory");
    for (name, text, part) in [
        ("tokenizer.json", "{}", "tokenizer.json"),
        ("tokenizer.json", "not json", "tokenizer.json"),
        ("tokenizer_config.json", "{\n \"a\": }", "line 2, column 7"),
        ("config.json", "[]", "not a JSON object"),
    ] {
        let dir = Dir::new(&[(name, text)]);
        let error = Renderer::load(&dir.0).unwrap_err();
        assert!(matches!(error, LoadError::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn the_served_test_model() {
    let renderer = Renderer::load(&testdata().join("models/tiny")).unwrap();
    let body = br#"{"messages":[{"role":"user","content":"Hi"}]}"#;
    let got = renderer.prompts(Api::Chat, body).unwrap();
    assert_eq!(
        got.texts[0].as_deref(),
        Some("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    );
    assert_eq!(got.prompts[0][0], 1);
}

#[test]
fn renderers_are_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&*DUMPER);
}

#[test]
fn deep_values_neither_crash_nor_hang() {
    for depth in [50, 190, 400, 50_000] {
        let deep = format!("{}1{}", "{\"properties\":".repeat(depth), "}".repeat(depth));
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"x"}}],"tools":[{{"function":{{"name":"f","parameters":{deep}}}}}]}}"#
        );
        for model in ["command-r", "features-a", "features-b", "granite", "glm4"] {
            let template = fs::read_to_string(
                testdata().join(format!("chat-models/{model}/chat_template.jinja")),
            )
            .unwrap();
            let renderer =
                Dir::new(&[("chat_template.jinja", &template), ("tokenizer_config.json", CONFIG)])
                    .load();
            let got = renderer.prompts(Api::Chat, body.as_bytes());
            if depth > 200 {
                assert!(
                    matches!(&got, Err(Unrouted::Body(m)) if m.contains("nested too deeply")),
                    "{got:?}"
                );
            } else if model == "granite" {
                assert!(got.is_ok(), "{got:?}");
            }
        }
    }
}

#[test]
fn rebuilt_tokenizers_are_named() {
    let caveat = |files: &[(&str, &str)]| Dir::new(files).load().caveat().map(str::to_owned);
    let llama = ("tokenizer_config.json", r#"{"tokenizer_class":"LlamaTokenizerFast"}"#);
    assert!(caveat(&[llama]).unwrap().contains("LlamaTokenizerFast"));
    assert_eq!(caveat(&[llama, ("config.json", r#"{"model_type":"deepseek_v3"}"#)]), None);
    let plain = ("tokenizer_config.json", r#"{"tokenizer_class":"PreTrainedTokenizerFast"}"#);
    assert_eq!((caveat(&[plain]), caveat(&[])), (None, None));
}

#[test]
fn changed_files_make_it_stale() {
    let dir = Dir::new(&[("chat_template.jinja", "a")]);
    let renderer = dir.load();
    assert!(!renderer.is_stale());
    dir.write("notes.txt", "not read by anyone");
    assert!(!renderer.is_stale());
    for (name, text) in [
        ("chat_template.jinja", "longer"),
        ("config.json", "{}"),
        ("additional_chat_templates/tool_use.jinja", "x"),
    ] {
        let renderer = dir.load();
        assert!(!renderer.is_stale());
        dir.write(name, text);
        assert!(renderer.is_stale(), "{name}");
    }
    let renderer = dir.load();
    std::fs::remove_file(dir.0.join("config.json")).unwrap();
    assert!(renderer.is_stale());
}
