//! `/v1/chat/completions`: from the body to what the chat template is given, as vLLM 0.32's
//! request model and message parsing do it.

mod kwargs;
mod message;
mod tools;

pub(crate) use kwargs::{Given, effort, kwargs, refuse_template_in};
pub(crate) use message::{Media, Reading, conversation};
pub(crate) use tools::from_body as dump_tools;

use crate::Unrouted;
use crate::fields::{Fields, Truncation, wrong_type};
use crate::json::{Dict, Json};

/// A chat request before its messages are parsed, which depends on the template.
#[derive(Debug)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<Dict>,
    /// Every variable the template gets besides the messages and the special tokens. `tools`
    /// and `documents` are always among them.
    pub(crate) variables: Dict,
    /// Tools are given, if only an empty list: some models have a template of their own for it.
    pub(crate) has_tools: bool,
    /// The body's own tools, as the engine's request model dumps them.
    pub(crate) tools: Option<Json>,
    pub(crate) reasoning_effort: Option<String>,
    pub(crate) continue_final_message: bool,
    /// The messages did not go through the request model, which puts known keys first.
    pub(crate) keeps_key_order: bool,
    pub(crate) add_special_tokens: bool,
    pub(crate) truncation: Truncation,
}

const FIELDS: [&str; 13] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "reasoning_effort",
    "chat_template",
    "chat_template_kwargs",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
    "kv_transfer_params",
    "echo",
];

/// Reads a body as vLLM's `ChatCompletionRequest`.
pub(crate) fn read(body: &[u8]) -> Result<Chat, Unrouted> {
    let fields = Fields::read(body, &FIELDS)?;
    refuse_what_is_not_reproduced(&fields)?;
    let messages = match fields.get("messages")? {
        Some(Json::List(items)) => items
            .into_iter()
            .map(|m| {
                if let Json::Dict(m) = m {
                    Ok(m)
                } else {
                    Err(wrong_type("messages", "a list of objects"))
                }
            })
            .collect::<Result<Vec<_>, _>>()?,
        _ => return Err(wrong_type("messages", "a list")),
    };
    let given = kwargs::Given::of_chat(&fields)?;
    let (tools, reasoning_effort) = (given.tools.clone(), given.effort.clone());
    let (variables, has_tools) = given.variables()?;
    let continue_final_message = fields.flag("continue_final_message", false)?;
    if continue_final_message && fields.flag("add_generation_prompt", true)? {
        return Err(Unrouted::Body(
            "`continue_final_message` and `add_generation_prompt` exclude each other".to_owned(),
        ));
    }
    Ok(Chat {
        messages,
        variables,
        has_tools,
        tools,
        reasoning_effort,
        continue_final_message,
        keeps_key_order: false,
        add_special_tokens: fields.flag("add_special_tokens", false)?,
        truncation: fields.truncation()?,
    })
}

fn refuse_what_is_not_reproduced(fields: &Fields<'_>) -> Result<(), Unrouted> {
    refuse_template(fields)?;
    refuse_forwarded_ids(fields)
}

/// A template of the request's own.
pub(crate) fn refuse_template(fields: &Fields<'_>) -> Result<(), Unrouted> {
    if fields.get("chat_template")?.is_some() {
        return Err(Unrouted::UnsupportedField(
            "`chat_template` of a request is used only by engines told to trust it".to_owned(),
        ));
    }
    Ok(())
}

/// Token ids of a prefill stage replace the messages.
pub(crate) fn refuse_forwarded_ids(fields: &Fields<'_>) -> Result<(), Unrouted> {
    if let Some(Json::Dict(params)) = fields.get("kv_transfer_params")?
        && params.non_null("prompt_token_ids").is_some()
    {
        return Err(Unrouted::UnsupportedField(
            "`kv_transfer_params.prompt_token_ids` replace the messages".to_owned(),
        ));
    }
    Ok(())
}
