//! OpenAI-shaped answers, field for field as vLLM 0.32 gives them.

use super::cache::Root;
use super::config::{EngineConfig, Model};
use http::StatusCode;
use serde_json::{Value, json};

/// The two generation interfaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Api {
    Chat,
    Completions,
}

impl Api {
    pub(super) fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            _ => None,
        }
    }
}

/// What the engine understood of a generation request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) root: Root,
    pub(super) stream: bool,
    pub(super) stream_usage: bool,
    pub(super) completion_tokens: usize,
    /// Token ids of the prompt, where they are known.
    pub(super) ids: Option<Vec<u32>>,
    pub(super) prompt_tokens: usize,
}

/// An error in vLLM's form.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, kind: &str, param: Option<&str>, message: &str) -> Self {
        let code = status.as_u16();
        let error = json!({"message": message, "type": kind, "param": param, "code": code});
        Self { status, body: json!({ "error": error }) }
    }
}

/// Reads a generation request.
pub(super) fn understand(config: &EngineConfig, body: &[u8]) -> Result<Asked, Refusal> {
    let bad =
        |message: &str| Refusal::new(StatusCode::BAD_REQUEST, "BadRequestError", None, message);
    let body: Value = serde_json::from_slice(body).map_err(|e| bad(&format!("bad JSON: {e}")))?;
    let model = find_model(config, body.get("model").and_then(Value::as_str))?;
    let ids = match &config.tokenize {
        Some(tokenize) => tokenize(&body),
        None => prompt_ids(&body),
    };
    let prompt_tokens = ids.as_ref().map_or_else(|| words(&body), Vec::len);
    if prompt_tokens == 0 {
        return Err(bad("the prompt is empty"));
    }
    let number = |key: &str| body.get(key).and_then(Value::as_u64);
    let limit = number("max_completion_tokens").or_else(|| number("max_tokens"));
    let stream_usage = body.pointer("/stream_options/include_usage").and_then(Value::as_bool);
    Ok(Asked {
        model: model.id.clone(),
        root: Root {
            lora_name: model.parent.as_ref().map(|_| model.id.clone()),
            cache_salt: body.get("cache_salt").and_then(Value::as_str).map(str::to_owned),
        },
        stream: body.get("stream").and_then(Value::as_bool).unwrap_or_default(),
        stream_usage: stream_usage.unwrap_or_default(),
        // The cap keeps a careless max_tokens from flooding a test.
        completion_tokens: limit
            .map_or(config.completion_tokens, |n| usize::try_from(n).unwrap_or(usize::MAX))
            .clamp(1, 4096),
        ids,
        prompt_tokens,
    })
}

fn find_model<'a>(config: &'a EngineConfig, name: Option<&str>) -> Result<&'a Model, Refusal> {
    let found = match name {
        Some(name) => config.models.iter().find(|m| m.id == name),
        None => config.models.first(),
    };
    found.ok_or_else(|| {
        let message = format!("The model `{}` does not exist.", name.unwrap_or_default());
        Refusal::new(StatusCode::NOT_FOUND, "NotFoundError", Some("model"), &message)
    })
}

/// A `prompt` that is an array of token ids.
fn prompt_ids(body: &Value) -> Option<Vec<u32>> {
    let ids = body.get("prompt")?.as_array()?;
    ids.iter().map(|id| id.as_u64().and_then(|n| u32::try_from(n).ok())).collect()
}

/// Words of a text prompt or of all message contents: a stand-in for a tokenizer.
fn words(body: &Value) -> usize {
    let count = |text: &Value| text.as_str().map_or(0, |s| s.split_whitespace().count());
    let prompt = body.get("prompt").map_or(0, count);
    let messages = body.get("messages").and_then(Value::as_array);
    let contents = messages.into_iter().flatten().filter_map(|m| m.get("content"));
    let parts = |c: &Value| match c.as_array() {
        Some(parts) => parts.iter().filter_map(|p| p.get("text")).map(count).sum(),
        None => count(c),
    };
    prompt + contents.map(parts).sum::<usize>()
}

/// Makes the bodies of one answer.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) api: Api,
    pub(super) id: &'a str,
    /// Unix seconds.
    pub(super) created: u64,
    pub(super) asked: &'a Asked,
    /// `None` when the engine does not say.
    pub(super) cached_tokens: Option<usize>,
    pub(super) completion_tokens: usize,
}

impl Answer<'_> {
    /// The body of an answer that is not streamed.
    pub(super) fn whole(&self) -> Value {
        let text: String = (0..self.completion_tokens).map(token_text).collect();
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": "length",
            "stop_reason": null, "token_ids": null});
        match self.api {
            Api::Chat => choice["message"] = json!({"role": "assistant", "content": text}),
            Api::Completions => choice["text"] = json!(text),
        }
        let mut body = self.envelope("chat.completion", &json!([choice]));
        body["usage"] = self.usage();
        body["kv_transfer_params"] = Value::Null;
        body
    }

    /// The events of a streamed answer, without `[DONE]`. The first carries the
    /// role in a chat; each token has one of its own.
    pub(super) fn events(&self) -> Vec<String> {
        let mut events = Vec::new();
        if self.api == Api::Chat {
            let delta = json!({"role": "assistant", "content": ""});
            events.push(self.chunk(&json!({"delta": delta}), None));
        }
        for i in 0..self.completion_tokens {
            let text = token_text(i);
            let choice = match self.api {
                Api::Chat => json!({"delta": {"content": text}}),
                Api::Completions => json!({"text": text}),
            };
            let last = i + 1 == self.completion_tokens;
            events.push(self.chunk(&choice, last.then_some("length")));
        }
        if self.asked.stream_usage {
            let mut body = self.envelope("chat.completion.chunk", &json!([]));
            body["usage"] = self.usage();
            events.push(body.to_string());
        }
        events
    }

    fn chunk(&self, choice: &Value, finish: Option<&str>) -> String {
        let mut choice = choice.clone();
        choice["index"] = json!(0);
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = json!(finish);
        self.envelope("chat.completion.chunk", &json!([choice])).to_string()
    }

    fn envelope(&self, chat_object: &str, choices: &Value) -> Value {
        let (prefix, object) = match self.api {
            Api::Chat => ("chatcmpl", chat_object),
            Api::Completions => ("cmpl", "text_completion"),
        };
        json!({"id": format!("{prefix}-{}", self.id), "object": object, "created": self.created,
            "model": self.asked.model, "choices": choices})
    }

    fn usage(&self) -> Value {
        let (prompt, completion) = (self.asked.prompt_tokens, self.completion_tokens);
        let details = self.cached_tokens.map(|n| json!({ "cached_tokens": n }));
        json!({"prompt_tokens": prompt, "total_tokens": prompt + completion,
            "completion_tokens": completion, "prompt_tokens_details": details})
    }
}

/// The text of the nth generated token.
fn token_text(n: usize) -> String {
    format!(" t{n}")
}
