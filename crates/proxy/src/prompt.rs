//! From a body to tokens, off the async threads where it takes long.
//!
//! How far they are known is the request's level: `tokens` (exact), `text` (an approximation, or the
//! beginning only) or `none`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_fleet::{Pool, PromptState};
use kvasir_prompt::{Api, Level, Prompts, Unrouted, given_ids};
use tokio::sync::Semaphore;

/// Tokenising this much takes about a millisecond: not worth a change of threads.
const INLINE_BYTES: usize = 2 << 10;
/// Bytes of body per token, for prompts that are not tokenised.
const BYTES_PER_TOKEN: u64 = 4;
/// Above this an estimate from a body's size says more about images and the like than about tokens.
const LARGEST_ESTIMATE: u64 = 8_192;
/// How long a prompt waits for a tokenizer thread; then its request is routed by load.
const PATIENCE: Duration = Duration::from_secs(2);

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
    /// Whether the request gave the ids: then no tokenizer can be wrong about them.
    pub(crate) given: bool,
}

impl Known {
    /// A prompt of which only the size is known.
    pub(crate) fn only_size(bytes: usize, why: &'static str) -> Self {
        let count = (bytes as u64 / BYTES_PER_TOKEN).min(LARGEST_ESTIMATE);
        Self { prompts: None, count, level: "none", tokens: why, given: false }
    }

    /// Engines count the tokens of such prompts otherwise: theirs are other tokens.
    pub(crate) fn doubt(&mut self) {
        self.level = Level::Text.as_str();
        self.tokens = "token_mismatch";
    }

    /// Whether the token ids are what the engine is given.
    pub(crate) fn is_exact(&self) -> bool {
        self.prompts.is_some() && self.tokens == "exact"
    }
}

/// Tokenises a request for `pool`, if it can be done.
pub(crate) async fn tokenise(
    pool: &Pool,
    permits: &Arc<Semaphore>,
    api: Api,
    body: &Bytes,
    salt: Option<&str>,
) -> Known {
    if matches!(api, Api::Tokenize | Api::Detokenize) {
        return Known::only_size(body.len(), "unsupported_api");
    }
    let (renderer, without) = match &*pool.prompts().state() {
        PromptState::Ready(renderer) => (Some(Arc::clone(renderer)), ""),
        PromptState::Pending => (None, "tokenizer_pending"),
        PromptState::Missing(_) => (None, "no_tokenizer"),
    };
    let salt = salt.map(str::to_owned);
    let render = move |body: &[u8]| match &renderer {
        Some(renderer) => renderer.prompts_salted(api, body, salt.as_deref()).map_err(|why| {
            tracing::debug!(%why, "prompt not tokenised");
            why.as_str()
        }),
        None => given_ids(api, body).ok_or(without),
    };
    let rendered = if body.len() <= INLINE_BYTES {
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
        work.await.unwrap_or(Err("tokenizer"))
    };
    match rendered {
        Ok(Prompts { prompts, tokens: count, level, why, texts }) => {
            pool.note_prompt(count);
            let tokens = match level {
                Level::Tokens => "exact",
                _ => why.as_ref().map_or("approximate", Unrouted::as_str),
            };
            let given = texts.iter().all(Option::is_none);
            Known { prompts: Some(prompts), count, level: level.as_str(), tokens, given }
        }
        Err(why) => Known::only_size(body.len(), why),
    }
}
