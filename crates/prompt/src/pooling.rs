//! `/v1/embeddings`, `/v1/rerank` and `/v1/score`: texts and chats that are read once, as vLLM 0.32's
//! pooling request models have them.

use crate::Unrouted;
use crate::chat::{self, Chat, Given};
use crate::completion::{self, Completion, Prompt};
use crate::fields::{Fields, Truncation, wrong_type};
use crate::json::{Dict, Json};

/// What is to be embedded.
#[derive(Debug)]
pub(crate) enum Embeddings {
    Texts(Completion),
    Chats(Vec<Chat>),
}

const FIELDS: [&str; 10] = [
    "input",
    "messages",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "padding",
];

/// Reads a body of `/v1/embeddings`.
pub(crate) fn embeddings(body: &[u8]) -> Result<Embeddings, Unrouted> {
    let fields = Fields::read(body, &FIELDS)?;
    if fields.get("padding")?.is_some_and(|p| p.as_str() != Some("do_not_pad")) {
        return Err(Unrouted::UnsupportedField("`padding` is not reproduced here".to_owned()));
    }
    let truncation = truncation(&fields)?;
    if let Some(messages) = fields.get("messages")? {
        let Some(conversations) = conversations(&messages) else {
            return Err(wrong_type("messages", "a list of messages, or of such lists"));
        };
        return chats(&fields, conversations, truncation);
    }
    let input =
        fields.get("input")?.ok_or_else(|| Unrouted::Body("`input` is missing".to_owned()))?;
    if let Some(conversations) = conversations(&input) {
        return chats(&fields, conversations, truncation);
    }
    let prompts = completion::prompts(input)?;
    let add_special_tokens = fields.flag("add_special_tokens", true)?;
    Ok(Embeddings::Texts(Completion { prompts, add_special_tokens, truncation }))
}

/// Where no side is given the end is cut, unlike in generation.
fn truncation(fields: &Fields<'_>) -> Result<Truncation, Unrouted> {
    Ok(match fields.truncation()? {
        Truncation::Last { keep } => Truncation::First { keep },
        other => other,
    })
}

/// One conversation or several, if it is one.
fn conversations(value: &Json) -> Option<Vec<Vec<Dict>>> {
    let messages = |value: &Json| {
        let items = value.as_list().filter(|items| !items.is_empty())?;
        let message = |item: &Json| item.as_dict().filter(|m| m.str("role").is_some()).cloned();
        items.iter().map(message).collect::<Option<Vec<_>>>()
    };
    messages(value).map(|one| vec![one]).or_else(|| {
        let items = value.as_list().filter(|items| !items.is_empty())?;
        items.iter().map(messages).collect()
    })
}

fn chats(
    fields: &Fields<'_>,
    conversations: Vec<Vec<Dict>>,
    truncation: Truncation,
) -> Result<Embeddings, Unrouted> {
    chat::refuse_template(fields)?;
    let add_generation_prompt = fields.flag("add_generation_prompt", false)?;
    let continue_final_message = fields.flag("continue_final_message", false)?;
    if add_generation_prompt && continue_final_message {
        return Err(Unrouted::Body(
            "`continue_final_message` and `add_generation_prompt` exclude each other".to_owned(),
        ));
    }
    let add_special_tokens = fields.flag("add_special_tokens", false)?;
    let chat = |messages: Vec<Dict>| {
        let kwargs = chat::kwargs(fields)?;
        let given = Given { kwargs, add_generation_prompt, ..Given::default() };
        let (variables, has_tools) = given.variables()?;
        Ok(Chat {
            messages,
            variables,
            has_tools,
            tools: None,
            reasoning_effort: None,
            continue_final_message,
            keeps_key_order: false,
            add_special_tokens,
            truncation,
        })
    };
    conversations.into_iter().map(chat).collect::<Result<_, _>>().map(Embeddings::Chats)
}

/// The names queries and documents go by.
const QUERIES: [&str; 4] = ["query", "queries", "text_1", "data_1"];
const DOCUMENTS: [&str; 4] = ["documents", "items", "text_2", "data_2"];

/// The texts of a body of `/v1/rerank` or `/v1/score`: the queries, then the documents.
pub(crate) fn scores(body: &[u8]) -> Result<Completion, Unrouted> {
    let names: Vec<&str> = QUERIES.into_iter().chain(DOCUMENTS).collect();
    let fields = Fields::read(body, &names)?;
    let mut prompts = Vec::new();
    for side in [QUERIES, DOCUMENTS] {
        let mut given = None;
        for name in side {
            given = given.or(fields.get(name)?);
        }
        let given = given.ok_or_else(|| Unrouted::Body(format!("`{}` is missing", side[0])))?;
        let before = prompts.len();
        match given {
            Json::List(items) => {
                for item in items {
                    prompts.push(text(item)?);
                }
            }
            one => prompts.push(text(one)?),
        }
        if prompts.len() == before {
            return Err(Unrouted::Body(format!("`{}` is empty", side[0])));
        }
    }
    Ok(Completion { prompts, add_special_tokens: true, truncation: Truncation::None })
}

fn text(item: Json) -> Result<Prompt, Unrouted> {
    match item {
        Json::Str(text) => Ok(Prompt::Text(text)),
        Json::Dict(item) => match item.get("content") {
            Some(Json::List(_)) => Err(Unrouted::Multimodal("content".to_owned())),
            _ => Err(wrong_type("documents", "texts")),
        },
        _ => Err(wrong_type("documents", "texts")),
    }
}
