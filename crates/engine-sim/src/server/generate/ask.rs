//! What a generation request asks for.

use bytes::Bytes;
use kvasir_kv_hash::vllm::Lora;
use kvasir_prompt::Api;
use serde_json::Value;

use crate::server::disagg::config::EngineKind;
use crate::server::disagg::params::{Leg, Prefill};
use crate::server::refusal::Refusal;
use crate::server::state::State;

/// Most sequences one request may ask for: prompts times `n`.
const MAX_SEQUENCES: usize = 1_024;

/// Fields that ask for what a made-up answer cannot do. They are named in the answer's
/// `x-sim-ignored` header.
const IGNORED: [&str; 9] = [
    "stop",
    "stop_token_ids",
    "min_tokens",
    "bad_words",
    "logit_bias",
    "response_format",
    "structured_outputs",
    "tools",
    "guided_json",
];

/// Fields that no answer can be given for.
const UNSUPPORTED: [&str; 7] = [
    "echo",
    "suffix",
    "prompt_embeds",
    "use_beam_search",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
];

/// A request that has been understood.
#[derive(Clone, Debug)]
pub(in crate::server) struct Ask {
    pub(super) api: Api,
    /// The name the client used.
    pub(super) model: String,
    pub(super) lora: Option<Lora>,
    pub(super) prompts: Vec<Vec<u32>>,
    /// Answers a prompt.
    pub(super) n: usize,
    /// For each prompt.
    pub(super) max_tokens: Vec<usize>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    pub(super) ignore_eos: bool,
    pub(super) return_token_ids: bool,
    pub(super) cache_salt: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) ignored: Vec<&'static str>,
    /// Its part in prefill/decode disaggregation.
    pub(super) leg: Leg,
    /// It ends after a token, and would go on elsewhere.
    pub(super) goes_on: bool,
}

impl Ask {
    /// Reads a body as vLLM 0.32 does, as far as this server goes.
    pub(in crate::server) async fn read(
        state: &State,
        api: Api,
        bytes: Bytes,
    ) -> Result<Self, Refusal> {
        let body = object(&bytes)?;
        let fields = Fields(&body);
        let (model, lora) = model(state, &fields)?;
        for name in UNSUPPORTED {
            if fields.is_asked(name) {
                return Err(Refusal::bad(format!(
                    "`{name}` is not supported by this simulated engine."
                ))
                .of(name));
            }
        }
        let options = fields.get("stream_options");
        let stream = fields.flag("stream")?;
        if options.is_some() && !stream {
            let message = "Stream options can only be defined when `stream=True`.";
            return Err(Refusal::bad(message).of("stream_options"));
        }
        let include_usage = options.is_some_and(|o| o["include_usage"].as_bool() == Some(true));
        let n = match fields.count("n")?.unwrap_or(1) {
            n @ 1.. => usize::try_from(n).unwrap_or(usize::MAX),
            n => return Err(Refusal::value("n", n, format!("n must be at least 1, got {n}."))),
        };
        let salt = fields.text("cache_salt")?;
        if salt.as_deref() == Some("") {
            let message = "Parameter 'cache_salt' must be a non-empty string if provided.";
            return Err(Refusal::bad(message).of("cache_salt"));
        }
        let limit = limit(state, api, &fields)?;
        let prompts = prompts(state, api, &fields, bytes.clone()).await?;
        let sequences = prompts.len().saturating_mul(n);
        if sequences > MAX_SEQUENCES {
            let message = format!("{sequences} sequences are more than {MAX_SEQUENCES}.");
            return Err(Refusal::bad(message).of("n"));
        }
        let leg = Leg::read(state, &fields, prompts.len(), n)?;
        let mut max_tokens = budgets(state, &prompts, limit)?;
        let goes_on = shorten(&leg, &mut max_tokens);
        Ok(Self {
            api,
            model,
            lora,
            max_tokens,
            prompts,
            n,
            stream,
            include_usage,
            continuous_usage: include_usage
                && options.is_some_and(|o| o["continuous_usage_stats"].as_bool() == Some(true)),
            ignore_eos: fields.flag("ignore_eos")?,
            return_token_ids: fields.flag("return_token_ids")?,
            cache_salt: salt,
            session_id: fields.text("session_id")?,
            ignored: ignored(state, &fields),
            leg,
            goes_on,
        })
    }

    /// Choices of the answer.
    pub(super) fn choices(&self) -> usize {
        self.prompts.len() * self.n
    }

    /// Tokens of all prompts, each counted once whatever `n` is.
    pub(super) fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(Vec::len).sum()
    }

    /// The prompt of a choice.
    pub(super) fn prompt(&self, choice: usize) -> &[u32] {
        self.prompts.get(choice / self.n).map_or(&[], Vec::as_slice)
    }
}

/// The fields that were asked for in vain.
fn ignored(state: &State, fields: &Fields<'_>) -> Vec<&'static str> {
    let of_pd: &[&'static str] = match (state.config.pd.role, state.config.kind) {
        (None, EngineKind::Vllm) => &["kv_transfer_params"],
        (None, EngineKind::Sglang) => &["bootstrap_room"],
        _ => &[],
    };
    let names = IGNORED.iter().chain(of_pd).copied();
    names.filter(|name| fields.is_asked(name)).collect()
}

/// SGLang's and TensorRT-LLM's prefill legs make one token, whatever is asked for; says whether
/// that is less. vLLM's are told so by the client.
fn shorten(leg: &Leg, max_tokens: &mut [usize]) -> bool {
    if !matches!(leg, Leg::Prefill(Prefill::Room(_) | Prefill::Context(_))) {
        return false;
    }
    let more = max_tokens.iter().any(|tokens| *tokens > 1);
    max_tokens.fill(1);
    more && matches!(leg, Leg::Prefill(Prefill::Context(_)))
}

/// A body as a JSON object.
pub(in crate::server) fn object(bytes: &[u8]) -> Result<Value, Refusal> {
    let body: Value = serde_json::from_slice(bytes)
        .map_err(|e| Refusal::bad(format!("The request body is not valid JSON: {e}")))?;
    if body.is_object() {
        Ok(body)
    } else {
        Err(Refusal::bad("The request body must be a JSON object."))
    }
}

/// The fields of a body; null counts as absent.
pub(in crate::server) struct Fields<'a>(pub(in crate::server) &'a Value);

impl Fields<'_> {
    pub(in crate::server) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Whether a field is there and not off, empty or zero.
    fn is_asked(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| match value {
            Value::Bool(on) => *on,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            // `logprobs: 0` asks for the chosen token's, `top_logprobs: 0` for nothing.
            Value::Number(number) => {
                name == "logprobs" || name == "prompt_logprobs" || number.as_f64() != Some(0.0)
            }
            _ => true,
        })
    }

    pub(in crate::server) fn flag(&self, name: &'static str) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| wrong(name, "a boolean")),
        }
    }

    /// A whole number, also when written with a fraction of zero.
    fn count(&self, name: &'static str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let whole =
            |number: f64| (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
        let number = value.as_i64().or_else(|| value.as_f64().and_then(whole));
        number.map(Some).ok_or_else(|| wrong(name, "an integer"))
    }

    pub(in crate::server) fn text(&self, name: &'static str) -> Result<Option<String>, Refusal> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(wrong(name, "a string")),
        }
    }
}

fn wrong(name: &'static str, want: &str) -> Refusal {
    Refusal::bad(format!("`{name}` must be {want}.")).of(name)
}

/// The name and the adapter behind it.
pub(in crate::server) fn model(
    state: &State,
    fields: &Fields<'_>,
) -> Result<(String, Option<Lora>), Refusal> {
    let config = &state.config;
    let name = fields.text("model")?.unwrap_or_else(|| config.model.clone());
    if name == config.model {
        return Ok((name, None));
    }
    if let Some(at) = config.adapters.iter().position(|(adapter, _)| *adapter == name) {
        let path = config.adapters.get(at).map(|(_, path)| path.clone());
        return Ok((name.clone(), Some(Lora { name, int_id: Some(at as u64 + 1), path })));
    }
    let message = format!("The model `{name}` does not exist. Valid aliases: {}.", config.model);
    Err(Refusal::new(http::StatusCode::NOT_FOUND, "NotFoundError", message).of("model"))
}

/// The client's limit of output tokens; `None` means as many as fit.
fn limit(state: &State, api: Api, fields: &Fields<'_>) -> Result<Option<usize>, Refusal> {
    let (name, given) = match (api, fields.count("max_completion_tokens")?) {
        (Api::Chat, Some(given)) => ("max_completion_tokens", Some(given)),
        _ => ("max_tokens", fields.count("max_tokens")?),
    };
    let default = (api == Api::Completions).then_some(16);
    let Some(given) = given.or(default) else { return Ok(None) };
    let longest = state.max_model_len();
    match usize::try_from(given) {
        Ok(0) | Err(_) => {
            let message = format!("{name} must be at least 1, got {given}.");
            Err(Refusal::value(name, given, message))
        }
        Ok(tokens) if tokens > longest => {
            let message = format!(
                "{name}={tokens} cannot be greater than max_model_len={longest}. Please request \
                 fewer output tokens."
            );
            Err(Refusal::value(name, tokens, message))
        }
        Ok(tokens) => Ok(Some(tokens)),
    }
}

async fn prompts(
    state: &State,
    api: Api,
    fields: &Fields<'_>,
    bytes: Bytes,
) -> Result<Vec<Vec<u32>>, Refusal> {
    let empty = |prompt: &Value| {
        prompt.as_str().is_some_and(str::is_empty) || prompt.as_array().is_some_and(Vec::is_empty)
    };
    if api == Api::Completions && fields.get("prompt").is_none_or(empty) {
        let message = "Either prompt or prompt_embeds must be provided and non-empty.";
        return Err(Refusal::bad(message).of("prompt"));
    }
    let ids = || fields.get("prompt").and_then(token_ids).filter(|_| api == Api::Completions);
    let prompts = match ids() {
        Some(ids) if !state.text.is_there() => {
            if fields.is_asked("truncate_prompt_tokens") {
                return Err(Refusal::bad("`truncate_prompt_tokens` needs a tokenizer."));
            }
            ids
        }
        _ => state.text.prompts(api, bytes).await?,
    };
    if prompts.iter().any(Vec::is_empty) {
        return Err(Refusal::bad("The prompt has no tokens.").of("prompt"));
    }
    Ok(prompts)
}

/// A prompt of token ids, or a list of such prompts.
fn token_ids(prompt: &Value) -> Option<Vec<Vec<u32>>> {
    let ids = |items: &Vec<Value>| -> Option<Vec<u32>> {
        items.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
    };
    let items = prompt.as_array()?;
    match items.first()? {
        Value::Array(_) => items.iter().map(|item| ids(item.as_array()?)).collect(),
        _ => Some(vec![ids(items)?]),
    }
}

/// How many tokens each prompt may get.
fn budgets(
    state: &State,
    prompts: &[Vec<u32>],
    limit: Option<usize>,
) -> Result<Vec<usize>, Refusal> {
    let longest = state.max_model_len();
    let wanted = limit.unwrap_or(0);
    let room = longest - wanted.min(longest);
    let budget = |prompt: &Vec<u32>| {
        let tokens = prompt.len();
        // Where the client leaves it open, one token must fit.
        if tokens > room || tokens >= longest {
            let message = format!(
                "You passed {tokens} input tokens and requested {wanted} output tokens. However, \
                 the model's context length is only {longest} tokens, resulting in a maximum \
                 input length of {room} tokens. Please reduce the length of the input prompt."
            );
            return Err(Refusal::value("input_tokens", tokens, message));
        }
        Ok(limit.unwrap_or(longest - tokens))
    };
    prompts.iter().map(budget).collect()
}
