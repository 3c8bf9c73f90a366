//! The request shapes beside completions and chats, and what they need to know of the model.

use super::{Renderer, TemplateState, head};
use crate::chat;
use crate::cut::beginning;
use crate::fields::Truncation;
use crate::harmony::{self, Conversation, Rendered};
use crate::json::{Dict, Json};
use crate::messages;
pub(super) use crate::messages::Conventions;
use crate::model::RenderedBy;
use crate::pooling::{self, Embeddings};
use crate::{Api, Prompts, Unrouted, responses};

/// Stands for the first image or the like while its place is looked for.
pub(super) const MEDIA_MARK: &str = "\u{f8ff}FIRST_MEDIA_PART\u{f8ff}";
/// Bytes of text per token, where the text is not tokenised.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens an image or the like is taken for. Engines make anything from tens to thousands of one.
const TOKENS_PER_MEDIA: usize = 256;
/// What may follow a prefix: no token that could join any of these is certain.
const FOLLOWERS: [&str; 5] = ["<", " a", "a", "1", "\n"];

/// Where in a text the first image or the like begins.
#[derive(Debug)]
pub(super) struct MediaAt {
    kind: String,
    /// Bytes of text before it.
    at: usize,
    count: usize,
}

impl MediaAt {
    /// Whether more than so many bytes of text come before it.
    pub(super) fn is_behind(&self, bytes: usize) -> bool {
        self.at > bytes
    }

    /// Compares the text with one in which a mark stands for the first of them: what both have up
    /// to the mark comes before it.
    pub(super) fn find(
        text: &str,
        marked: &str,
        kind: String,
        count: usize,
    ) -> Result<Self, Unrouted> {
        let Some(mark) = marked.find(MEDIA_MARK) else { return Err(Unrouted::Multimodal(kind)) };
        let same = text.bytes().zip(marked.bytes()).take(mark).take_while(|(a, b)| a == b).count();
        let at = beginning(text, same).len();
        Ok(Self { kind, at, count })
    }
}

/// Whether any content has parts that may be no text.
pub(super) fn has_media(messages: &[Dict]) -> bool {
    let is_text = |part: &Json| match part {
        Json::Dict(part) => {
            matches!(part.str("type"), Some("text" | "input_text" | "output_text" | "refusal"))
                && part.non_null("uuid").is_none()
        }
        _ => true,
    };
    let contents = messages.iter().filter_map(|m| m.get("content")?.as_list());
    contents.flatten().any(|part| !is_text(part))
}

impl Renderer {
    /// The prompt of a chat by the model's own template, also where the engine renders the model's
    /// chats otherwise: for judging the template alone.
    ///
    /// # Errors
    /// See [`Renderer::prompts`].
    pub fn template_prompts(&self, body: &[u8]) -> Result<Prompts, Unrouted> {
        self.templated(chat::read(body)?, None)
    }

    pub(super) fn responses(&self, body: &[u8], salt: Option<&str>) -> Result<Prompts, Unrouted> {
        let request = responses::read(body)?;
        let cuts = request.cuts;
        let prompts = if self.rendered_by == RenderedBy::Harmony {
            self.harmony(harmony::read_responses(request)?)?
        } else {
            self.chat(request.into_chat()?, salt)?
        };
        let why = "`truncation` cuts at the engine's context length, which is not known here";
        Ok(match prompts.why {
            None if cuts => prompts.approximate(Unrouted::UnsupportedField(why.to_owned())),
            _ => prompts,
        })
    }

    pub(super) fn anthropic(&self, body: &[u8], salt: Option<&str>) -> Result<Prompts, Unrouted> {
        let conventions = *self.anthropic.get_or_init(|| self.find_conventions());
        self.chat(messages::read(body, conventions)?, salt)
    }

    pub(super) fn embeddings(&self, body: &[u8], salt: Option<&str>) -> Result<Prompts, Unrouted> {
        let chats = match pooling::embeddings(body)? {
            Embeddings::Texts(texts) => return self.completion(texts, salt),
            Embeddings::Chats(chats) => chats,
        };
        self.check_count(chats.len())?;
        let mut all = Prompts::exact(Vec::new(), Vec::new());
        let mut bytes = 0;
        for chat in chats {
            let one = self.templated(chat, salt)?;
            bytes += one.texts.iter().flatten().map(String::len).sum::<usize>();
            self.check_size(bytes)?;
            all.prompts.extend(one.prompts);
            all.texts.extend(one.texts);
            all.tokens += one.tokens;
            if let (None, Some(why)) = (&all.why, one.why) {
                all = all.approximate(why);
            }
        }
        Ok(all)
    }

    pub(super) fn scores(
        &self,
        api: Api,
        body: &[u8],
        salt: Option<&str>,
    ) -> Result<Prompts, Unrouted> {
        debug_assert!(matches!(api, Api::Rerank | Api::Score));
        Ok(self.completion(pooling::scores(body)?, salt)?.approximate(Unrouted::Pairs))
    }

    pub(super) fn harmony(&self, conversation: Conversation) -> Result<Prompts, Unrouted> {
        let limit = self.limits.prompt_bytes;
        let rendered = conversation.render(&self.tokenizer, (self.clock.0)(), limit)?;
        let Rendered { text, ids, rest } = rendered;
        if rest == 0 {
            return Ok(Prompts::exact(vec![ids], vec![Some(text)]));
        }
        let (bytes, tokens) = (text.len() + rest, head::estimate(&ids, text.len(), rest));
        Ok(Prompts::heads(vec![ids], vec![Some(text)], tokens, (bytes, limit)))
    }

    /// The prompt up to the first image or the like.
    pub(super) fn before_media(
        &self,
        mut text: String,
        media: &MediaAt,
        (special, cut): (bool, Truncation),
        salt: Option<&str>,
    ) -> Result<Prompts, Unrouted> {
        let why = Unrouted::Multimodal(media.kind.clone());
        if cut != Truncation::None {
            return Err(why);
        }
        let rest = text.len() - media.at;
        text.truncate(media.at);
        let mut ids = self.encode(&text, special, cut, salt)?;
        for follower in FOLLOWERS {
            let longer = self.encode(&format!("{text}{follower}"), special, cut, salt)?;
            let same = ids.iter().zip(&longer).take_while(|(a, b)| a == b).count();
            ids.truncate(same);
        }
        let guess = rest / BYTES_PER_TOKEN + media.count * TOKENS_PER_MEDIA;
        let mut prompts = Prompts::exact(vec![ids], vec![Some(text)]).approximate(why);
        prompts.tokens += guess as u64;
        Ok(prompts)
    }

    /// What vLLM finds out when it starts, in the same way.
    fn find_conventions(&self) -> Conventions {
        let needs_first = |state: &TemplateState| match state {
            TemplateState::Ready(template) => !template.takes_later_system_messages(),
            TemplateState::Missing | TemplateState::Broken(_) => true,
        };
        let system_first =
            needs_first(&self.plain) || self.with_tools.as_ref().is_some_and(needs_first);
        let probe = |effort: &str| {
            let body = format!(
                r#"{{"messages":[{{"role":"user","content":"Hi"}}],"reasoning_effort":"{effort}"}}"#
            );
            self.chat(chat::read(body.as_bytes()).ok()?, None).ok().map(|prompts| prompts.prompts)
        };
        let none = probe("none");
        // An effort the template does not know renders as one it knows.
        let is_known = none.is_some() && messages::EFFORTS.iter().all(|e| probe(e) != none);
        Conventions { system_first, no_thinking: if is_known { "none" } else { "low" } }
    }
}
