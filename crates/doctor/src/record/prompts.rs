//! The requests a recording is asked to send.

use std::io::{BufRead, Read as _};

use http::{HeaderMap, HeaderName, HeaderValue};
use kvasir_prompt::Api;
use serde_json::{Map, Value, json};

use super::PromptError;

const MAX_LINE: u64 = 16 << 20;
const MAX_PROMPTS: usize = 10_000;

/// A request to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// What the step is called in the recording.
    pub step: String,
    /// The path, `/v1/completions` or `/v1/chat/completions`.
    pub path: String,
    /// Headers of this request alone, such as `x-data-parallel-rank`.
    pub headers: HeaderMap,
    /// The body; `model` is filled in where it is missing.
    pub body: Map<String, Value>,
}

/// Reads prompts, one JSON object a line: a request's body, or `{"body": .., "path": .., "step": ..,
/// "headers": {..}}`, of which only `body` must be there.
///
/// # Errors
/// The first line that is no such object, asks for a stream, or is one too many.
pub fn read_prompts(mut input: impl BufRead) -> Result<Vec<Prompt>, PromptError> {
    let mut prompts = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        let fault = |why: String| PromptError { line, why };
        bytes.clear();
        let taken = input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut bytes);
        let taken = taken.map_err(|e| fault(e.to_string()))?;
        if taken == 0 {
            break;
        }
        if taken as u64 > MAX_LINE || prompts.len() == MAX_PROMPTS {
            return Err(fault(format!(
                "too much: at most {MAX_PROMPTS} lines of {} MiB",
                MAX_LINE >> 20
            )));
        }
        let text = bytes.trim_ascii();
        if !text.is_empty() {
            prompts.push(Prompt::parse(text, prompts.len()).map_err(fault)?);
        }
    }
    Ok(prompts)
}

impl Prompt {
    fn parse(text: &[u8], place: usize) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let Value::Object(mut object) = value else {
            return Err("not a JSON object".to_owned());
        };
        let (body, rest) = match object.remove("body") {
            Some(Value::Object(body)) => (body, object),
            Some(_) => return Err("`body` is not an object".to_owned()),
            None => (object, Map::new()),
        };
        if body.get("stream").is_some_and(|stream| stream != &Value::Bool(false)) {
            return Err("`stream`: streamed answers are not recorded; leave it out".to_owned());
        }
        let text = |key: &str| match rest.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{key}` is not a string")),
        };
        let of_body = if body.contains_key("messages") { CHAT } else { COMPLETIONS };
        let path = text("path")?.unwrap_or_else(|| of_body.to_owned());
        if !matches!(Api::from_path(&path), Some(Api::Completions | Api::Chat)) {
            return Err(format!("`path`: `{path}` is neither {COMPLETIONS} nor {CHAT}"));
        }
        let step = text("step")?.unwrap_or_else(|| format!("prompt_{}", place + 1));
        Ok(Self { step, path, headers: headers(rest.get("headers"))?, body })
    }
}

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn headers(value: Option<&Value>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    match value {
        None | Some(Value::Null) => {}
        Some(Value::Object(pairs)) => {
            for (name, value) in pairs {
                let wrong = || format!("`headers`: `{name}` is no header");
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let value: HeaderValue = value.parse().map_err(|_| wrong())?;
                headers.append(name.parse::<HeaderName>().map_err(|_| wrong())?, value);
            }
        }
        Some(_) => return Err("`headers` is not an object".to_owned()),
    }
    Ok(headers)
}

/// A few short requests of one token each that show what a cache does: new, repeated, with a common
/// beginning, salted, as a chat. `nonce` makes them new to the engine.
#[must_use]
pub fn probe_prompts(nonce: u64) -> Vec<Prompt> {
    // Words, so that tokenizers make many tokens of them.
    let text = |part: u64, words: u64| -> String {
        let word = |at: u64| WORDS[(at * (2 * part + 7) % WORDS.len() as u64) as usize];
        let start = format!("Recording {nonce:016x}, part {part}:");
        (0..words).fold(start, |text, at| text + " " + word(at + at / 16))
    };
    let long = text(1, 400);
    let completion = |step: &str, prompt: &str, salt: Option<&str>| {
        let mut body = json!({"prompt": prompt});
        if let Some(salt) = salt {
            body["cache_salt"] = salt.into();
        }
        prompt_of(step, COMPLETIONS, body)
    };
    let chat = |step: &str, messages: Value| prompt_of(step, CHAT, json!({"messages": messages}));
    let turn = |role: &str, text: String| json!({"role": role, "content": text});
    let first = turn("user", text(2, 200));
    let second = json!([first, turn("assistant", "Yes.".to_owned()), turn("user", text(3, 60))]);
    vec![
        completion("short_prompt", &format!("{nonce:x}"), None),
        completion("cold", &long, None),
        completion("warm_same", &long, None),
        completion("warm_shared_prefix", &format!("{long} {}", text(4, 100)), None),
        completion("cache_salt", &long, Some("kvasir-recording")),
        chat("chat_cold", json!([first])),
        chat("chat_second_turn", second),
    ]
}

fn prompt_of(step: &str, path: &str, fields: Value) -> Prompt {
    let mut body = Map::new();
    if let Value::Object(fields) = fields {
        body.extend(fields);
    }
    let common = json!({"max_tokens": 1, "temperature": 0, "return_token_ids": true});
    if let Value::Object(common) = common {
        body.extend(common);
    }
    Prompt { step: step.to_owned(), path: path.to_owned(), headers: HeaderMap::new(), body }
}

const WORDS: [&str; 16] = [
    "river", "stone", "lantern", "of", "the", "quiet", "harbour", "under", "seven", "bridges",
    "and", "a", "letter", "from", "winter", "roads",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bodies_or_say_more() {
        let text = "{\"prompt\":\"a\"}\n\n{\"body\":{\"messages\":[]},\"step\":\"x\",\
                    \"headers\":{\"X-data-parallel-rank\":1}}\n";
        let prompts = read_prompts(text.as_bytes()).unwrap();
        assert_eq!(prompts.len(), 2);
        assert_eq!((&*prompts[0].step, &*prompts[0].path), ("prompt_1", COMPLETIONS));
        assert_eq!((&*prompts[1].step, &*prompts[1].path), ("x", CHAT));
        assert_eq!(prompts[1].headers["x-data-parallel-rank"], "1");
        assert_eq!(prompts[0].body["prompt"], "a");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, part) in [
            ("{}\n[1]", 2, "not a JSON object"),
            ("{", 1, "EOF"),
            ("\n\n{\"stream\":true}", 3, "streamed answers"),
            ("{\"body\":1}", 1, "`body` is not an object"),
            ("{\"body\":{},\"path\":\"/metrics\"}", 1, "`/metrics` is neither"),
            ("{\"body\":{},\"step\":1}", 1, "`step` is not a string"),
            ("{\"body\":{},\"headers\":{\"a b\":\"c\"}}", 1, "`a b` is no header"),
            ("{\"body\":{},\"headers\":[]}", 1, "`headers` is not an object"),
        ] {
            let error = read_prompts(text.as_bytes()).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.why.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn probes_are_new_each_time() {
        let [a, b] = [probe_prompts(1), probe_prompts(2)];
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(&b).all(|(a, b)| a.step == b.step && a.body != b.body));
        assert_eq!(a[1].body, a[2].body, "repeated");
    }
}
