//! The tools of a request, and what its messages change about them.

use super::blocks::{Content, Message};
use crate::Unrouted;
use crate::chat::dump_tools;
use crate::fields::wrong_type;
use crate::json::{Dict, Json};

/// The tools at the end of the conversation, with those that messages added and without those they
/// removed.
pub(super) fn in_effect(
    tools: Option<Json>,
    messages: &[Message],
) -> Result<Option<Vec<Dict>>, Unrouted> {
    let tools = match tools {
        None => None,
        Some(Json::List(tools)) => {
            Some(tools.into_iter().map(tool).collect::<Result<Vec<_>, _>>()?)
        }
        Some(_) => return Err(wrong_type("tools", "a list")),
    };
    let blocks = messages.iter().filter_map(|m| match &m.content {
        Content::Blocks(blocks) => Some(blocks),
        Content::Text(_) => None,
    });
    let is_change = |b: &&Dict| matches!(b.str("type"), Some("tool_addition" | "tool_removal"));
    let changes: Vec<&Dict> = blocks.flatten().filter(is_change).collect();
    if changes.is_empty() {
        return Ok(tools);
    }
    // Of tools with one name the last counts, in the first one's place.
    let mut known: Vec<(Dict, bool)> = Vec::new();
    for tool in tools.unwrap_or_default() {
        put(tool, &mut known);
    }
    for block in changes {
        apply(block, &mut known)?;
    }
    Ok(Some(known.into_iter().filter(|(_, removed)| !removed).map(|(tool, _)| tool).collect()))
}

fn put(tool: Dict, known: &mut Vec<(Dict, bool)>) {
    match known.iter_mut().find(|(k, _)| k.str("name") == tool.str("name")) {
        Some(slot) => slot.0 = tool,
        None => known.push((tool, false)),
    }
}

fn apply(block: &Dict, known: &mut Vec<(Dict, bool)>) -> Result<(), Unrouted> {
    let change = block.get("tool").and_then(Json::as_dict);
    let Some(change) = change else { return Err(wrong_type("content.tool", "an object")) };
    let is_removal = block.str("type") == Some("tool_removal");
    let (name, by_value) = match (change.str("type"), change.get("definition")) {
        (Some("tool_definition"), Some(definition)) if !is_removal => {
            let definition = tool(definition.clone())?;
            let name = definition.str("name").unwrap_or_default().to_owned();
            put(definition, known);
            (name, true)
        }
        (Some("tool_reference"), _) => (change.str("name").unwrap_or_default().to_owned(), false),
        _ => return Err(wrong_type("content.tool.type", "a reference or a definition")),
    };
    let Some((tool, removed)) = known.iter_mut().find(|(t, _)| t.str("name") == Some(&name)) else {
        return Err(Unrouted::Body(format!("no tool `{name}` is declared")));
    };
    if !is_removal && !by_value {
        tool.remove("defer_loading");
    }
    *removed = is_removal;
    Ok(())
}

/// A tool whose schema is an object, and says so.
fn tool(tool: Json) -> Result<Dict, Unrouted> {
    let Json::Dict(mut tool) = tool else { return Err(wrong_type("tools", "a list of objects")) };
    if tool.str("name").is_none() {
        return Err(wrong_type("tools.name", "a string"));
    }
    let Some((_, Json::Dict(schema))) = tool.0.iter_mut().find(|(k, _)| k == "input_schema") else {
        return Err(wrong_type("tools.input_schema", "an object"));
    };
    if !schema.contains("type") {
        schema.set("type", Json::Str("object".to_owned()));
    }
    Ok(tool)
}

/// The tools as a chat's.
pub(super) fn dump(tools: Vec<Dict>) -> Result<Json, Unrouted> {
    if tools.is_empty() {
        return Ok(Json::List(Vec::new()));
    }
    let function = |tool: Dict| {
        let mut function = Dict::default();
        for (name, from) in [
            ("name", "name"),
            ("description", "description"),
            ("parameters", "input_schema"),
            ("strict", "strict"),
            ("defer_loading", "defer_loading"),
        ] {
            function.set(name, tool.get(from).cloned().unwrap_or(Json::Null));
        }
        let mut out = Dict::default();
        out.set("type", Json::Str("function".to_owned()));
        out.set("function", Json::Dict(function));
        Json::Dict(out)
    };
    dump_tools(Json::List(tools.into_iter().map(function).collect()))
}
