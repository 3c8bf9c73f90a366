//! Messages and their content blocks.

use super::{BILLING_HEADER, texts_of};
use crate::Unrouted;
use crate::fields::wrong_type;
use crate::json::{self, Dict, Json};
use crate::responses::said;
use crate::template::{python, value};

const KINDS: [&str; 9] = [
    "text",
    "image",
    "tool_use",
    "tool_result",
    "tool_reference",
    "thinking",
    "redacted_thinking",
    "tool_addition",
    "tool_removal",
];

/// A message as the client wrote it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) role: String,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Text(String),
    Blocks(Vec<Dict>),
}

/// Reads one message.
pub(super) fn read(message: Json) -> Result<Message, Unrouted> {
    let Json::Dict(mut message) = message else {
        return Err(wrong_type("messages", "a list of objects"));
    };
    let role = match message.str("role") {
        Some(role @ ("user" | "assistant" | "system")) => role.to_owned(),
        _ => return Err(wrong_type("messages.role", "user, assistant or system")),
    };
    let content = match message.remove("content") {
        Some(Json::Str(text)) => Content::Text(text),
        Some(Json::List(blocks)) => {
            Content::Blocks(blocks.into_iter().map(block).collect::<Result<_, _>>()?)
        }
        _ => return Err(wrong_type("messages.content", "a string or a list of blocks")),
    };
    let changes = |b: &Dict| matches!(b.str("type"), Some("tool_addition" | "tool_removal"));
    match &content {
        Content::Blocks(blocks) if role != "system" && blocks.iter().any(changes) => {
            Err(Unrouted::Body("tools can only be changed by system messages".to_owned()))
        }
        _ => Ok(Message { role, content }),
    }
}

/// Reads one block: its kind is known and its fields have the right types.
pub(super) fn block(block: Json) -> Result<Dict, Unrouted> {
    let Json::Dict(block) = block else { return Err(wrong_type("content", "a list of objects")) };
    if !block.str("type").is_some_and(|kind| KINDS.contains(&kind)) {
        return Err(wrong_type("content.type", "a known kind of block"));
    }
    for name in ["text", "id", "tool_use_id", "name", "tool_name", "thinking", "signature", "data"]
    {
        if block.non_null(name).is_some_and(|v| v.as_str().is_none()) {
            return Err(wrong_type(&format!("content.{name}"), "a string"));
        }
    }
    for name in ["source", "input"] {
        if block.non_null(name).is_some_and(|v| v.as_dict().is_none()) {
            return Err(wrong_type(&format!("content.{name}"), "an object"));
        }
    }
    match block.non_null("content") {
        None | Some(Json::Str(_)) => {}
        Some(Json::List(items)) if items.iter().all(|i| i.as_dict().is_some()) => {}
        Some(_) => return Err(wrong_type("content.content", "a string or a list of objects")),
    }
    Ok(block)
}

impl Message {
    /// What a system message says, if anything.
    pub(super) fn system_text(&self) -> Option<String> {
        match &self.content {
            Content::Text(text) => {
                let counts = !text.is_empty() && !text.starts_with(BILLING_HEADER);
                counts.then(|| text.clone())
            }
            Content::Blocks(blocks) => {
                let texts = texts_of(blocks);
                (!texts.is_empty()).then(|| texts.concat())
            }
        }
    }

    /// Adds it to a chat's messages; results of tools become messages of their own before it.
    pub(super) fn push(self, messages: &mut Vec<Dict>) -> Result<(), Unrouted> {
        let blocks = match self.content {
            Content::Text(text) => {
                messages.push(said(&self.role, Json::Str(text)));
                return Ok(());
            }
            Content::Blocks(blocks) => blocks,
        };
        let mut turn = Turn::default();
        for block in blocks {
            turn.take(&block, &self.role, messages)?;
        }
        let mut message = Dict::default();
        message.set("role", Json::Str(self.role.clone()));
        if let Some(thoughts) = turn.thoughts {
            message.set("reasoning", Json::Str(thoughts));
        }
        if !turn.calls.is_empty() {
            message.set("tool_calls", Json::List(turn.calls));
        }
        let has_parts = !turn.parts.is_empty();
        match turn.parts.as_slice() {
            [] => {}
            [only] if only.str("type") == Some("text") => {
                message.set("content", only.get("text").cloned().unwrap_or(Json::Null));
            }
            _ => {
                let parts = turn.parts.into_iter().map(Json::Dict).collect();
                message.set("content", Json::List(parts));
            }
        }
        if self.role != "user" || has_parts {
            messages.push(message);
        }
        Ok(())
    }
}

/// What the blocks of one message come to.
#[derive(Default)]
struct Turn {
    parts: Vec<Dict>,
    calls: Vec<Json>,
    thoughts: Option<String>,
}

impl Turn {
    fn take(&mut self, block: &Dict, role: &str, messages: &mut Vec<Dict>) -> Result<(), Unrouted> {
        match block.str("type").unwrap_or_default() {
            "text" => {
                if let Some(text) = block.str("text").filter(|text| !text.is_empty()) {
                    self.parts.push(text_part(text));
                }
            }
            "image" if block.get("source").is_some_and(Json::is_truthy) => {
                self.parts.push(image_part());
            }
            "thinking" => {
                if let Some(text) = block.str("thinking") {
                    self.thoughts.get_or_insert_default().push_str(text);
                }
            }
            "tool_use" => self.calls.push(call(block)?),
            "tool_result" if role == "user" => push_result(block, messages),
            "tool_result" => {
                let content = block.get("content").filter(|content| content.is_truthy());
                let text = content.map(|c| python::text(&value::from_json(c))).unwrap_or_default();
                self.parts.push(text_part(&format!("Tool result: {text}")));
            }
            _ => {}
        }
        Ok(())
    }
}

fn text_part(text: &str) -> Dict {
    let mut part = Dict::default();
    part.set("type", Json::Str("text".to_owned()));
    part.set("text", Json::Str(text.to_owned()));
    part
}

/// An image; what it shows does not matter here.
fn image_part() -> Dict {
    let mut part = Dict::default();
    part.set("type", Json::Str("image_url".to_owned()));
    part
}

fn call(block: &Dict) -> Result<Json, Unrouted> {
    let Some(id) = block.str("id").filter(|id| !id.is_empty()) else {
        return Err(Unrouted::UnsupportedField(
            "a tool call without an id gets one from the engine's clock".to_owned(),
        ));
    };
    let input = block.non_null("input").cloned().unwrap_or(Json::Dict(Dict::default()));
    let mut function = Dict::default();
    function.set("name", Json::Str(block.str("name").unwrap_or_default().to_owned()));
    function.set("arguments", Json::Str(json::dumps(&input, true)));
    let mut call = Dict::default();
    call.set("id", Json::Str(id.to_owned()));
    call.set("type", Json::Str("function".to_owned()));
    call.set("function", Json::Dict(function));
    Ok(Json::Dict(call))
}

/// The result of a tool: its text, then its images as a user's, then what it refers to.
fn push_result(block: &Dict, messages: &mut Vec<Dict>) {
    let (mut texts, mut images, mut references) = (Vec::new(), Vec::new(), Vec::new());
    match block.get("content") {
        Some(Json::Str(text)) => texts.push(text.clone()),
        Some(Json::List(items)) => {
            for item in items.iter().filter_map(Json::as_dict) {
                match item.str("type") {
                    Some("text") => texts.push(item.str("text").unwrap_or_default().to_owned()),
                    Some("image") => images.push(Json::Dict(image_part())),
                    Some("tool_reference") => {
                        let name = item.str("tool_name").or(item.str("name"));
                        if let Some(name) = name.filter(|name| !name.is_empty()) {
                            let mut part = Dict::default();
                            part.set("type", Json::Str("tool_reference".to_owned()));
                            part.set("name", Json::Str(name.to_owned()));
                            references.push(Json::Dict(part));
                        }
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    let id = Json::Str(block.str("tool_use_id").unwrap_or_default().to_owned());
    let result = |content: Json| {
        let mut message = said("tool", content);
        message.set("tool_call_id", id.clone());
        message
    };
    messages.push(result(Json::Str(texts.join("\n"))));
    if !images.is_empty() {
        messages.push(said("user", Json::List(images)));
    }
    if !references.is_empty() {
        messages.push(result(Json::List(references)));
    }
}
