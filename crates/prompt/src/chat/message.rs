//! Messages: from the client's objects to the conversation a template walks over.

use super::super::template::ContentFormat;
use crate::Unrouted;
use crate::fields::wrong_type;
use crate::json::{self, Dict, Json};

/// Roles whose content vLLM's types know; parts of other roles may be plain strings.
const KNOWN_ROLES: [&str; 6] = ["developer", "system", "user", "assistant", "tool", "function"];

/// Part types that carry something other than text.
const MEDIA: [&str; 10] = [
    "image_url",
    "input_image",
    "image_pil",
    "image_embeds",
    "audio_url",
    "input_audio",
    "audio_embeds",
    "video_url",
    "video_embeds",
    "prompt_embeds",
];

/// Keys of content parts that vLLM's types declare: every other key of a text part reaches the
/// template.
const PART_KEYS: [&str; 18] = [
    "type",
    "text",
    "prompt_cache_breakpoint",
    "image_url",
    "input_audio",
    "file",
    "audio_url",
    "video_url",
    "refusal",
    "image_pil",
    "uuid",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "data",
    "name",
    "thinking",
    "closed",
];

/// A first line clients add to system prompts that changes with every request; vLLM drops it.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// One content part.
enum Part {
    Text {
        text: String,
        extra: Vec<(String, Json)>,
    },
    Reference(String),
    /// An image or the like, by its kind.
    Media(String),
    /// What stands for the first image or the like.
    Mark(&'static str),
}

/// Images and the like in a conversation.
#[derive(Debug, Default)]
pub(crate) struct Media {
    /// A text to put where the first one is.
    pub(crate) mark: Option<&'static str>,
    /// The kind of the first one.
    pub(crate) first: Option<String>,
    pub(crate) count: usize,
}

/// What decides how messages are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) format: ContentFormat,
    /// The template handles this role.
    pub(crate) knows_developer: bool,
    /// See [`super::Chat::keeps_key_order`].
    pub(crate) keeps_key_order: bool,
}

impl Media {
    fn part(&mut self, kind: String) -> Part {
        self.count += 1;
        let is_first = self.first.is_none();
        if is_first {
            self.first = Some(kind.clone());
        }
        match self.mark {
            Some(mark) if is_first => Part::Mark(mark),
            _ => Part::Media(kind),
        }
    }
}

/// The conversation as the template gets it.
pub(crate) fn conversation(
    messages: Vec<Dict>,
    reading: Reading,
    media: &mut Media,
) -> Result<Vec<Dict>, Unrouted> {
    let mut out =
        messages.into_iter().map(|m| message(m, reading, media)).collect::<Result<Vec<_>, _>>()?;
    if !reading.knows_developer && out.iter().any(|m| m.str("role") == Some("developer")) {
        for m in &mut out {
            if m.str("role") == Some("developer") {
                m.set("role", Json::Str("system".to_owned()));
                m.remove("tools");
            }
        }
        out = merge_system(out);
    }
    Ok(out)
}

fn message(mut source: Dict, reading: Reading, media: &mut Media) -> Result<Dict, Unrouted> {
    let Some(Json::Str(role)) = source.remove("role") else {
        return Err(wrong_type("messages.role", "a string"));
    };
    let mut parts = parts(&mut source, &role, media)?;
    if role == "system" {
        parts = strip_billing_header(parts);
    }
    let mut out = Dict::default();
    out.set("role", Json::Str(role.clone()));
    out.set("content", content(parts, reading.format, &role));
    match role.as_str() {
        "assistant" => assistant(&mut source, &mut out, reading.keeps_key_order)?,
        "tool" => {
            if let Some(id) = source.remove("tool_call_id") {
                out.set("tool_call_id", id);
            }
        }
        _ => {}
    }
    for name in ["name", "task"] {
        if let Some(text @ Json::Str(_)) = source.remove(name) {
            out.set(name, text);
        }
    }
    if role == "developer" {
        out.set("tools", developer_tools(source.remove("tools")));
    }
    Ok(out)
}

fn parts(source: &mut Dict, role: &str, media: &mut Media) -> Result<Vec<Part>, Unrouted> {
    match source.remove("content") {
        None => Ok(Vec::new()),
        Some(Json::Null) if matches!(role, "assistant" | "function") => Ok(Vec::new()),
        Some(Json::Str(text)) => Ok(vec![Part::Text { text, extra: Vec::new() }]),
        Some(Json::List(items)) => {
            // vLLM's union of message types picks one that allows strings only if some part is
            // an object, or the role is none of OpenAI's.
            let strings =
                !KNOWN_ROLES.contains(&role) || items.iter().any(|i| i.as_dict().is_some());
            items.into_iter().filter_map(|item| part(item, strings, media).transpose()).collect()
        }
        Some(_) => Err(wrong_type("messages.content", "a string or a list of parts")),
    }
}

fn part(item: Json, strings: bool, media: &mut Media) -> Result<Option<Part>, Unrouted> {
    let mut part = match item {
        Json::Str(text) if strings => return Ok(Some(Part::Text { text, extra: Vec::new() })),
        Json::Dict(part) => part,
        _ => return Err(wrong_type("messages.content", "made of objects")),
    };
    let has_uuid = part.non_null("uuid").is_some();
    let kind = match part.non_null("type") {
        Some(Json::Str(kind)) if !has_uuid => kind.clone(),
        Some(Json::Str(kind)) if MEDIA.contains(&kind.as_str()) => kind.clone(),
        Some(Json::Str(_)) | None => untyped(&part)?,
        Some(_) => return Err(wrong_type("messages.content.type", "a string")),
    };
    let field = match kind.as_str() {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        "thinking" => "thinking",
        "tool_reference" => "name",
        known if MEDIA.contains(&known) => return Ok(Some(media.part(kind))),
        _ => return Err(Unrouted::Body(format!("unsupported content part type `{kind}`"))),
    };
    match part.remove(field) {
        None | Some(Json::Null) if matches!(kind.as_str(), "text" | "refusal") => Ok(None),
        Some(Json::Str(name)) if kind == "tool_reference" => Ok(Some(Part::Reference(name))),
        Some(Json::Str(text)) => {
            let mut extra = part.0;
            extra.retain(|(k, _)| !PART_KEYS.contains(&k.as_str()));
            Ok(Some(Part::Text { text, extra }))
        }
        _ => Err(wrong_type(&format!("messages.content.{field}"), "a string")),
    }
}

/// The kind of a part that does not say it.
fn untyped(part: &Dict) -> Result<String, Unrouted> {
    if let Some(media) = MEDIA.iter().find(|m| part.contains(m)) {
        return Ok((*media).to_owned());
    }
    if part.contains("tool_reference") {
        return Ok("tool_reference".to_owned());
    }
    Err(Unrouted::Body("a content part has no `type`".to_owned()))
}

fn strip_billing_header(parts: Vec<Part>) -> Vec<Part> {
    let strip = |part: Part| match part {
        Part::Text { text, extra } if text.starts_with(BILLING_HEADER) => {
            let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
            (!rest.is_empty()).then(|| Part::Text { text: rest.to_owned(), extra })
        }
        other => Some(other),
    };
    parts.into_iter().filter_map(strip).collect()
}

fn content(parts: Vec<Part>, format: ContentFormat, role: &str) -> Json {
    let references = parts.iter().any(|p| matches!(p, Part::Reference(_)));
    // Tool results are given as one string unless they refer to tools.
    if format == ContentFormat::String || (role == "tool" && !references) {
        // Here placeholders go before all text.
        let is_mark = |p: &Part| matches!(p, Part::Mark(_));
        let (marks, parts): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_mark);
        let texts: Vec<String> = marks
            .into_iter()
            .chain(parts)
            .map(|p| match p {
                Part::Text { text, .. } => text,
                Part::Reference(name) => name,
                Part::Media(_) => String::new(),
                Part::Mark(mark) => mark.to_owned(),
            })
            // In this format vLLM drops parts without text.
            .filter(|text| format == ContentFormat::OpenAi || !text.is_empty())
            .collect();
        return Json::Str(texts.join("\n"));
    }
    let dict = |p: Part| {
        let mut out = Dict::default();
        match p {
            Part::Text { text, extra } => {
                out.set("type", Json::Str("text".to_owned()));
                out.set("text", Json::Str(text));
                out.0.extend(extra);
            }
            Part::Reference(name) => {
                out.set("type", Json::Str("tool_reference".to_owned()));
                out.set("name", Json::Str(name));
            }
            Part::Media(kind) => out.set("type", Json::Str(modality(&kind).to_owned())),
            Part::Mark(mark) => {
                out.set("type", Json::Str("text".to_owned()));
                out.set("text", Json::Str(mark.to_owned()));
            }
        }
        Json::Dict(out)
    };
    Json::List(parts.into_iter().map(dict).collect())
}

/// What templates know a kind of part as.
fn modality(kind: &str) -> &'static str {
    match kind {
        "audio_url" | "input_audio" | "audio_embeds" => "audio",
        "video_url" | "video_embeds" => "video",
        "prompt_embeds" => "prompt_embeds",
        _ => "image",
    }
}

fn assistant(source: &mut Dict, out: &mut Dict, keeps_order: bool) -> Result<(), Unrouted> {
    match source.remove("tool_calls") {
        None | Some(Json::Null) => {}
        Some(Json::List(calls)) => {
            let calls = calls
                .into_iter()
                .map(|call| tool_call(call, keeps_order))
                .collect::<Result<Vec<_>, _>>()?;
            if !calls.is_empty() {
                out.set("tool_calls", Json::List(calls));
            }
        }
        Some(_) => return Err(wrong_type("messages.tool_calls", "a list")),
    }
    let old = source.remove("reasoning_content");
    let reasoning = source.remove("reasoning").filter(|r| *r != Json::Null).or(old);
    if let Some(reasoning) = reasoning.filter(|r| *r != Json::Null) {
        out.set("reasoning", reasoning.clone());
        out.set("reasoning_content", reasoning);
    }
    Ok(())
}

/// A tool call: declared keys first, as pydantic orders them, and the arguments as an object.
fn tool_call(call: Json, keeps_order: bool) -> Result<Json, Unrouted> {
    let Json::Dict(mut call) = call else {
        return Err(wrong_type("messages.tool_calls", "a list of objects"));
    };
    if call.str("type") != Some("function") || call.str("id").is_none() {
        return Err(wrong_type("messages.tool_calls", "calls of type \"function\" with an id"));
    }
    let Some(Json::Dict(mut function)) = call.get("function").cloned() else {
        return Err(wrong_type("messages.tool_calls.function", "an object"));
    };
    if function.str("name").is_none() {
        return Err(wrong_type("messages.tool_calls.function.name", "a string"));
    }
    let Some(text) = function.str("arguments") else {
        return Err(wrong_type("messages.tool_calls.function.arguments", "a string"));
    };
    let arguments = arguments(text)?;
    function.set("arguments", arguments);
    if !keeps_order {
        function = function.declared_first(&["arguments", "name"]);
        call = call.declared_first(&["id", "function", "type"]);
    }
    call.set("function", Json::Dict(function));
    Ok(Json::Dict(call))
}

/// Arguments parsed; whatever is no object becomes an empty one, so that a bad call in the
/// history does not spoil the conversation.
fn arguments(text: &str) -> Result<Json, Unrouted> {
    match json::parse(text) {
        Ok(object @ Json::Dict(_)) => Ok(object),
        Ok(_) => Ok(Json::Dict(Dict::default())),
        Err(e) if e.malformed => Ok(Json::Dict(Dict::default())),
        Err(e) => Err(Unrouted::Body(format!("tool call arguments: {}", e.message))),
    }
}

fn developer_tools(tools: Option<Json>) -> Json {
    let Some(Json::List(items)) = tools else { return tools.unwrap_or(Json::Null) };
    let order = |item: Json| {
        let Json::Dict(mut tool) = item else { return item };
        if let Some(Json::Dict(function)) = tool.remove("function") {
            let declared = ["name", "description", "parameters", "strict"];
            tool.set("function", Json::Dict(function.declared_first(&declared)));
        }
        Json::Dict(tool.declared_first(&["function", "type"]))
    };
    Json::List(items.into_iter().map(order).collect())
}

/// All system messages as one in front, if there are several or it is not in front already.
fn merge_system(messages: Vec<Dict>) -> Vec<Dict> {
    let is_system = |m: &Dict| m.str("role") == Some("system");
    let out_of_place = messages.iter().skip(1).any(is_system);
    if !out_of_place {
        return messages;
    }
    let (system, mut rest): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_system);
    let texts: Vec<String> = system
        .iter()
        .filter_map(|m| m.get("content"))
        .map(plain_text)
        .filter(|t| !t.is_empty())
        .collect();
    let mut merged = Dict::default();
    merged.set("role", Json::Str("system".to_owned()));
    merged.set("content", Json::Str(texts.join("\n\n")));
    rest.insert(0, merged);
    rest
}

fn plain_text(content: &Json) -> String {
    match content {
        Json::Str(text) => text.clone(),
        Json::List(parts) => {
            let texts: Vec<&str> =
                parts.iter().filter_map(Json::as_dict).filter_map(|p| p.str("text")).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}
