//! A chat request as a Harmony conversation.

use std::collections::HashMap;

use super::{Author, Channel, Conversation, Message, Preamble, contents, flat};
use crate::Unrouted;
use crate::chat::Chat;
use crate::fields::wrong_type;
use crate::json::{Dict, Json};

/// Turns a request into messages. The template's variables do not count, nor do continuation,
/// special tokens and truncation.
pub(crate) fn read(chat: Chat) -> Result<Conversation, Unrouted> {
    let mut rest = chat.messages.as_slice();
    let mut preamble = Preamble { effort: chat.reasoning_effort, ..Preamble::default() };
    if let Some((first, others)) = rest.split_first()
        && matches!(first.str("role"), Some("system" | "developer"))
    {
        preamble.instructions = flat(first.get("content"))?;
        rest = others;
    }
    preamble.functions = functions(chat.tools.as_ref());
    let mut names = HashMap::new();
    for call in rest.iter().filter_map(|m| m.get("tool_calls")).filter_map(Json::as_list).flatten()
    {
        let call = call.as_dict().ok_or_else(|| wrong_type("messages.tool_calls", "objects"))?;
        let name = call.get("function").and_then(Json::as_dict).and_then(|f| f.str("name"));
        names.insert(call.str("id"), name.unwrap_or_default());
    }
    let mut messages = Vec::new();
    for message in rest {
        push(message, &names, &mut messages)?;
    }
    Ok(Conversation { preamble, messages })
}

/// The functions of tools as vLLM's request model has them.
pub(super) fn functions(tools: Option<&Json>) -> Vec<(String, String, Option<Json>)> {
    let tools = tools.and_then(Json::as_list).unwrap_or_default();
    let functions = tools.iter().filter_map(|t| t.as_dict()?.get("function")?.as_dict());
    functions
        .map(|f| {
            let text = |name: &str| f.str(name).unwrap_or_default().to_owned();
            (text("name"), text("description"), f.non_null("parameters").cloned())
        })
        .collect()
}

fn push(
    message: &Dict,
    names: &HashMap<Option<&str>, &str>,
    out: &mut Vec<Message>,
) -> Result<(), Unrouted> {
    let role = message.str("role").ok_or_else(|| wrong_type("messages.role", "a string"))?;
    let content = message.get("content");
    match role {
        "tool" => {
            let id = message.str("tool_call_id").or(Some(""));
            let name = names.get(&id).copied().unwrap_or_default();
            out.push(Message::result(name, flat(content)?.unwrap_or_default()));
        }
        "system" | "developer" => {
            if let Some(instructions) = flat(content)? {
                out.push(Message::developer(Some(&instructions), ""));
            }
        }
        "assistant" => push_assistant(message, out)?,
        _ => out.push(Message::new(Author::of(role)?, contents(content)?)),
    }
    Ok(())
}

fn push_assistant(message: &Dict, out: &mut Vec<Message>) -> Result<(), Unrouted> {
    let calls = match message.get("tool_calls") {
        None | Some(Json::Null) => &[][..],
        Some(Json::List(calls)) => calls.as_slice(),
        Some(_) => return Err(wrong_type("messages.tool_calls", "a list")),
    };
    let content = message.get("content");
    if !calls.is_empty()
        && let Some(text) = flat(content)?.filter(|text| !text.is_empty())
    {
        out.push(Message::written(Channel::Commentary, vec![text]));
    }
    let thought = message.non_null("reasoning").or(message.non_null("reasoning_content"));
    match thought {
        None => {}
        Some(Json::Str(text)) if text.is_empty() => {}
        Some(Json::Str(text)) => {
            out.push(Message::written(Channel::Analysis, vec![text.clone()]));
        }
        Some(_) => return Err(wrong_type("messages.reasoning", "a string")),
    }
    for call in calls {
        let function = call.as_dict().and_then(|c| c.get("function")).and_then(Json::as_dict);
        let text = |name: &str| {
            let text = function.and_then(|f| f.str(name));
            text.ok_or_else(|| {
                wrong_type(&format!("messages.tool_calls.function.{name}"), "a string")
            })
        };
        out.push(Message::call(text("name")?, text("arguments")?.to_owned()));
    }
    if calls.is_empty() {
        let contents = contents(content)?;
        if contents.first().is_some_and(|first| !first.is_empty()) {
            out.push(Message::written(Channel::Final, contents));
        }
    }
    Ok(())
}
