//! `/v1/messages`, Anthropic's shape: from the body to a chat, as vLLM 0.32 converts it.

mod blocks;
mod tools;

use crate::Unrouted;
use crate::chat::{self, Chat, Given};
use crate::fields::{Fields, Truncation, wrong_type};
use crate::json::{Dict, Json};
use crate::responses::said;

/// What the engine found out about the model's template when it started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conventions {
    /// System messages must come first: later ones are moved into the first.
    pub(crate) system_first: bool,
    /// The reasoning effort that stands for no thinking.
    pub(crate) no_thinking: &'static str,
}

/// The efforts of this API.
pub(crate) const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// A first line clients add to system prompts that changes with every request; vLLM drops it.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

const FIELDS: [&str; 10] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "chat_template_kwargs",
    "kv_transfer_params",
];

/// Reads a body as vLLM's `AnthropicMessagesRequest` and converts it.
pub(crate) fn read(body: &[u8], conventions: Conventions) -> Result<Chat, Unrouted> {
    let fields = Fields::read(body, &FIELDS)?;
    chat::refuse_forwarded_ids(&fields)?;
    check(&fields)?;
    let Some(Json::List(source)) = fields.get("messages")? else {
        return Err(wrong_type("messages", "a list"));
    };
    let source: Vec<blocks::Message> =
        source.into_iter().map(blocks::read).collect::<Result<_, _>>()?;
    let tools = tools::in_effect(fields.get("tools")?, &source)?;
    let mut system = system_texts(fields.get("system")?)?;
    if conventions.system_first {
        let said = source.iter().filter(|m| m.role == "system");
        system.extend(said.filter_map(blocks::Message::system_text));
    }
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(said("system", Json::Str(system.concat())));
    }
    for message in source {
        if message.role != "system" {
            message.push(&mut messages)?;
        } else if !conventions.system_first
            && let Some(text) = message.system_text()
        {
            messages.push(said("system", Json::Str(text)));
        }
    }
    let effort = effort(&fields, conventions)?;
    let tools = tools.map(tools::dump).transpose()?;
    let given = Given {
        kwargs: chat::kwargs(&fields)?,
        tools: tools.clone(),
        documents: None,
        add_generation_prompt: true,
        effort: effort.clone(),
    };
    let (variables, has_tools) = given.variables()?;
    Ok(Chat {
        messages,
        variables,
        has_tools,
        tools,
        reasoning_effort: effort,
        continue_final_message: false,
        keeps_key_order: false,
        add_special_tokens: false,
        truncation: Truncation::None,
    })
}

/// Fields without which the engine refuses the request.
fn check(fields: &Fields<'_>) -> Result<(), Unrouted> {
    match fields.get("model")? {
        Some(Json::Str(model)) if !model.is_empty() => {}
        _ => return Err(wrong_type("model", "a name")),
    }
    let most = fields.get("max_tokens")?.and_then(|m| m.as_lax_int());
    if most.is_none_or(|most| most <= 0) {
        return Err(wrong_type("max_tokens", "a positive integer"));
    }
    Ok(())
}

fn system_texts(system: Option<Json>) -> Result<Vec<String>, Unrouted> {
    match system {
        None => Ok(Vec::new()),
        Some(Json::Str(text)) => {
            Ok(Some(text).filter(|text| !text.is_empty()).into_iter().collect())
        }
        Some(Json::List(blocks)) => {
            let blocks: Vec<Dict> =
                blocks.into_iter().map(blocks::block).collect::<Result<_, _>>()?;
            Ok(texts_of(&blocks))
        }
        Some(_) => Err(wrong_type("system", "a string or a list of blocks")),
    }
}

/// The texts of blocks, without the header that is no text.
fn texts_of(blocks: &[Dict]) -> Vec<String> {
    let text = |block: &Dict| {
        let text = block.str("text").filter(|_| block.str("type") == Some("text"))?;
        let counts = !text.is_empty() && !text.starts_with(BILLING_HEADER);
        counts.then(|| text.to_owned())
    };
    blocks.iter().filter_map(text).collect()
}

fn effort(fields: &Fields<'_>, conventions: Conventions) -> Result<Option<String>, Unrouted> {
    let object = |name: &str| match fields.get(name)? {
        None => Ok(Dict::default()),
        Some(Json::Dict(dict)) => Ok(dict),
        Some(_) => Err(wrong_type(name, "an object")),
    };
    let mut effort = None;
    if let Some(asked) = object("output_config")?.non_null("effort") {
        let known = asked.as_str().filter(|e| EFFORTS.contains(e));
        let known = known.ok_or_else(|| wrong_type("output_config.effort", "a known effort"))?;
        effort = Some(known.to_owned());
    }
    let thinking = object("thinking")?;
    match thinking.str("type") {
        Some("disabled") => effort = Some(conventions.no_thinking.to_owned()),
        Some("enabled" | "adaptive") => {}
        None if thinking.0.is_empty() => {}
        _ => return Err(wrong_type("thinking.type", "enabled, disabled or adaptive")),
    }
    Ok(effort)
}
