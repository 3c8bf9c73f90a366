//! One model's tokenizer and chat template: bodies in, token ids out.

mod head;
mod quick;
mod shapes;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use minijinja::value::Value;

pub use self::quick::{Quick, Rest};
use self::shapes::{Conventions, MediaAt};
use crate::chat::{self, Chat, Media, Reading};
use crate::clock::CivilTime;
use crate::completion::{self, Completion, Prompt};
use crate::fields::Truncation;
use crate::json::{Dict, Json};
use crate::locate::lacks;
use crate::model::{Model, RenderedBy};
use crate::stamp::Stamp;
use crate::template::{Clock, Template, python, value};
use crate::tokenizer::{PrefixCacheStats, Settings, Tokenizer, TokenizerEngine};
use crate::work::{Clocks, Work};
use crate::{Api, Limits, Prompts, Unrouted};

/// What transformers appends to the message that is continued, and cuts the text at.
const CONTINUE_MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Why a model directory cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file could not be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
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
    clock: Watch,
    anthropic: OnceLock<Conventions>,
    clocks: Clocks,
    dir: PathBuf,
    stamp: Stamp,
}

/// Where the date comes from.
struct Watch(Clock);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
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
        if let Err(error) = std::fs::metadata(&path) {
            // There may be another kind of tokenizer, which can be made one of these.
            return Err(match lacks(dir) {
                Some(message) if error.kind() == ErrorKind::NotFound => {
                    LoadError::Invalid { path: dir.to_owned(), message }
                }
                _ => LoadError::Read { path, error },
            });
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
            clock: Watch(clock),
            anthropic: OnceLock::new(),
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
        if self.rendered_by == RenderedBy::Harmony {
            return Ok(());
        }
        match (&self.plain, &self.with_tools) {
            (_, Some(TemplateState::Ready(_))) => Ok(()),
            (plain, _) => plain.ready().map(drop),
        }
    }

    /// Whether chats of this model are encoded in the harmony format (gpt-oss) and not by the
    /// template. vLLM 0.32 does so where it answers, but its `/tokenize` renders the template all
    /// the same: it says nothing of what a chat becomes.
    #[must_use]
    pub fn is_harmony(&self) -> bool {
        self.rendered_by == RenderedBy::Harmony
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
            Api::Completions => self.completion(completion::read(body)?, salt),
            Api::Chat => self.chat(self.clocks.parse.time(|| chat::read(body))?, salt),
            Api::Responses => self.responses(body, salt),
            Api::Messages => self.anthropic(body, salt),
            Api::Embeddings => self.embeddings(body, salt),
            Api::Rerank | Api::Score => self.scores(api, body, salt),
            Api::Tokenize | Api::Detokenize => Err(Unrouted::UnsupportedApi(api.as_str())),
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

    fn completion(&self, request: Completion, salt: Option<&str>) -> Result<Prompts, Unrouted> {
        self.check_count(request.prompts.len())?;
        let bytes = request.prompts.iter().map(Prompt::size).sum();
        if bytes > self.limits.prompt_bytes {
            return self.heads(request, bytes, salt);
        }
        let (mut prompts, mut texts) = (Vec::new(), Vec::new());
        for prompt in request.prompts {
            let (ids, text) = match prompt {
                Prompt::Ids(ids) => (request.truncation.cut(ids), None),
                Prompt::Text(text) => (
                    self.encode(&text, request.add_special_tokens, request.truncation, salt)?,
                    Some(text),
                ),
            };
            prompts.push(ids);
            texts.push(text);
        }
        let is_given = texts.iter().all(Option::is_none);
        let exact = Prompts::exact(prompts, texts);
        match self.rendered_by.refuses_text() {
            Err(why) if !is_given => Ok(exact.approximate(why)),
            _ => Ok(exact),
        }
    }

    fn chat(&self, request: Chat, salt: Option<&str>) -> Result<Prompts, Unrouted> {
        if self.rendered_by == RenderedBy::Harmony {
            return self.harmony(crate::harmony::read_chat(request)?);
        }
        Ok(self.as_rendered(self.templated(request, salt)?))
    }

    /// What the engine may do otherwise with chats of this model is said.
    fn as_rendered(&self, exact: Prompts) -> Prompts {
        match self.rendered_by.refuses_chat() {
            // The first reason for not being exact is the one that is told.
            Err(why) if exact.why.is_none() => exact.approximate(why),
            _ => exact,
        }
    }

    /// A chat by the model's own template.
    pub(crate) fn templated(&self, request: Chat, salt: Option<&str>) -> Result<Prompts, Unrouted> {
        let (special, cut) = (request.add_special_tokens, request.truncation);
        let (text, media) = self.clocks.render.time(|| self.render(request))?;
        let limit = self.limits.prompt_bytes;
        if text.len() > limit && media.as_ref().is_none_or(|media| media.is_behind(limit)) {
            return self.head(text, special, cut, salt);
        }
        if let Some(media) = media {
            return self.before_media(text, &media, (special, cut), salt);
        }
        let ids = self.encode(&text, special, cut, salt)?;
        Ok(Prompts::exact(vec![ids], vec![Some(text)]))
    }

    fn check_count(&self, prompts: usize) -> Result<(), Unrouted> {
        let limit = self.limits.prompts;
        if prompts > limit { Err(Unrouted::TooMany { prompts, limit }) } else { Ok(()) }
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

    /// The text, and where media begin, if there are any.
    fn render(&self, mut request: Chat) -> Result<(String, Option<MediaAt>), Unrouted> {
        if request.messages.is_empty() {
            return Err(Unrouted::Body("the conversation is empty".to_owned()));
        }
        let template = self.template_for(request.has_tools)?;
        let messages = std::mem::take(&mut request.messages);
        let marked = shapes::has_media(&messages).then(|| messages.clone());
        let mut media = Media::default();
        let text = self.render_once(template, messages, &request, &mut media)?;
        let (Some(kind), Some(messages)) = (media.first, marked) else { return Ok((text, None)) };
        let mut mark = Media { mark: Some(shapes::MEDIA_MARK), ..Media::default() };
        let marked = self.render_once(template, messages, &request, &mut mark)?;
        let at = MediaAt::find(&text, &marked, kind, media.count)?;
        Ok((text, Some(at)))
    }

    fn template_for(&self, has_tools: bool) -> Result<&Template, Unrouted> {
        match &self.with_tools {
            Some(state) if has_tools => state.ready(),
            _ => self.plain.ready(),
        }
    }

    fn render_once(
        &self,
        template: &Template,
        messages: Vec<Dict>,
        request: &Chat,
        media: &mut Media,
    ) -> Result<String, Unrouted> {
        let knows_developer =
            template.mentions("\"developer\"") || template.mentions("'developer'");
        let reading = Reading {
            format: template.content_format,
            knows_developer,
            keeps_key_order: request.keeps_key_order,
        };
        let mut messages = chat::conversation(messages, reading, media)?;
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
