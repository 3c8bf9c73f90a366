//! `/v1/responses`: from the body to a chat, as vLLM 0.32's request model and input parsing do it.
//!
//! A conversation stored by an engine (`previous_response_id`) is not known here.

mod items;
mod tools;

pub(crate) use items::{Item, Text};

use crate::Unrouted;
use crate::chat::{self, Chat, Given};
use crate::fields::{Fields, Truncation, wrong_type};
use crate::json::{Dict, Json};

/// A request before it is known who renders it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) instructions: Option<String>,
    /// `None`: the input is one text.
    pub(crate) items: Vec<Item>,
    pub(crate) tools: Option<Vec<Dict>>,
    pub(crate) effort: Option<String>,
    kwargs: Dict,
    pub(crate) has_previous_messages: bool,
    /// Prompts longer than the engine's context are cut instead of refused.
    pub(crate) cuts: bool,
}

const FIELDS: [&str; 11] = [
    "input",
    "instructions",
    "previous_response_id",
    "previous_input_messages",
    "prompt",
    "reasoning",
    "tools",
    "tool_choice",
    "truncation",
    "chat_template_kwargs",
    "kv_transfer_params",
];

/// Reads a body as vLLM's `ResponsesRequest`.
pub(crate) fn read(body: &[u8]) -> Result<Request, Unrouted> {
    let fields = Fields::read(body, &FIELDS)?;
    if fields.get("previous_response_id")?.is_some() {
        return Err(Unrouted::StoredResponse);
    }
    if fields.get("prompt")?.is_some() {
        return Err(Unrouted::Body("prompt templates are not supported".to_owned()));
    }
    chat::refuse_forwarded_ids(&fields)?;
    let kwargs = chat::kwargs(&fields)?;
    chat::refuse_template_in(&kwargs)?;
    let instructions = match fields.get("instructions")? {
        None => None,
        Some(Json::Str(text)) => Some(text),
        Some(_) => return Err(wrong_type("instructions", "a string")),
    };
    let items = match fields.get("input")? {
        Some(Json::Str(text)) => vec![Item::asked(text)],
        Some(Json::List(items)) => {
            items.into_iter().map(items::read).collect::<Result<Vec<_>, _>>()?
        }
        _ => return Err(wrong_type("input", "a string or a list of items")),
    };
    let tools = match fields.get("tools")? {
        None => None,
        Some(Json::List(tools)) => Some(tools::read(tools)?),
        Some(_) => return Err(wrong_type("tools", "a list")),
    };
    let effort = match fields.get("reasoning")? {
        None => None,
        Some(Json::Dict(reasoning)) => {
            reasoning.non_null("effort").map(chat::effort).transpose()?
        }
        Some(_) => return Err(wrong_type("reasoning", "an object")),
    };
    let truncation = fields.get("truncation")?;
    Ok(Request {
        instructions,
        items,
        tools: tools.filter(|tools| !tools.is_empty()),
        effort,
        kwargs,
        has_previous_messages: fields.get("previous_input_messages")?.is_some(),
        cuts: truncation.as_ref().and_then(Json::as_str) == Some("auto"),
    })
}

impl Request {
    /// The chat a template renders. Messages of an earlier conversation do not count there.
    pub(crate) fn into_chat(self) -> Result<Chat, Unrouted> {
        let continued = self.items.last().is_some_and(Item::is_unfinished);
        let mut messages = Vec::new();
        if let Some(text) = self.instructions.filter(|text| !text.is_empty()) {
            messages.push(said("system", Json::Str(text)));
        }
        for item in self.items {
            item.push_message(&mut messages)?;
        }
        let given = Given {
            kwargs: self.kwargs,
            tools: self.tools.map(tools::dump).transpose()?,
            documents: None,
            add_generation_prompt: !continued,
            effort: self.effort.clone(),
        };
        let (variables, has_tools) = given.variables()?;
        Ok(Chat {
            messages,
            variables,
            has_tools,
            tools: None,
            reasoning_effort: self.effort,
            continue_final_message: continued,
            keeps_key_order: true,
            // Not a default of chats: templates that begin with a BOS give two of them.
            add_special_tokens: true,
            truncation: Truncation::None,
        })
    }
}

/// A message of a role and content.
pub(crate) fn said(role: &str, content: Json) -> Dict {
    let mut out = Dict::default();
    out.set("role", Json::Str(role.to_owned()));
    out.set("content", content);
    out
}
