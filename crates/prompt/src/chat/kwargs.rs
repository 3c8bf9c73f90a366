//! The variables of a template: fields of the body over `chat_template_kwargs`.

use super::tools;
use crate::Unrouted;
use crate::fields::{Fields, wrong_type};
use crate::json::{Dict, Json};

const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Parameters of transformers' `apply_chat_template` itself: a key of that name never reaches
/// the template. With text output they change nothing.
const NOT_VARIABLES: [&str; 9] = [
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "tokenizer_kwargs",
    "continue_final_message",
];

/// Keys that collide with arguments of the functions on the way: a Python `TypeError`.
const REFUSED: [&str; 4] = ["messages", "conversation", "model_config", "tokenizer"];

/// The template's variables, and whether tools are given.
pub(crate) fn variables(fields: &Fields<'_>) -> Result<(Dict, bool), Unrouted> {
    let mut kwargs = match fields.get("chat_template_kwargs")? {
        None => Dict::default(),
        Some(Json::Dict(kwargs)) => kwargs,
        Some(_) => return Err(wrong_type("chat_template_kwargs", "an object")),
    };
    check(&kwargs)?;
    let had_enable_thinking = kwargs.contains("enable_thinking");
    // vLLM's merging treats these two values as not given.
    let is_set = |v: &Json| !matches!(v, Json::Null) && v.as_str() != Some("auto");
    kwargs.0.retain(|(k, v)| is_set(v) && !NOT_VARIABLES.contains(&k.as_str()));

    for name in ["tools", "documents"] {
        if let Some(value) = kwargs.get(name) {
            tools::check_dicts(name, value)?;
        }
    }
    // The body's tools are the default under the kwargs, its other fields go over them.
    if let Some(value) = fields.get("tools")? {
        let dumped = tools::from_body(value)?;
        if !kwargs.contains("tools") {
            kwargs.set("tools", dumped);
        }
    }
    if let Some(value) = fields.get("documents")? {
        kwargs.set("documents", tools::documents(value)?);
    }
    kwargs.set("add_generation_prompt", Json::Bool(fields.flag("add_generation_prompt", true)?));
    if let Some(effort) = fields.get("reasoning_effort")? {
        let known = effort.as_str().filter(|e| EFFORTS.contains(e));
        let effort =
            known.ok_or_else(|| wrong_type("reasoning_effort", "one of its known values"))?;
        kwargs.set("reasoning_effort", Json::Str(effort.to_owned()));
        if !had_enable_thinking {
            kwargs.set("enable_thinking", Json::Bool(effort != "none"));
        }
    }
    let has_tools = kwargs.contains("tools");
    for name in ["tools", "documents"] {
        if !kwargs.contains(name) {
            kwargs.set(name, Json::Null);
        }
    }
    Ok((kwargs, has_tools))
}

fn check(kwargs: &Dict) -> Result<(), Unrouted> {
    if let Some(name) = REFUSED.iter().find(|name| kwargs.contains(name)) {
        return Err(Unrouted::Body(format!("`chat_template_kwargs` must not have `{name}`")));
    }
    if kwargs.non_null("chat_template").is_some() {
        return Err(Unrouted::UnsupportedField(
            "`chat_template` of a request is used only by engines told to trust it".to_owned(),
        ));
    }
    if kwargs.get("return_assistant_tokens_mask").is_some_and(Json::is_truthy) {
        return Err(Unrouted::Body("`return_assistant_tokens_mask` needs token output".to_owned()));
    }
    Ok(())
}
