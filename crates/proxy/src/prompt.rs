//! From a body to tokens, off the async threads where it takes long.
//!
//! How far they are known is the request's level: `tokens` (exact), `text` (an approximation, or the
//! beginning only) or `none`.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_balance::Blind;
use kvasir_fleet::{Pool, PromptState, Stage};
use kvasir_prompt::{
    Api, Level, PromptText, Prompts, Quick, Renderer, Unrouted, given_ids, prompt_text,
};
use tokio::sync::Semaphore;

use crate::model_families::ModelFamilies;

/// Without a tokenizer a body is only looked through, which is a hundred times as fast.
const INLINE_READ_BYTES: usize = 256 << 10;
/// Bytes of body per token, for prompts that are not tokenised.
const BYTES_PER_TOKEN: u64 = 4;
/// Above this an estimate from a body's size says more about images and the like than about tokens.
const LARGEST_ESTIMATE: u64 = 8_192;
/// How long a prompt waits for a tokenizer thread; then its request is routed by load.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a prompt's tokens are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// They are not known.
    None,
    /// Token ids in the request's body.
    Body,
    /// The model's template and tokenizer here.
    Local,
    /// Token ids in a header.
    Header,
}

impl Source {
    /// The word used in logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Body => "body",
            Self::Local => "local",
            Self::Header => "header",
        }
    }
}

/// What is known of a request's prompts.
#[derive(Debug)]
pub(crate) struct Known {
    /// The token ids of each prompt, where anything is known of them.
    pub(crate) prompts: Option<Vec<Vec<u32>>>,
    /// How many tokens there are, or an estimate.
    pub(crate) count: u64,
    /// `tokens`, `text` or `none`.
    pub(crate) level: &'static str,
    /// `exact`, or why they are not known, or not exactly.
    pub(crate) tokens: &'static str,
    /// Where they are from.
    pub(crate) source: Source,
    /// The (first) prompt's text, where its tokens are not known and it was asked for.
    pub(crate) text: Option<PromptText>,
    /// Whether the token ids are what the engine is given.
    exact: bool,
}

impl Known {
    /// A prompt of which only the size is known.
    pub(crate) fn only_size(bytes: usize, why: &'static str) -> Self {
        let count = (bytes as u64 / BYTES_PER_TOKEN).min(LARGEST_ESTIMATE);
        let source = Source::None;
        let (level, text) = ("none", None);
        Self { prompts: None, count, level, tokens: why, source, text, exact: false }
    }

    /// A prompt whose text was found, but not its tokens.
    fn of_text(pool: &Pool, bytes: usize, why: &'static str, text: Option<PromptText>) -> Self {
        let known = Self::only_size(bytes, why);
        let Some(text) = text else { return known };
        // Images are no part of it. No engine takes more than its longest prompt, and what is
        // ignored of a message is no prompt.
        let count = (text.bytes + text.setting.len() as u64).div_ceil(BYTES_PER_TOKEN);
        Self { count: count.min(pool.longest_prompt()), text: Some(text), ..known }
    }

    /// Why the tokens are not known; `api` is `None` for paths forwarded as they are.
    pub(crate) fn blind(&self, api: Option<Api>) -> Option<Blind> {
        if self.prompts.is_some() {
            return None;
        }
        Some(match self.tokens {
            _ if api.is_none() => Blind::ApiMode,
            "unsupported_api" => Blind::ApiMode,
            "not_json" | "body" => Blind::TextEmpty,
            "no_tokenizer" => Blind::NoTokenizer,
            "tokenizer_pending" => Blind::TokenizerPending,
            "tokenizer_busy" => Blind::TokenizerBusy,
            "no_template" | "template_error" | "engine_rendered" | "tokenizer" => Blind::Tokenize,
            _ => Blind::Unsupported,
        })
    }

    /// The prompt whose tokens the client gave in a header. It is routed by them, but nothing is
    /// learned of it: they are the client's word, and others pay for what is learned wrongly.
    pub(crate) fn of_header(pool: &Pool, mut ids: Vec<u32>) -> Self {
        let most = pool.prompts().limits().prompt_bytes / size_of::<u32>();
        let is_over = ids.len() > most;
        // No engine computes more than it takes, whatever is said.
        let count = (ids.len() as u64).min(pool.longest_prompt());
        ids.truncate(most);
        Self {
            prompts: Some(vec![ids]),
            count,
            level: if is_over { Level::Text } else { Level::Tokens }.as_str(),
            tokens: if is_over { "head" } else { "header" },
            source: Source::Header,
            text: None,
            exact: false,
        }
    }

    /// What was rendered; `asked` and `pool` say whether it can be believed.
    fn of_rendered(
        pool: &Pool,
        asked: &Asked<'_>,
        renderer: Option<&Arc<Renderer>>,
        rendered: Prompts,
    ) -> Self {
        let Prompts { prompts, tokens: count, level, why, texts, .. } = rendered;
        if asked.learns {
            pool.note_prompt(count);
        }
        let given = texts.iter().all(Option::is_none);
        let source = if given { Source::Body } else { Source::Local };
        let known = Self {
            count,
            level: level.as_str(),
            tokens: why.as_ref().map_or("approximate", Unrouted::as_str),
            source,
            text: None,
            exact: false,
            prompts: Some(prompts),
        };
        if level != Level::Tokens {
            return known;
        }
        let oracle = pool.token_oracle();
        // A salt keeps a prompt to its tenant's cache: it is shown to no other engine.
        if source == Source::Local
            && asked.learns
            && !asked.adapted
            && asked.salt.is_none()
            && let (Some([ids]), Some(renderer)) = (known.prompts.as_deref(), renderer)
        {
            oracle.offer(asked.api, asked.body, ids, renderer);
        }
        if source == Source::Local && oracle.differs(asked.api) {
            let mut known = known;
            known.doubt();
            return known;
        }
        Self { tokens: "exact", exact: true, ..known }
    }

    /// Engines count the tokens of such prompts otherwise: theirs are other tokens.
    pub(crate) fn doubt(&mut self) {
        self.level = Level::Text.as_str();
        self.tokens = "token_mismatch";
        self.exact = false;
    }

    /// Whether the token ids are what the engine is given.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }
}

/// A request whose prompts are to be tokenised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) api: Api,
    pub(crate) body: &'a Bytes,
    pub(crate) salt: Option<&'a str>,
    /// It is for a LoRA adapter.
    pub(crate) adapted: bool,
    /// How many bytes of its text are wanted where its tokens are not known.
    pub(crate) text: usize,
    /// Whether anything is learned of it: not where a choice is only foreseen.
    pub(crate) learns: bool,
}

/// Tokenises a request for `pool`, if it can be done.
pub(crate) async fn tokenise(pool: &Pool, permits: &Arc<Semaphore>, asked: Asked<'_>) -> Known {
    let Asked { api, body, .. } = asked;
    if matches!(api, Api::Tokenize | Api::Detokenize) {
        return Known::only_size(body.len(), "unsupported_api");
    }
    let (renderer, without) = match &*pool.prompts().state() {
        PromptState::Ready(renderer) => (Some(Arc::clone(renderer)), ""),
        PromptState::Pending => (None, "tokenizer_pending"),
        PromptState::Missing(_) => (None, "no_tokenizer"),
    };
    let quick = |renderer: &Renderer| {
        let start = Instant::now();
        (renderer.quickly(api, body, asked.salt), start.elapsed())
    };
    let (rest, took) = match renderer.as_deref().map(quick) {
        Some((Quick::Done(done), took)) => {
            let rendered = done.map_err(|why| (refused(&why), text_in(api, body, asked.text)));
            note_time(pool.model(), took);
            return finished(pool, &asked, renderer.as_ref(), rendered);
        }
        Some((Quick::Rest(rest), took)) => (Some(rest), took),
        None => (None, Duration::ZERO),
    };
    let (salt, limits) = (asked.salt.map(str::to_owned), pool.prompts().limits());
    let wanted = asked.text;
    let work = renderer.clone().zip(rest);
    let timed = renderer.as_ref().map(|_| pool.model().to_owned());
    let render = move |body: &[u8]| {
        let start = Instant::now();
        let rendered = match work {
            Some((renderer, rest)) => {
                renderer.the_rest(rest, api, body, salt.as_deref()).map_err(|why| refused(&why))
            }
            None => given_ids(api, body, limits).ok_or(without),
        };
        if let Some(model) = timed {
            note_time(&model, took + start.elapsed());
        }
        rendered.map_err(|why| (why, text_in(api, body, wanted)))
    };
    let rendered = if renderer.is_none() && body.len() <= INLINE_READ_BYTES {
        render(body)
    } else {
        // The permit goes with the work: a client that leaves lets no thread run unaccounted.
        let permit = tokio::time::timeout(PATIENCE, Arc::clone(permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Known::only_size(body.len(), "tokenizer_busy");
        };
        let body = body.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            render(&body)
        });
        work.await.unwrap_or(Err(("tokenizer", None)))
    };
    finished(pool, &asked, renderer.as_ref(), rendered)
}

/// Prompts, or why there are none and the text where it was asked for.
type Rendered = Result<Prompts, (&'static str, Option<PromptText>)>;

fn finished(
    pool: &Pool,
    asked: &Asked<'_>,
    renderer: Option<&Arc<Renderer>>,
    rendered: Rendered,
) -> Known {
    if asked.learns && renderer.is_some() {
        note_chat(pool, asked.api, &rendered);
    }
    match rendered {
        Ok(rendered) => Known::of_rendered(pool, asked, renderer, rendered),
        Err((why, text)) => Known::of_text(pool, asked.body.len(), why, text),
    }
}

/// What a chat says of the model's template: others that are not rendered say nothing.
fn note_chat(pool: &Pool, api: Api, rendered: &Rendered) {
    if !matches!(api, Api::Chat | Api::Messages | Api::Responses) {
        return;
    }
    match rendered {
        Ok(rendered) if rendered.texts.iter().any(Option::is_some) => {
            pool.prompts().note_chat(true);
        }
        Err(("template_error", _)) => pool.prompts().note_chat(false),
        _ => {}
    }
}

fn refused(why: &Unrouted) -> &'static str {
    tracing::debug!(%why, "prompt not tokenised");
    why.as_str()
}

fn text_in(api: Api, body: &[u8], wanted: usize) -> Option<PromptText> {
    (wanted > 0).then(|| prompt_text(api, body, wanted)).flatten()
}

fn note_time(model: &str, took: Duration) {
    Stage::Tokenise.took(took.as_secs_f64());
    ModelFamilies::of(model).tokenized(took.as_secs_f64());
}
