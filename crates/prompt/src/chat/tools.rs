//! Tools and documents of a chat request.

use crate::Unrouted;
use crate::fields::wrong_type;
use crate::json::{Dict, Json};

/// The tools as vLLM dumps its request model: declared fields only, in their order, with
/// `description` and `parameters` null where the client left them out.
pub(crate) fn from_body(value: Json) -> Result<Json, Unrouted> {
    let Json::List(items) = value else { return Err(wrong_type("tools", "a list")) };
    if items.is_empty() {
        return Err(Unrouted::Body("`tools` must not be an empty list".to_owned()));
    }
    items.into_iter().map(tool).collect::<Result<Vec<_>, _>>().map(Json::List)
}

fn tool(item: Json) -> Result<Json, Unrouted> {
    let Json::Dict(mut tool) = item else { return Err(wrong_type("tools", "a list of objects")) };
    match tool.get("type") {
        None => {}
        Some(Json::Str(kind)) if kind == "function" => {}
        Some(_) => return Err(wrong_type("tools.type", "\"function\"")),
    }
    let Some(Json::Dict(function)) = tool.remove("function") else {
        return Err(wrong_type("tools.function", "an object"));
    };
    let defer = optional_flag(&tool, "defer_loading")?;
    let mut out = Dict::default();
    out.set("type", Json::Str("function".to_owned()));
    out.set("function", Json::Dict(definition(function, defer)?));
    if let Some(defer) = defer {
        out.set("defer_loading", Json::Bool(defer));
    }
    Ok(Json::Dict(out))
}

fn definition(mut function: Dict, outer_defer: Option<bool>) -> Result<Dict, Unrouted> {
    let mut out = Dict::default();
    match function.remove("name") {
        Some(name @ Json::Str(_)) => out.set("name", name),
        _ => return Err(wrong_type("tools.function.name", "a string")),
    }
    match function.remove("description").unwrap_or(Json::Null) {
        text @ (Json::Str(_) | Json::Null) => out.set("description", text),
        _ => return Err(wrong_type("tools.function.description", "a string")),
    }
    match function.remove("parameters").unwrap_or(Json::Null) {
        schema @ (Json::Dict(_) | Json::Null) => out.set("parameters", schema),
        _ => return Err(wrong_type("tools.function.parameters", "an object")),
    }
    if let Some(strict) = optional_flag(&function, "strict")? {
        out.set("strict", Json::Bool(strict));
    }
    if let Some(defer) = optional_flag(&function, "defer_loading")?.or(outer_defer) {
        out.set("defer_loading", Json::Bool(defer));
    }
    Ok(out)
}

fn optional_flag(dict: &Dict, name: &str) -> Result<Option<bool>, Unrouted> {
    dict.non_null(name)
        .map(|v| v.as_lax_bool().ok_or_else(|| wrong_type(&format!("tools.{name}"), "a boolean")))
        .transpose()
}

/// Documents of the body: objects of strings.
pub(crate) fn documents(value: Json) -> Result<Json, Unrouted> {
    let is_document =
        |d: &Json| d.as_dict().is_some_and(|d| d.0.iter().all(|(_, v)| matches!(v, Json::Str(_))));
    match value {
        Json::List(items) if items.iter().all(is_document) => Ok(Json::List(items)),
        _ => Err(wrong_type("documents", "a list of objects with string values")),
    }
}

/// Tools or documents from `chat_template_kwargs`, which only transformers checks.
pub(crate) fn check_dicts(name: &str, value: &Json) -> Result<(), Unrouted> {
    match value {
        Json::List(items) if items.iter().all(|i| i.as_dict().is_some()) => Ok(()),
        _ => Err(wrong_type(&format!("chat_template_kwargs.{name}"), "a list of objects")),
    }
}
