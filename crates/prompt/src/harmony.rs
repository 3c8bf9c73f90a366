//! gpt-oss models: vLLM 0.32 renders their chats with `openai_harmony`, not with a template.
//!
//! A conversation becomes a list of messages; each is a header and contents between marks that are
//! single tokens, and every piece of text between them is tokenised by itself, so that text that
//! looks like a mark is none.

mod chat;
mod responses;
mod schema;

pub(crate) use chat::read as read_chat;
pub(crate) use responses::read as read_responses;

use crate::Unrouted;
use crate::clock::CivilTime;
use crate::json::Json;
use crate::tokenizer::Tokenizer;

/// What every conversation begins with, but for the date and the effort.
const IDENTITY: &str = "You are ChatGPT, a large language model trained by OpenAI.\n\
                        Knowledge cutoff: 2024-06";
const CHANNELS: &str = "# Valid channels: analysis, commentary, final. Channel must be included \
                        for every message.";
const CALLS: &str = "Calls to these tools must go to the commentary channel: 'functions'.";

/// Who a message is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Author {
    System,
    Developer,
    User,
    Assistant,
    /// A tool, by its full name.
    Tool(String),
}

impl Author {
    /// The author of a role that is no tool's.
    fn of(role: &str) -> Result<Self, Unrouted> {
        Ok(match role {
            "system" => Self::System,
            "developer" => Self::Developer,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            _ => return Err(Unrouted::Body(format!("Harmony has no role `{role}`"))),
        })
    }

    fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool(name) => name,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Analysis,
    Commentary,
    Final,
}

impl Channel {
    fn name(self) -> &'static str {
        match self {
            Self::Analysis => "analysis",
            Self::Commentary => "commentary",
            Self::Final => "final",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    author: Author,
    channel: Option<Channel>,
    recipient: Option<String>,
    contents: Vec<String>,
}

impl Message {
    fn new(author: Author, contents: Vec<String>) -> Self {
        Self { author, channel: None, recipient: None, contents }
    }

    /// Something the model wrote.
    fn written(channel: Channel, contents: Vec<String>) -> Self {
        Self { channel: Some(channel), ..Self::new(Author::Assistant, contents) }
    }

    /// A function the model called.
    fn call(name: &str, arguments: String) -> Self {
        Self {
            recipient: Some(format!("functions.{name}")),
            ..Self::written(Channel::Commentary, vec![arguments])
        }
    }

    /// What a function answered.
    fn result(name: &str, output: String) -> Self {
        Self {
            author: Author::Tool(format!("functions.{name}")),
            channel: Some(Channel::Commentary),
            recipient: Some("assistant".to_owned()),
            contents: vec![output],
        }
    }

    fn developer(instructions: Option<&str>, tools: &str) -> Self {
        let mut sections = Vec::new();
        if let Some(instructions) = instructions {
            sections.extend(["# Instructions", instructions]);
        }
        if !tools.is_empty() {
            sections.push(tools);
        }
        Self::new(Author::Developer, vec![sections.join("\n\n")])
    }

    fn pieces(&self, out: &mut Vec<Piece>) {
        out.push(Piece::Mark("<|start|>"));
        match (&self.author, &self.recipient, self.channel) {
            // The header of a call is written the way the models were trained on.
            (Author::Assistant, Some(recipient), Some(channel)) => {
                out.push(Piece::Text(format!("assistant to={recipient}")));
                out.push(Piece::Mark("<|channel|>"));
                out.push(Piece::Text(format!("{} json", channel.name())));
            }
            (author, recipient, channel) => {
                out.push(Piece::Text(author.name().to_owned()));
                if let Some(channel) = channel {
                    out.push(Piece::Mark("<|channel|>"));
                    out.push(Piece::Text(channel.name().to_owned()));
                }
                if let Some(recipient) = recipient {
                    out.push(Piece::Text(format!(" to={recipient}")));
                }
            }
        }
        out.push(Piece::Mark("<|message|>"));
        out.extend(self.contents.iter().cloned().map(Piece::Text));
        let is_call = self.author == Author::Assistant && self.recipient.is_some();
        out.push(Piece::Mark(if is_call { "<|call|>" } else { "<|end|>" }));
    }
}

enum Piece {
    /// One token.
    Mark(&'static str),
    /// Tokenised by itself, without any mark in it.
    Text(String),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Mark(mark) => mark.len(),
            Self::Text(text) => text.len(),
        }
    }
}

/// What a request asks of the model, before its messages.
#[derive(Debug, Default)]
pub(crate) struct Preamble {
    instructions: Option<String>,
    /// Functions as (name, description, parameters).
    functions: Vec<(String, String, Option<Json>)>,
    effort: Option<String>,
}

/// A whole conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    preamble: Preamble,
    messages: Vec<Message>,
}

impl Conversation {
    /// What the engine is given. Once `limit` bytes of text were tokenized, the rest is not.
    pub(crate) fn render(
        self,
        tokenizer: &Tokenizer,
        now: CivilTime,
        limit: usize,
    ) -> Result<Rendered, Unrouted> {
        let mut pieces = Vec::new();
        for message in self.preamble.messages(now)? {
            message.pieces(&mut pieces);
        }
        for message in without_old_thoughts(self.messages) {
            message.pieces(&mut pieces);
        }
        pieces.extend([Piece::Mark("<|start|>"), Piece::Text("assistant".to_owned())]);
        let mut out = Rendered::default();
        for piece in pieces {
            match piece {
                _ if out.rest > 0 => out.rest += piece.len(),
                Piece::Mark(mark) => {
                    out.text.push_str(mark);
                    let id = tokenizer.id_of(mark);
                    out.ids.push(id.ok_or_else(|| {
                        Unrouted::Tokenizer(format!("Harmony needs the token `{mark}`"))
                    })?);
                }
                Piece::Text(part) => out.add(tokenizer, &part, limit)?,
            }
        }
        Ok(out)
    }
}

/// A conversation as text and token ids, or its beginning.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
    /// Bytes of text behind it that were not tokenized.
    pub(crate) rest: usize,
}

impl Rendered {
    fn add(&mut self, tokenizer: &Tokenizer, part: &str, limit: usize) -> Result<(), Unrouted> {
        let room = limit.saturating_sub(self.text.len());
        let (ids, bytes) = if part.len() <= room {
            (tokenizer.encode_plain(part).map_err(Unrouted::Tokenizer)?, part.len())
        } else {
            let head = tokenizer.encode_plain_head(part, room).map_err(Unrouted::Tokenizer)?;
            (head.ids, head.bytes)
        };
        self.ids.extend(ids);
        self.text.push_str(part.get(..bytes).unwrap_or_default());
        self.rest = part.len() - bytes;
        Ok(())
    }
}

impl Preamble {
    fn messages(&self, now: CivilTime) -> Result<Vec<Message>, Unrouted> {
        let effort = self.effort.as_deref().unwrap_or("medium");
        if !["low", "medium", "high"].contains(&effort) {
            return Err(Unrouted::Body(format!("Harmony has no reasoning effort `{effort}`")));
        }
        let mut system = format!(
            "{IDENTITY}\nCurrent date: {}\n\nReasoning: {effort}\n\n{CHANNELS}",
            now.strftime("%Y-%m-%d")
        );
        if !self.functions.is_empty() {
            system.push('\n');
            system.push_str(CALLS);
        }
        let mut out = vec![Message::new(Author::System, vec![system])];
        let instructions = self.instructions.as_deref().filter(|text| !text.is_empty());
        if instructions.is_some() || !self.functions.is_empty() {
            out.push(Message::developer(instructions, &self.tools()));
        }
        Ok(out)
    }

    fn tools(&self) -> String {
        if self.functions.is_empty() {
            return String::new();
        }
        let mut lines = vec!["## functions\n".to_owned(), "namespace functions {\n".to_owned()];
        for (name, description, parameters) in &self.functions {
            lines.extend(description.lines().map(|line| format!("// {line}")));
            lines.push(match parameters {
                Some(schema) => {
                    format!("type {name} = (_: {}) => any;\n", schema::typescript(schema))
                }
                None => format!("type {name} = () => any;\n"),
            });
        }
        lines.push("} // namespace functions".to_owned());
        format!("# Tools\n\n{}", lines.join("\n"))
    }
}

/// The messages without the thoughts that led to an earlier final answer.
fn without_old_thoughts(mut messages: Vec<Message>) -> Vec<Message> {
    let is_final = |m: &Message| m.author == Author::Assistant && m.channel == Some(Channel::Final);
    let last = messages.iter().rposition(is_final).unwrap_or(0);
    let mut at = 0;
    messages.retain(|m| {
        at += 1;
        at > last || m.channel != Some(Channel::Analysis)
    });
    messages
}

/// The text of string or part content joined; `None` if there is none.
fn flat(content: Option<&Json>) -> Result<Option<String>, Unrouted> {
    let parts = match content {
        Some(Json::Str(text)) => return Ok(Some(text.clone())),
        Some(Json::List(parts)) => parts,
        _ => return Ok(None),
    };
    let mut texts = Vec::new();
    for part in parts {
        match part {
            Json::Str(text) => texts.push(text.as_str()),
            Json::Dict(part) => match part.non_null("text") {
                Some(Json::Str(text)) => texts.push(text),
                None => {}
                Some(_) => {
                    return Err(crate::fields::wrong_type("messages.content.text", "a string"));
                }
            },
            _ => {}
        }
    }
    Ok((!texts.is_empty()).then(|| texts.concat()))
}

/// The texts of content, a part without text counting as empty.
fn contents(content: Option<&Json>) -> Result<Vec<String>, Unrouted> {
    let part = |part: &Json| match (part, part.as_dict().map(|p| p.get("text"))) {
        (Json::Dict(_), Some(Some(Json::Str(text)))) => Ok(text.clone()),
        (Json::Dict(_), Some(None)) => Ok(String::new()),
        _ => Err(crate::fields::wrong_type(
            "messages.content",
            "text or a list of objects with text",
        )),
    };
    match content {
        None | Some(Json::Null) => Ok(vec![String::new()]),
        Some(Json::Str(text)) => Ok(vec![text.clone()]),
        Some(Json::List(parts)) if parts.is_empty() => Ok(vec![String::new()]),
        Some(Json::List(parts)) => parts.iter().map(part).collect(),
        Some(_) => {
            Err(crate::fields::wrong_type("messages.content", "a string or a list of parts"))
        }
    }
}
