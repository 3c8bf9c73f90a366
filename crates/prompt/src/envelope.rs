//! The few top-level fields of a request body a gateway acts on.

#[cfg(test)]
mod tests;

use crate::json::{self, Json, JsonError};
use crate::names::{Name, Names};

/// What a gateway needs to know of a body before it chooses an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// `model`, or `None` when the field is missing or null.
    pub model: Option<String>,
    /// `stream` is true.
    pub stream: bool,
    /// `max_completion_tokens`, else `max_tokens` (tokens).
    pub max_tokens: Option<u64>,
    /// `n`, the number of answers asked for; 1 when absent.
    pub n: u32,
    /// `cache_salt`; the empty string counts as absent, as in the engine's block hashes.
    pub cache_salt: Option<String>,
    /// SGLang's `extra_key` or `lora_path` is given and not null: they separate cached prefixes in a
    /// way that neither the model's name nor the tokens tell (SGLang 0.5).
    pub engine_extras: bool,
    /// Log-probabilities of the prompt are asked for (`prompt_logprobs`, or `echo` where that
    /// implies them): the engine then hits less of its cache than it holds.
    pub prompt_logprobs: bool,
    /// `previous_response_id`: the conversation goes on from one an engine has stored.
    pub previous_response_id: Option<String>,
    /// Who asks, and what belongs together, in the client's words.
    pub names: Names,
    /// `tools` (or `functions`) are given, and not an empty list.
    pub tools: bool,
}

impl Default for Envelope {
    fn default() -> Self {
        Self {
            model: None,
            stream: false,
            max_tokens: None,
            n: 1,
            cache_salt: None,
            engine_extras: false,
            prompt_logprobs: false,
            previous_response_id: None,
            names: Names::default(),
            tools: false,
        }
    }
}

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BodyError {
    /// What is wrong, fit for an OpenAI error object; for malformed JSON it ends with the
    /// position.
    pub message: String,
    /// Where in the body, as (line, column), both from 1; the column counts characters. `None`
    /// when the JSON is well-formed.
    pub position: Option<(usize, usize)>,
}

impl BodyError {
    pub(crate) fn malformed(body: &[u8], error: &JsonError) -> Self {
        Self::at(body, error.offset, error.message)
    }

    fn at(body: &[u8], offset: usize, what: &str) -> Self {
        let (line, column) = json::position(body, offset);
        Self {
            message: format!(
                "The request body is not valid JSON: {what} (line {line}, column {column})"
            ),
            position: Some((line, column)),
        }
    }

    fn plain(message: &str) -> Self {
        Self { message: message.to_owned(), position: None }
    }
}

impl Envelope {
    /// Reads the top-level fields straight from the bytes, without building the rest.
    ///
    /// The text is read as Python's `json` reads it (see vLLM 0.32, which parses bodies with
    /// it): the last duplicate key wins, `NaN` and `Infinity` are values, any depth is fine, a
    /// leading byte-order mark is skipped. A field of a wrong type counts as absent:
    /// the engine will refuse it in its own words.
    ///
    /// # Errors
    /// Malformed JSON, a body that is not an object, or a `model` that is not a string.
    pub fn parse(body: &[u8]) -> Result<Self, BodyError> {
        let text = text(body)?;
        let mut raw = Raw::default();
        json::top_level(text, |key, value| {
            raw.take(key, value);
            Ok(())
        })
        .map_err(|e| BodyError::malformed(text.as_bytes(), &e))?;
        raw.read()
    }
}

/// The body as text, if it is an object.
pub(crate) fn text(body: &[u8]) -> Result<&str, BodyError> {
    let text = std::str::from_utf8(body)
        .map_err(|e| BodyError::at(body, e.valid_up_to(), "the text is not UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !json::is_object(text.as_bytes()) && json::is_valid(text) {
        return Err(BodyError::plain("The request body must be a JSON object"));
    }
    Ok(text)
}

/// The raw text of the fields, the last one of each.
#[derive(Default)]
struct Raw<'a> {
    model: Option<&'a str>,
    stream: Option<&'a str>,
    max_tokens: Option<&'a str>,
    max_completion_tokens: Option<&'a str>,
    n: Option<&'a str>,
    cache_salt: Option<&'a str>,
    extra_key: Option<&'a str>,
    lora_path: Option<&'a str>,
    prompt_logprobs: Option<&'a str>,
    echo: Option<&'a str>,
    logprobs: Option<&'a str>,
    previous_response_id: Option<&'a str>,
    user: Option<&'a str>,
    safety_identifier: Option<&'a str>,
    prompt_cache_key: Option<&'a str>,
    tools: Option<&'a str>,
    functions: Option<&'a str>,
    is_chat: bool,
}

impl<'a> Raw<'a> {
    fn take(&mut self, key: &str, value: &'a str) {
        let slot = match key {
            "model" => &mut self.model,
            "stream" => &mut self.stream,
            "max_tokens" => &mut self.max_tokens,
            "max_completion_tokens" => &mut self.max_completion_tokens,
            "n" => &mut self.n,
            "cache_salt" => &mut self.cache_salt,
            "extra_key" => &mut self.extra_key,
            "lora_path" => &mut self.lora_path,
            "prompt_logprobs" => &mut self.prompt_logprobs,
            "echo" => &mut self.echo,
            "logprobs" => &mut self.logprobs,
            "previous_response_id" => &mut self.previous_response_id,
            "user" => &mut self.user,
            "safety_identifier" => &mut self.safety_identifier,
            "prompt_cache_key" => &mut self.prompt_cache_key,
            "tools" => &mut self.tools,
            "functions" => &mut self.functions,
            "messages" => {
                self.is_chat = true;
                return;
            }
            _ => return,
        };
        *slot = Some(value);
    }

    fn read(self) -> Result<Envelope, BodyError> {
        let model = match self.model.map(scalar) {
            None | Some(Some(Json::Null)) => None,
            Some(Some(Json::Str(name))) => Some(name),
            Some(_) => return Err(BodyError::plain("`model` must be a string")),
        };
        let count = |raw: Option<&str>| {
            raw.and_then(scalar).and_then(|v| v.as_lax_int()).and_then(|i| u64::try_from(i).ok())
        };
        let truth =
            |raw: Option<&str>| raw.and_then(scalar).and_then(|v| v.as_lax_bool()).unwrap_or(false);
        let number = |raw: Option<&str>| {
            raw.and_then(scalar).is_some_and(|v| matches!(v, Json::Int(_) | Json::Float(_)))
        };
        let text = |raw: Option<&str>| match raw.and_then(scalar) {
            Some(Json::Str(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        // Lists, one entry a prompt, are given as well.
        let given = |raw: Option<&str>| raw.is_some_and(|raw| scalar(raw) != Some(Json::Null));
        // Chat takes `top_logprobs`, 0 by default, for the echoed prompt.
        let echoed = truth(self.echo) && (self.is_chat || number(self.logprobs));
        Ok(Envelope {
            model,
            stream: truth(self.stream),
            max_tokens: count(self.max_completion_tokens).or_else(|| count(self.max_tokens)),
            n: count(self.n).and_then(|n| u32::try_from(n).ok()).unwrap_or(1).max(1),
            cache_salt: text(self.cache_salt),
            engine_extras: given(self.extra_key) || given(self.lora_path),
            prompt_logprobs: number(self.prompt_logprobs) || echoed,
            previous_response_id: text(self.previous_response_id),
            names: Names {
                user: Name::read(self.user),
                safety_identifier: Name::read(self.safety_identifier),
                prompt_cache_key: Name::read(self.prompt_cache_key),
            },
            tools: has_items(self.tools) || has_items(self.functions),
        })
    }
}

/// Whether a field is a list with something in it.
fn has_items(raw: Option<&str>) -> bool {
    raw.and_then(|raw| raw.strip_prefix('[')).is_some_and(|rest| rest.trim_start() != "]")
}

/// A value of a field that should be a scalar; arrays and objects are not built.
fn scalar(raw: &str) -> Option<Json> {
    if raw.starts_with(['[', '{']) {
        return None;
    }
    json::parse(raw).ok()
}
