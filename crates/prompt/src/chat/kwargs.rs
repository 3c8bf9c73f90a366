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

/// What a request gives its template besides messages.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// `chat_template_kwargs`.
    pub(crate) kwargs: Dict,
    /// The body's tools, as the engine's request model dumps them.
    pub(crate) tools: Option<Json>,
    pub(crate) documents: Option<Json>,
    pub(crate) add_generation_prompt: bool,
    pub(crate) effort: Option<String>,
}

impl Given {
    /// What a chat request gives.
    pub(crate) fn of_chat(fields: &Fields<'_>) -> Result<Self, Unrouted> {
        Ok(Self {
            kwargs: kwargs(fields)?,
            tools: fields.get("tools")?.map(tools::from_body).transpose()?,
            documents: fields.get("documents")?.map(tools::documents).transpose()?,
            add_generation_prompt: fields.flag("add_generation_prompt", true)?,
            effort: fields.get("reasoning_effort")?.map(|e| effort(&e)).transpose()?,
        })
    }

    /// The template's variables, and whether tools are given.
    pub(crate) fn variables(self) -> Result<(Dict, bool), Unrouted> {
        let mut kwargs = self.kwargs;
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
        if let Some(tools) = self.tools
            && !kwargs.contains("tools")
        {
            kwargs.set("tools", tools);
        }
        if let Some(documents) = self.documents {
            kwargs.set("documents", documents);
        }
        kwargs.set("add_generation_prompt", Json::Bool(self.add_generation_prompt));
        if let Some(effort) = self.effort {
            if !had_enable_thinking {
                kwargs.set("enable_thinking", Json::Bool(effort != "none"));
            }
            kwargs.set("reasoning_effort", Json::Str(effort));
        }
        let has_tools = kwargs.contains("tools");
        for name in ["tools", "documents"] {
            if !kwargs.contains(name) {
                kwargs.set(name, Json::Null);
            }
        }
        Ok((kwargs, has_tools))
    }
}

/// `chat_template_kwargs` of a body.
pub(crate) fn kwargs(fields: &Fields<'_>) -> Result<Dict, Unrouted> {
    match fields.get("chat_template_kwargs")? {
        None => Ok(Dict::default()),
        Some(Json::Dict(kwargs)) => Ok(kwargs),
        Some(_) => Err(wrong_type("chat_template_kwargs", "an object")),
    }
}

/// One of the efforts the engine's request model knows.
pub(crate) fn effort(value: &Json) -> Result<String, Unrouted> {
    let known = value.as_str().filter(|e| EFFORTS.contains(e));
    known
        .map(str::to_owned)
        .ok_or_else(|| wrong_type("reasoning_effort", "one of its known values"))
}

/// A template among the variables is one of the request's own.
pub(crate) fn refuse_template_in(kwargs: &Dict) -> Result<(), Unrouted> {
    if kwargs.non_null("chat_template").is_some() {
        return Err(Unrouted::UnsupportedField(
            "`chat_template` of a request is used only by engines told to trust it".to_owned(),
        ));
    }
    Ok(())
}

fn check(kwargs: &Dict) -> Result<(), Unrouted> {
    if let Some(name) = REFUSED.iter().find(|name| kwargs.contains(name)) {
        return Err(Unrouted::Body(format!("`chat_template_kwargs` must not have `{name}`")));
    }
    refuse_template_in(kwargs)?;
    if kwargs.get("return_assistant_tokens_mask").is_some_and(Json::is_truthy) {
        return Err(Unrouted::Body("`return_assistant_tokens_mask` needs token output".to_owned()));
    }
    Ok(())
}
