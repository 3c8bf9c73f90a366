//! The tools of a response, which are flatter than those of a chat.

use crate::Unrouted;
use crate::chat::dump_tools;
use crate::fields::wrong_type;
use crate::json::{Dict, Json};

/// The argument that carries the text of a custom tool's call.
pub(super) const CUSTOM_INPUT: &str = "input";

/// Tools the engine takes but does not show to the model.
const NOT_SHOWN: [&str; 14] = [
    "file_search",
    "computer",
    "computer_use_preview",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "mcp",
    "code_interpreter",
    "image_generation",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
];

/// Checks the list's types.
pub(super) fn read(tools: Vec<Json>) -> Result<Vec<Dict>, Unrouted> {
    let tool = |tool: Json| {
        let Json::Dict(tool) = tool else { return Err(wrong_type("tools", "a list of objects")) };
        let is_named = tool.str("name").is_some();
        match tool.str("type") {
            Some("function" | "custom" | "namespace") if is_named => Ok(tool),
            Some(kind) if NOT_SHOWN.contains(&kind) => Ok(tool),
            _ => Err(wrong_type("tools", "known kinds of tools with their names")),
        }
    };
    tools.into_iter().map(tool).collect()
}

/// The name of a function in a namespace.
pub(super) fn flat_name(namespace: &str, name: &str) -> String {
    format!("{namespace}__{name}")
}

/// The functions the model is shown, as a chat's tools.
pub(super) fn dump(tools: Vec<Dict>) -> Result<Json, Unrouted> {
    let mut functions = Vec::new();
    for tool in tools {
        match tool.str("type") {
            Some("function") => functions.push(function(tool)),
            Some("custom") => functions.push(custom(&tool)?),
            Some("namespace") => {
                let namespace = tool.str("name").unwrap_or_default().to_owned();
                let inner = tool.get("tools").and_then(Json::as_list).unwrap_or_default();
                for tool in inner.iter().filter_map(Json::as_dict) {
                    if tool.str("type") == Some("function") {
                        let name = tool.str("name").unwrap_or_default();
                        let mut tool = tool.clone();
                        tool.set("name", Json::Str(flat_name(&namespace, name)));
                        functions.push(function(tool));
                    }
                }
            }
            _ => {}
        }
    }
    // Nothing to show is still a list for the template.
    if functions.is_empty() { Ok(Json::List(functions)) } else { dump_tools(Json::List(functions)) }
}

fn function(mut tool: Dict) -> Json {
    tool.remove("type");
    let mut out = Dict::default();
    out.set("type", Json::Str("function".to_owned()));
    out.set("function", Json::Dict(tool));
    Json::Dict(out)
}

/// A custom tool as the function with one text it is shown as.
fn custom(tool: &Dict) -> Result<Json, Unrouted> {
    let grammar = |f: &Dict| f.str("type") == Some("grammar");
    if tool.get("format").and_then(Json::as_dict).is_some_and(grammar) {
        return Err(Unrouted::Body("custom tools with a grammar are not supported".to_owned()));
    }
    let text = |s: &str| Json::Str(s.to_owned());
    let object = |pairs: Vec<(&str, Json)>| {
        Json::Dict(Dict(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))
    };
    let input = object(vec![
        ("type", text("string")),
        ("description", text("The freeform text payload for this tool.")),
    ]);
    let parameters = object(vec![
        ("type", text("object")),
        ("properties", object(vec![(CUSTOM_INPUT, input)])),
        ("required", Json::List(vec![text(CUSTOM_INPUT)])),
        ("additionalProperties", Json::Bool(false)),
    ]);
    let mut out = Dict::default();
    out.set("name", tool.get("name").cloned().unwrap_or(Json::Null));
    out.set("description", tool.get("description").cloned().unwrap_or(Json::Null));
    out.set("parameters", parameters);
    Ok(function(out))
}
