//! `/v1/completions`: the prompt, or several, as text or token ids.

use crate::Unrouted;
use crate::fields::{Fields, Truncation, wrong_type};
use crate::json::Json;

/// One prompt of a completions request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompt {
    /// Bytes, of which a token id takes 4.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Ids(ids) => ids.len() * size_of::<u32>(),
        }
    }
}

/// What a completions body asks to be prefilled.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) add_special_tokens: bool,
    pub(crate) truncation: Truncation,
}

const FIELDS: [&str; 6] = [
    "prompt",
    "prompt_embeds",
    "suffix",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
];

/// Reads a body as vLLM's `CompletionRequest`.
pub(crate) fn read(body: &[u8]) -> Result<Completion, Unrouted> {
    let fields = Fields::read(body, &FIELDS)?;
    for name in ["prompt_embeds", "suffix"] {
        if fields.get(name)?.is_some() {
            return Err(Unrouted::UnsupportedField(format!("`{name}` is not reproduced here")));
        }
    }
    let prompt =
        fields.get("prompt")?.ok_or_else(|| Unrouted::Body("`prompt` is missing".to_owned()))?;
    Ok(Completion {
        prompts: prompts(prompt)?,
        add_special_tokens: fields.flag("add_special_tokens", true)?,
        truncation: fields.truncation()?,
    })
}

pub(crate) fn prompts(value: Json) -> Result<Vec<Prompt>, Unrouted> {
    let wrong = || {
        wrong_type("prompt", "a string, a list of strings, token ids, or a list of token id lists")
    };
    match value {
        Json::Str(text) => Ok(vec![Prompt::Text(text)]),
        Json::List(items) => {
            match items.first() {
                Some(Json::Str(_)) => items
                    .into_iter()
                    .map(|item| {
                        if let Json::Str(text) = item {
                            Ok(Prompt::Text(text))
                        } else {
                            Err(wrong())
                        }
                    })
                    .collect(),
                Some(Json::List(_)) => items
                    .iter()
                    .map(|item| ids(item.as_list().ok_or_else(wrong)?).map(Prompt::Ids))
                    .collect(),
                Some(_) => Ok(vec![Prompt::Ids(ids(&items)?)]),
                None => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

fn ids(items: &[Json]) -> Result<Vec<u32>, Unrouted> {
    let id = |item: &Json| {
        item.as_lax_int()
            .and_then(|i| u32::try_from(i).ok())
            .ok_or_else(|| wrong_type("prompt", "made of token ids (integers of at least 0)"))
    };
    items.iter().map(id).collect()
}
