//! A recorded request: what was asked, what the engine reported, and whether the two can be
//! compared with a prediction.

use kvasir_prompt::{Api, Envelope};
use serde_json::Value;

/// One recorded request.
#[derive(Debug)]
pub(crate) struct Request {
    /// The shape of its body; `None` for paths whose bodies hold no prompt.
    pub(crate) api: Option<Api>,
    /// It asked the engine to forget its prefix cache, and was not refused.
    pub(crate) resets_cache: bool,
    /// The data-parallel rank it asked for.
    pub(crate) rank: Option<u32>,
    pub(crate) asked: Asked,
    pub(crate) comparable: Result<Comparable, &'static str>,
    /// Whether the engine told a number of cached tokens, not null.
    pub(crate) told: bool,
}

/// What of a body besides tokens decides about blocks.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) model: Option<String>,
    pub(crate) salt: Option<String>,
    pub(crate) prompt_logprobs: bool,
    pub(crate) multimodal: bool,
}

/// A request of one prompt whose tokens and cached tokens are known.
#[derive(Debug)]
pub(crate) struct Comparable {
    pub(crate) tokens: Vec<u32>,
    /// `None` for null.
    pub(crate) reported: Option<u64>,
}

impl Request {
    pub(super) fn new(
        path: Option<&str>,
        headers: Option<&Value>,
        body: &str,
        status: u16,
        response: Option<Value>,
        tokenize: Option<&Value>,
    ) -> Self {
        let value: Value = serde_json::from_str(body).unwrap_or_default();
        // Some recordings keep the response as text, and the path is left out where it is plain.
        let response = match response {
            Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or_default(),
            other => other.unwrap_or_default(),
        };
        let path = path.map(|path| path.split('?').next().unwrap_or(path));
        let api = match path {
            Some(path) => Api::from_path(path),
            None if value.get("messages").is_some() => Some(Api::Chat),
            None => value.get("prompt").map(|_| Api::Completions),
        };
        let refused = response.get("success") == Some(&Value::Bool(false));
        let resets_cache = path == Some("/reset_prefix_cache") && status == 200 && !refused;
        let asked = Asked::read(body, &value);
        let comparable = match api {
            Some(Api::Completions | Api::Chat) if asked.multimodal => Err("multimodal"),
            Some(Api::Completions | Api::Chat) if status == 200 => {
                Comparable::read(&value, &response, tokenize)
            }
            Some(Api::Completions | Api::Chat) => Err("failed"),
            Some(_) | None => Err("unsupported_api"),
        };
        let told = comparable.as_ref().is_ok_and(|found| found.reported.is_some())
            || cached_tokens(&response).is_some();
        Self { api, resets_cache, rank: rank(headers), asked, comparable, told }
    }
}

impl Asked {
    fn read(body: &str, value: &Value) -> Self {
        let envelope = Envelope::parse(body.as_bytes()).unwrap_or_default();
        Self {
            model: envelope.model,
            salt: envelope.cache_salt,
            prompt_logprobs: envelope.prompt_logprobs,
            multimodal: is_multimodal(value),
        }
    }
}

impl Comparable {
    fn read(
        body: &Value,
        response: &Value,
        tokenize: Option<&Value>,
    ) -> Result<Self, &'static str> {
        if !response["usage"].is_object() {
            return Err("no_usage");
        }
        if prompts(body) != 1 {
            return Err("several_prompts");
        }
        // The engine's own word first: it is the prompt that was computed.
        let tokens = ids(&response["prompt_token_ids"])
            .or_else(|| ids(&response["choices"][0]["prompt_token_ids"]))
            .or_else(|| ids(&tokenize?["response"]["tokens"]))
            .or_else(|| ids(&body["prompt"]))
            .or_else(|| ids(&body["prompt"][0]))
            .ok_or("no_token_ids")?;
        let counted = response["usage"]["prompt_tokens"].as_u64();
        if counted.is_some_and(|counted| counted != tokens.len() as u64) {
            return Err("token_ids_differ");
        }
        Ok(Self { tokens, reported: cached_tokens(response) })
    }
}

fn cached_tokens(response: &Value) -> Option<u64> {
    response["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64()
}

/// Prompts in one body; a chat is one.
fn prompts(body: &Value) -> usize {
    match &body["prompt"] {
        Value::Array(items) if !items.first().is_some_and(Value::is_number) => items.len(),
        _ => 1,
    }
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    let items = value.as_array().filter(|items| !items.is_empty())?;
    items.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

/// Whether blocks of the prompt differ by more than tokens, an adapter and a salt.
fn is_multimodal(body: &Value) -> bool {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let parts = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let is_text = |part: &Value| match part["type"].as_str() {
        Some(kind) => {
            matches!(kind, "text" | "input_text" | "output_text" | "refusal" | "thinking")
        }
        None => part.is_string() || part.get("text").is_some(),
    };
    parts.into_iter().any(|part| !is_text(part)) || !body["prompt_embeds"].is_null()
}

fn rank(headers: Option<&Value>) -> Option<u32> {
    let headers = headers?.as_object()?;
    let named = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-data-parallel-rank"));
    let value = named?.1;
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).trim().parse().ok()
}
