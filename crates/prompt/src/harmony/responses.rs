//! A responses request as a Harmony conversation.

use super::{Author, Channel, Conversation, Message, Preamble, contents, flat};
use crate::Unrouted;
use crate::fields::wrong_type;
use crate::json::{Dict, Json};
use crate::responses::{Item, Request, Text};

/// Tools that are the engine's own: they bring no function.
const BUILT_IN: [&str; 3] = ["web_search_preview", "code_interpreter", "container"];

/// Turns a request into messages.
pub(crate) fn read(request: Request) -> Result<Conversation, Unrouted> {
    if request.has_previous_messages {
        return Err(Unrouted::UnsupportedField(
            "`previous_input_messages` are not reproduced for Harmony models".to_owned(),
        ));
    }
    let mut items = request.items;
    let mut instructions = request.instructions;
    if instructions.is_none()
        && let Some(Item::Message(first)) = items.first()
        && matches!(first.str("role"), Some("system" | "developer"))
    {
        instructions = flat(first.get("content"))?;
        items.remove(0);
    }
    let functions = functions(request.tools.as_deref().unwrap_or_default())?;
    let mut messages = Vec::new();
    let mut calls: Vec<(String, String)> = Vec::new();
    for item in items {
        messages.extend(message(item, &mut calls)?);
    }
    let preamble = Preamble { instructions, functions, effort: request.effort };
    Ok(Conversation { preamble, messages })
}

fn functions(tools: &[Dict]) -> Result<Vec<(String, String, Option<Json>)>, Unrouted> {
    let mut out = Vec::new();
    // An MCP tool brings no function, but where there is nothing else it changes nothing either.
    let counts = |tool: &Dict| !BUILT_IN.contains(&tool.str("type").unwrap_or_default());
    if !tools.iter().any(|tool| counts(tool) && tool.str("type") != Some("mcp")) {
        return Ok(out);
    }
    for tool in tools.iter().filter(|tool| counts(tool)) {
        let kind = tool.str("type").unwrap_or_default();
        if kind != "function" {
            return Err(Unrouted::Body(format!("Harmony has no tools of type `{kind}`")));
        }
        let text = |name: &str| tool.str(name).unwrap_or_default().to_owned();
        out.push((text("name"), text("description"), tool.non_null("parameters").cloned()));
    }
    Ok(out)
}

fn message(item: Item, calls: &mut Vec<(String, String)>) -> Result<Option<Message>, Unrouted> {
    Ok(match item {
        Item::Message(message) => {
            let content = message.get("content");
            match message.str("role").unwrap_or_default() {
                "system" | "developer" => {
                    let text = flat(content)?.filter(|text| !text.is_empty());
                    text.map(|text| Message::developer(Some(&text), ""))
                }
                "assistant" => Some(Message::written(Channel::Final, contents(content)?)),
                role => Some(Message::new(Author::of(role)?, contents(content)?)),
            }
        }
        Item::Output { texts, .. } => {
            let text = |part: Text| match part {
                Text::Said(text) => text,
                Text::Refused => String::new(),
            };
            Some(Message::written(Channel::Final, texts.into_iter().map(text).collect()))
        }
        Item::Reasoning { content, .. } => (!content.is_empty())
            .then(|| Message::written(Channel::Analysis, vec![content.join("\n")])),
        Item::Call { id, name, arguments, .. } => {
            let call = Message::call(&name, arguments);
            calls.push((id, name));
            Some(call)
        }
        Item::Result { id, output: Json::Str(output), custom: false } => {
            let known = calls.iter().rev().find(|(call, _)| *call == id);
            let (_, name) =
                known.ok_or_else(|| Unrouted::Body(format!("no call was found for `{id}`")))?;
            Some(Message::result(name, output))
        }
        Item::Result { custom: false, .. } => {
            return Err(wrong_type("input.output", "a string for Harmony models"));
        }
        Item::CustomCall { .. } | Item::Result { .. } => {
            return Err(Unrouted::Body("Harmony has no custom tool calls".to_owned()));
        }
    })
}
