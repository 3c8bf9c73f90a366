//! One model's tokenizer and chat template: bodies in, token ids out.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minijinja::value::Value;

use crate::chat::{self, Chat};
use crate::clock::CivilTime;
use crate::completion::{self, Prompt};
use crate::fields::Truncation;
use crate::json::{Dict, Json};
use crate::model::{Model, RenderedBy};
use crate::stamp::Stamp;
use crate::template::{Clock, Template, python, value};
use crate::tokenizer::{PrefixCacheStats, Settings, Tokenizer, TokenizerEngine};
use crate::work::{Clocks, Work};
use crate::{Api, Unrouted};

/// What transformers appends to the message that is continued, and cuts the text at.
const CONTINUE_MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Sizes above which no prompt is computed, and what computing may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of prompt text one request may have (all its prompts together; 4 bytes count
    /// for a token id).
    pub prompt_bytes: usize,
    /// Most prompts in one request.
    pub prompts: usize,
    /// Most bytes of memory for the token ids of texts seen before. They are found again where a
    /// later text starts alike, up to an added token of the tokenizer; see [`Renderer::cache`].
    pub cache_bytes: usize,
    /// Tokenize with the `tokenizers` library alone, also where Kvasir's own code is faster and
    /// says the same.
    pub library_only: bool,
}

impl Default for Limits {
    /// 8 MiB, which is more than a million tokens of text, 1,024 prompts, and 128 MiB of cache,
    /// which is enough for some 15 million tokens.
    fn default() -> Self {
        Self { prompt_bytes: 8 << 20, prompts: 1024, cache_bytes: 128 << 20, library_only: false }
    }
}

/// How far the prompts of a request are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// The exact token ids.
    Tokens,
}

/// What the engine will be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    /// The token ids of each prompt; at least one prompt, each may be empty.
    pub prompts: Vec<Vec<u32>>,
    /// How far the ids are known.
    pub level: Level,
    /// The text of each prompt, for explaining and debugging; `None` where the request gave ids.
    pub texts: Vec<Option<String>>,
}

/// Why a model directory cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
}

/// The tokenizer and template of one model. Its cache apart it never changes; shared between
/// threads.
#[derive(Debug)]
pub struct Renderer {
    tokenizer: Tokenizer,
    special_tokens: Vec<(String, Value)>,
    plain: TemplateState,
    with_tools: Option<TemplateState>,
    rendered_by: RenderedBy,
    caveat: Option<String>,
    limits: Limits,
    clocks: Clocks,
    dir: PathBuf,
    stamp: Stamp,
}

/// A template that is there, is missing, or does not compile.
#[derive(Debug)]
enum TemplateState {
    Ready(Box<Template>),
    Missing,
    Broken(String),
}

impl TemplateState {
    fn new(source: Option<&str>, clock: &Clock) -> Self {
        match source.map(|s| Template::compile(s, Arc::clone(clock))) {
            None => Self::Missing,
            Some(Ok(template)) => Self::Ready(Box::new(template)),
            Some(Err(message)) => Self::Broken(message),
        }
    }

    fn ready(&self) -> Result<&Template, Unrouted> {
        match self {
            Self::Ready(template) => Ok(template),
            Self::Missing => Err(Unrouted::NoTemplate),
            Self::Broken(message) => Err(Unrouted::TemplateError(message.clone())),
        }
    }

    fn error(&self) -> Option<&str> {
        if let Self::Broken(message) = self { Some(message) } else { None }
    }
}

impl Renderer {
    /// Loads a model directory: `tokenizer.json`, and as far as they are there
    /// `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja`,
    /// `additional_chat_templates/`, `chat_template.json` and `config.json`, with the precedence
    /// of transformers 5.19. `add_bos_token` of the configuration changes nothing, as there.
    ///
    /// A missing or broken chat template is no error: completions are still served. Templates
    /// that print the date get the time in UTC.
    ///
    /// # Errors
    /// When `tokenizer.json` cannot be read or used, or another file is there but is not what it
    /// should be.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
        Self::load_with(dir, Limits::default(), CivilTime::now_utc)
    }

    /// The same with other limits and another clock.
    ///
    /// # Errors
    /// See [`Renderer::load`].
    pub fn load_with(
        dir: &Path,
        limits: Limits,
        clock: impl Fn() -> CivilTime + Send + Sync + 'static,
    ) -> Result<Self, LoadError> {
        let path = dir.join("tokenizer.json");
        if let Err(source) = std::fs::metadata(&path) {
            return Err(LoadError::Read { path, source });
        }
        // Before anything is read: what changes meanwhile counts as changed.
        let stamp = Stamp::of(dir);
        let model = Model::read(dir)?;
        let clock: Clock = Arc::new(clock);
        let settings = Settings {
            listed: model.added_tokens,
            named: model.special_tokens.iter().map(|(_, text)| text.clone()).collect(),
            split_special: model.split_special_tokens,
            library_only: limits.library_only,
        };
        let tokenizer = Tokenizer::load(&path, settings, limits.cache_bytes)
            .map_err(|message| LoadError::Invalid { path, message })?;
        let with_tools = model.templates.with_tools.as_deref();
        Ok(Self {
            tokenizer,
            special_tokens: model
                .special_tokens
                .into_iter()
                .map(|(name, text)| (name, Value::from(text)))
                .collect(),
            plain: TemplateState::new(model.templates.plain.as_deref(), &clock),
            with_tools: with_tools.map(|source| TemplateState::new(Some(source), &clock)),
            rendered_by: model.rendered_by,
            caveat: model.caveat,
            limits,
            clocks: Clocks::default(),
            dir: dir.to_owned(),
            stamp,
        })
    }

    /// What is wrong with the chat template, with its line; `None` when it compiled or there is
    /// none.
    #[must_use]
    pub fn template_error(&self) -> Option<&str> {
        self.plain.error().or_else(|| self.with_tools.as_ref()?.error())
    }

    /// Why token ids of this model may differ from the engine's although everything loaded:
    /// `tokenizer.json` is read as it is, which the engine does not do for every class.
    #[must_use]
    pub fn caveat(&self) -> Option<&str> {
        self.caveat.as_deref()
    }

    /// Whether conversations can be rendered: `Err` with the standing reason if no chat request
    /// of this model can be.
    ///
    /// # Errors
    /// The reason.
    pub fn chat_state(&self) -> Result<(), Unrouted> {
        self.rendered_by.refuses_chat()?;
        match (&self.plain, &self.with_tools) {
            (_, Some(TemplateState::Ready(_))) => Ok(()),
            (plain, _) => plain.ready().map(drop),
        }
    }

    /// The token ids the engine will see for this body.
    ///
    /// # Errors
    /// The reason why they cannot be known.
    pub fn prompts(&self, api: Api, body: &[u8]) -> Result<Prompts, Unrouted> {
        self.prompts_salted(api, body, None)
    }

    /// The same for a request with this [`cache_salt`](crate::Envelope::cache_salt): what other
    /// requests cached is found again only by requests with the same salt. It changes no id.
    ///
    /// # Errors
    /// The reason why the ids cannot be known.
    pub fn prompts_salted(
        &self,
        api: Api,
        body: &[u8],
        salt: Option<&str>,
    ) -> Result<Prompts, Unrouted> {
        match api {
            Api::Completions => self.completion(body, salt),
            Api::Chat => self.chat(body, salt),
            _ => Err(Unrouted::UnsupportedApi(api.as_str())),
        }
    }

    /// What the prefix cache holds, and how many tokens of this tokenizer end a text that can be
    /// found again: without any, every prompt is tokenized from its start.
    #[must_use]
    pub fn cache(&self) -> (usize, PrefixCacheStats) {
        self.tokenizer.cache()
    }

    /// Whether a file this was made of has changed, come or gone since. Asks the file system.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        Stamp::of(&self.dir) != self.stamp
    }

    /// Which code tokenizes, and why not the faster one. It can change: a sample of what the
    /// faster one says is compared with the library.
    #[must_use]
    pub fn engine(&self) -> TokenizerEngine {
        self.tokenizer.engine()
    }

    /// How long the stages took so far.
    #[must_use]
    pub fn work(&self) -> Work {
        self.clocks.read()
    }

    fn completion(&self, body: &[u8], salt: Option<&str>) -> Result<Prompts, Unrouted> {
        self.rendered_by.refuses_text()?;
        let request = completion::read(body)?;
        if request.prompts.len() > self.limits.prompts {
            return Err(Unrouted::TooMany {
                prompts: request.prompts.len(),
                limit: self.limits.prompts,
            });
        }
        let size = |p: &Prompt| match p {
            Prompt::Text(text) => text.len(),
            Prompt::Ids(ids) => ids.len() * 4,
        };
        self.check_size(request.prompts.iter().map(size).sum())?;
        let mut out = Prompts { prompts: Vec::new(), level: Level::Tokens, texts: Vec::new() };
        for prompt in request.prompts {
            let (ids, text) = match prompt {
                Prompt::Ids(ids) => (request.truncation.cut(ids), None),
                Prompt::Text(text) => (
                    self.encode(&text, request.add_special_tokens, request.truncation, salt)?,
                    Some(text),
                ),
            };
            out.prompts.push(ids);
            out.texts.push(text);
        }
        Ok(out)
    }

    fn chat(&self, body: &[u8], salt: Option<&str>) -> Result<Prompts, Unrouted> {
        self.rendered_by.refuses_chat()?;
        let request = self.clocks.parse.time(|| chat::read(body))?;
        let (special, cut) = (request.add_special_tokens, request.truncation);
        let text = self.clocks.render.time(|| self.render(request))?;
        self.check_size(text.len())?;
        let ids = self.encode(&text, special, cut, salt)?;
        Ok(Prompts { prompts: vec![ids], level: Level::Tokens, texts: vec![Some(text)] })
    }

    fn check_size(&self, bytes: usize) -> Result<(), Unrouted> {
        let limit = self.limits.prompt_bytes;
        if bytes > limit { Err(Unrouted::TooLong { bytes, limit }) } else { Ok(()) }
    }

    fn encode(
        &self,
        text: &str,
        special: bool,
        cut: Truncation,
        salt: Option<&str>,
    ) -> Result<Vec<u32>, Unrouted> {
        self.clocks
            .tokenize
            .time(|| self.tokenizer.encode(text, special, cut, salt))
            .map_err(Unrouted::Tokenizer)
    }

    fn render(&self, request: Chat) -> Result<String, Unrouted> {
        let template = match &self.with_tools {
            Some(state) if request.has_tools => state.ready()?,
            _ => self.plain.ready()?,
        };
        let knows_developer =
            template.mentions("\"developer\"") || template.mentions("'developer'");
        let mut messages =
            chat::conversation(request.messages, template.content_format, knows_developer)?;
        let continued = if request.continue_final_message {
            Some(mark_final_message(template, &mut messages)?)
        } else {
            None
        };
        let messages = Json::List(messages.into_iter().map(Json::Dict).collect());
        let own = [("messages", value::from_json(&messages))];
        let variables = request.variables.0.iter().map(|(k, v)| (k.as_str(), value::from_json(v)));
        let special = self.special_tokens.iter().map(|(k, v)| (k.as_str(), v.clone()));
        // Later ones win.
        let all = special.chain(variables).chain(own);
        let text = template.render(Value::from_pairs(all)).map_err(Unrouted::TemplateError)?;
        match continued {
            Some(last) => cut_at_mark(&text, &last),
            None => Ok(text),
        }
    }
}

/// Marks the end of the last message's text; returns the text before that.
fn mark_final_message(template: &Template, messages: &mut [Dict]) -> Result<String, Unrouted> {
    let refused = |why: &str| Unrouted::TemplateError(format!("continue_final_message: {why}"));
    if !template.mentions("content") {
        return Err(refused("the template does not read `content`"));
    }
    let content = messages.last_mut().and_then(|m| m.0.iter_mut().find(|(k, _)| k == "content"));
    let text = match content.map(|(_, v)| v) {
        Some(Json::Str(text)) => Some(text),
        Some(Json::List(parts)) => parts.iter_mut().rev().find_map(|part| match part {
            Json::Dict(part) => match part.0.iter_mut().find(|(k, _)| k == "text") {
                Some((_, Json::Str(text))) => Some(text),
                _ => None,
            },
            _ => None,
        }),
        _ => None,
    };
    let text = text.ok_or_else(|| refused("the final message has no text"))?;
    let before = text.clone();
    text.push_str(CONTINUE_MARK);
    Ok(before)
}

/// The text up to the mark; white space before it is kept only if the template kept the mark's.
fn cut_at_mark(text: &str, last: &str) -> Result<String, Unrouted> {
    let bare = CONTINUE_MARK.trim_end();
    let at = text.rfind(bare).filter(|_| text.contains(python::strip(last)));
    let Some((head, tail)) = at.and_then(|at| text.split_at_checked(at)) else {
        return Err(Unrouted::TemplateError(
            "continue_final_message: the final message is not in the rendered text".to_owned(),
        ));
    };
    let head = if tail.starts_with(CONTINUE_MARK) {
        head
    } else {
        head.trim_end_matches(python::is_space)
    };
    Ok(head.to_owned())
}
