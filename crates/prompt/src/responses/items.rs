//! The items of a response's input.

use super::said;
use crate::Unrouted;
use crate::fields::wrong_type;
use crate::json::{self, Dict, Json};

const ROLES: [&str; 4] = ["user", "assistant", "system", "developer"];

/// One item, by what the engine's request model makes of it.
#[derive(Debug)]
pub(crate) enum Item {
    /// A message as it was given.
    Message(Dict),
    /// Something the model said, as it comes in answers.
    Output {
        texts: Vec<Text>,
        unfinished: bool,
    },
    Reasoning {
        content: Vec<String>,
        summary: Vec<String>,
        encrypted: bool,
        unfinished: bool,
    },
    Call {
        id: String,
        name: String,
        namespace: Option<String>,
        arguments: String,
    },
    /// A call whose input is text.
    CustomCall {
        id: String,
        name: String,
        input: String,
    },
    Result {
        id: String,
        output: Json,
        custom: bool,
    },
}

/// A part of what the model said.
#[derive(Debug)]
pub(crate) enum Text {
    Said(String),
    Refused,
}

/// Reads one item.
pub(super) fn read(item: Json) -> Result<Item, Unrouted> {
    let Json::Dict(item) = item else { return Err(wrong_type("input", "a list of objects")) };
    let unfinished = matches!(item.str("status"), Some("in_progress" | "incomplete"));
    let text = |name: &str| {
        let text = item.str(name).map(str::to_owned);
        text.ok_or_else(|| wrong_type(&format!("input.{name}"), "a string"))
    };
    match item.str("type") {
        None | Some("message") => message(item, unfinished),
        Some("function_call") => Ok(Item::Call {
            id: text("call_id")?,
            name: text("name")?,
            namespace: item.str("namespace").filter(|n| !n.is_empty()).map(str::to_owned),
            arguments: text("arguments")?,
        }),
        Some("custom_tool_call") => Ok(Item::CustomCall {
            id: text("call_id")?,
            name: text("name")?,
            input: text("input")?,
        }),
        Some(kind @ ("function_call_output" | "custom_tool_call_output")) => {
            let custom = kind == "custom_tool_call_output";
            let id = text("call_id")?;
            match item.get("output") {
                Some(output @ (Json::Str(_) | Json::List(_))) => {
                    Ok(Item::Result { id, output: output.clone(), custom })
                }
                _ => Err(wrong_type("input.output", "a string or a list of parts")),
            }
        }
        Some("reasoning") => Ok(Item::Reasoning {
            content: texts(item.get("content"))?,
            summary: match item.get("summary") {
                Some(Json::List(_)) => texts(item.get("summary"))?,
                _ => return Err(wrong_type("input.summary", "a list")),
            },
            encrypted: item.get("encrypted_content").is_some_and(Json::is_truthy),
            unfinished,
        }),
        Some(kind) => Err(Unrouted::Body(format!("unsupported input item type `{kind}`"))),
    }
}

fn texts(parts: Option<&Json>) -> Result<Vec<String>, Unrouted> {
    let part = |part: &Json| {
        let text = part.as_dict().and_then(|p| p.str("text")).map(str::to_owned);
        text.ok_or_else(|| wrong_type("input.content", "parts with text"))
    };
    match parts {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::List(parts)) => parts.iter().map(part).collect(),
        Some(_) => Err(wrong_type("input.content", "a list of parts")),
    }
}

fn message(item: Dict, unfinished: bool) -> Result<Item, Unrouted> {
    let role = item.str("role").filter(|role| ROLES.contains(role));
    let Some(role) = role else {
        return Err(wrong_type("input.role", "user, assistant, system or developer"));
    };
    let parts = match item.get("content") {
        Some(Json::Str(_)) => return Ok(Item::Message(item)),
        Some(Json::List(parts)) => parts,
        _ => return Err(wrong_type("input.content", "a string or a list of parts")),
    };
    let output = |part: &Json| {
        let part = part.as_dict()?;
        match part.str("type")? {
            "output_text" => Some(Text::Said(part.str("text")?.to_owned())),
            "refusal" => part.str("refusal").map(|_| Text::Refused),
            _ => None,
        }
    };
    if role == "assistant"
        && item.str("type") == Some("message")
        && let Some(texts) = parts.iter().map(output).collect::<Option<Vec<_>>>()
    {
        return Ok(Item::Output { texts, unfinished });
    }
    let is_input = |part: &Json| {
        let kind = part.as_dict().and_then(|p| p.str("type"));
        matches!(kind, Some("input_text" | "input_image" | "input_file" | "input_audio"))
    };
    if !parts.iter().all(is_input) {
        return Err(wrong_type("input.content", "made of input parts"));
    }
    Ok(Item::Message(item))
}

impl Item {
    /// A user's text.
    pub(super) fn asked(text: String) -> Self {
        Self::Message(said("user", Json::Str(text)))
    }

    /// Whether the model is to go on with it.
    pub(super) fn is_unfinished(&self) -> bool {
        match self {
            Self::Message(message) => {
                matches!(message.str("status"), Some("in_progress" | "incomplete"))
            }
            Self::Output { unfinished, .. } | Self::Reasoning { unfinished, .. } => *unfinished,
            Self::Call { .. } | Self::CustomCall { .. } | Self::Result { .. } => false,
        }
    }

    /// Adds the item to the messages: calls, thoughts and texts of one turn become one message.
    pub(super) fn push_message(self, messages: &mut Vec<Dict>) -> Result<(), Unrouted> {
        match self {
            Self::Message(message) => match assistant_text(&message) {
                Some(text) => set_or_push("content", Json::Str(text), messages),
                None => messages.push(message),
            },
            Self::Output { texts, .. } => {
                let Some(Text::Said(text)) = texts.into_iter().next() else {
                    return Err(wrong_type("input.content", "a message that begins with text"));
                };
                set_or_push("content", Json::Str(text), messages);
            }
            Self::Reasoning { encrypted: true, .. } => {
                return Err(Unrouted::Body("encrypted reasoning is not supported".to_owned()));
            }
            Self::Reasoning { content, summary, .. } => {
                let text = content.into_iter().next().or(summary.into_iter().next());
                set_or_push("reasoning", Json::Str(text.unwrap_or_default()), messages);
            }
            Self::Call { id, name, namespace, arguments } => {
                let name = namespace.map(|n| super::tools::flat_name(&n, &name)).unwrap_or(name);
                push_call(call(id, name, arguments), messages);
            }
            Self::CustomCall { id, name, input } => {
                let mut arguments = Dict::default();
                arguments.set(super::tools::CUSTOM_INPUT, Json::Str(input));
                let arguments = json::dumps(&Json::Dict(arguments), false);
                push_call(call(id, name, arguments), messages);
            }
            Self::Result { id, output, .. } => {
                let mut message = said("tool", output);
                message.set("tool_call_id", Json::Str(id));
                messages.push(message);
            }
        }
        Ok(())
    }
}

/// The text of an assistant's message that was given as a plain one.
fn assistant_text(message: &Dict) -> Option<String> {
    if message.str("role") != Some("assistant") {
        return None;
    }
    match message.get("content")? {
        Json::Str(text) => Some(text.clone()),
        Json::List(parts) => parts.first()?.as_dict()?.str("text").map(str::to_owned),
        _ => None,
    }
}

/// Sets a field of the assistant's message at the end where it has none yet; else it begins a new
/// message.
fn set_or_push(name: &str, value: Json, messages: &mut Vec<Dict>) {
    let last = messages.last_mut().filter(|last| last.str("role") == Some("assistant"));
    match last {
        Some(last) if last.non_null(name).is_none() => last.set(name, value),
        _ => {
            let mut message = Dict::default();
            message.set("role", Json::Str("assistant".to_owned()));
            message.set(name, value);
            messages.push(message);
        }
    }
}

fn call(id: String, name: String, arguments: String) -> Json {
    let mut function = Dict::default();
    function.set("name", Json::Str(name));
    function.set("arguments", Json::Str(arguments));
    let mut call = Dict::default();
    call.set("id", Json::Str(id));
    call.set("function", Json::Dict(function));
    call.set("type", Json::Str("function".to_owned()));
    Json::Dict(call)
}

fn push_call(call: Json, messages: &mut Vec<Dict>) {
    let last = messages.last_mut().filter(|last| last.str("role") == Some("assistant"));
    let Some(last) = last else {
        let mut message = Dict::default();
        message.set("role", Json::Str("assistant".to_owned()));
        message.set("tool_calls", Json::List(vec![call]));
        messages.push(message);
        return;
    };
    if let Some((_, Json::List(calls))) = last.0.iter_mut().find(|(k, _)| k == "tool_calls") {
        calls.push(call);
    } else {
        last.set("tool_calls", Json::List(vec![call]));
    }
}
