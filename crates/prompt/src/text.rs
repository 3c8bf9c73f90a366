//! A prompt's text as far as it can be told without the model's template and tokenizer: which
//! requests begin alike, and for how long.

#[cfg(test)]
mod tests;

use twox_hash::XxHash3_64;

use crate::fields::Fields;
use crate::json::{Dict, Json, dumps};
use crate::{Api, Unrouted};

/// What a request asks to be continued, in an order in which a conversation that goes on only grows
/// at its end, whatever the spacing and the escapes of its JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptText {
    /// The beginning: roles, texts and what else messages have, parted by bytes that are in no text.
    /// Of several prompts the first.
    pub text: Vec<u8>,
    /// Bytes of all of it.
    pub bytes: u64,
    /// What stands before the conversation in most templates, or changes all of it: tools,
    /// documents, variables of the template. Prompts that differ in it share nothing.
    pub setting: String,
}

/// Ends a message.
const END: u8 = 0xff;
/// Between the fields of a message.
const FIELD: u8 = 0xfe;
/// Before the digest of a part that is no text.
const PART: u8 = 0xfd;
/// Between two parts of one content.
const NEXT: u8 = 0xfc;

const FIELDS: [&str; 10] = [
    "prompt",
    "messages",
    "input",
    "instructions",
    "system",
    "tools",
    "functions",
    "documents",
    "chat_template_kwargs",
    "reasoning_effort",
];
/// Those that are the setting.
const SETTING: [&str; 5] =
    ["tools", "functions", "documents", "chat_template_kwargs", "reasoning_effort"];

/// The text of a request's (first) prompt, of which at most `limit` bytes are kept. `None` where a
/// request has none, or none that can be found: token ids, pairs of queries and documents, bodies
/// that are not what the path takes.
#[must_use]
pub fn prompt_text(api: Api, body: &[u8], limit: usize) -> Option<PromptText> {
    let mut out = Writer { out: PromptText::default(), limit };
    let found = Fields::read(body, &FIELDS).and_then(|fields| out.request(api, &fields));
    let is_there = matches!(found, Ok(Some(()))) && out.out.bytes > 0;
    is_there.then_some(out.out)
}

struct Writer {
    out: PromptText,
    limit: usize,
}

impl Writer {
    fn push(&mut self, bytes: &[u8]) {
        self.out.bytes += bytes.len() as u64;
        let room = self.limit.saturating_sub(self.out.text.len());
        self.out.text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn request(&mut self, api: Api, fields: &Fields<'_>) -> Result<Option<()>, Unrouted> {
        let found = match api {
            Api::Completions => self.prompt(fields.get("prompt")?),
            Api::Embeddings => self.prompt(fields.get("input")?),
            Api::Chat => self.messages(fields.get("messages")?),
            Api::Messages => {
                self.said("system", fields.get("system")?);
                self.messages(fields.get("messages")?)
            }
            Api::Responses => {
                self.said("system", fields.get("instructions")?);
                match fields.get("input")? {
                    Some(Json::Str(text)) => {
                        self.said("user", Some(Json::Str(text)));
                        Some(())
                    }
                    items => self.messages(items),
                }
            }
            Api::Rerank | Api::Score | Api::Tokenize | Api::Detokenize => None,
        };
        for name in SETTING {
            if let Some(value) = fields.get(name)? {
                self.out.setting.push_str(name);
                self.out.setting.push_str(&dumps(&value, false));
            }
        }
        Ok(found)
    }

    fn prompt(&mut self, value: Option<Json>) -> Option<()> {
        match value? {
            Json::Str(text) => self.push(text.as_bytes()),
            Json::List(items) => self.push(items.first()?.as_str()?.as_bytes()),
            _ => return None,
        }
        Some(())
    }

    /// What stands outside of messages.
    fn said(&mut self, role: &str, content: Option<Json>) {
        if let Some(content) = content {
            self.message(&[("role", &Json::Str(role.to_owned()))], Some(&content));
        }
    }

    fn messages(&mut self, value: Option<Json>) -> Option<()> {
        let Some(Json::List(items)) = value else { return None };
        for item in &items {
            let Dict(fields) = item.as_dict()?;
            let rest: Vec<(&str, &Json)> = fields
                .iter()
                .filter(|(key, _)| key != "content")
                .map(|(key, value)| (key.as_str(), value))
                .collect();
            self.message(&rest, item.as_dict()?.non_null("content"));
        }
        Some(())
    }

    /// A message: its role, its content, and its other fields.
    fn message(&mut self, rest: &[(&str, &Json)], content: Option<&Json>) {
        let role = rest.iter().find(|(key, _)| *key == "role").and_then(|(_, v)| v.as_str());
        self.push(role.unwrap_or_default().as_bytes());
        self.push(&[FIELD]);
        match content {
            Some(Json::Str(text)) => self.push(text.as_bytes()),
            Some(Json::List(parts)) => {
                for (place, part) in parts.iter().enumerate() {
                    if place > 0 {
                        self.push(&[NEXT]);
                    }
                    self.part(part);
                }
            }
            Some(other) => self.part(other),
            None => {}
        }
        for (key, value) in
            rest.iter().filter(|(key, value)| *key != "role" && **value != Json::Null)
        {
            self.push(&[FIELD]);
            self.push(key.as_bytes());
            self.push(dumps(value, false).as_bytes());
        }
        self.push(&[END]);
    }

    /// A part of a content. Images are long, and are told apart by a digest.
    fn part(&mut self, part: &Json) {
        let text = match part {
            Json::Str(text) => Some(text.as_str()),
            Json::Dict(dict) if is_text(dict) => dict.str("text"),
            _ => None,
        };
        if let Some(text) = text {
            return self.push(text.as_bytes());
        }
        self.push(&[PART]);
        self.push(&XxHash3_64::oneshot(dumps(part, false).as_bytes()).to_le_bytes());
    }
}

/// Whether a part is its text and no more.
fn is_text(part: &Dict) -> bool {
    let is_plain = |(key, value): &(String, Json)| match (key.as_str(), value) {
        ("text", _) => true,
        ("type", Json::Str(kind)) => matches!(&**kind, "text" | "input_text" | "output_text"),
        // Marks of Anthropic's clients, which say nothing to a template.
        ("cache_control" | "citations", _) => true,
        (_, value) => *value == Json::Null,
    };
    part.0.iter().all(is_plain)
}
