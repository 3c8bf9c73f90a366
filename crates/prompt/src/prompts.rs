//! What is known of a request's prompts.

use crate::Unrouted;

/// Sizes above which no prompt is computed, and what computing may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of prompt text that are tokenized of one request (all its prompts together; 4
    /// bytes count for a token id). Of larger ones only the head is known ([`Unrouted::Head`]).
    pub prompt_bytes: usize,
    /// Most prompts in one request.
    pub prompts: usize,
    /// Most bytes of memory for the token ids of texts seen before. They are found again where a
    /// later text starts alike, up to an added token of the tokenizer; see
    /// [`Renderer::cache`](crate::Renderer::cache).
    pub cache_bytes: usize,
    /// Tokenize with the `tokenizers` library alone, also where Kvasir's own code is faster and
    /// says the same.
    pub library_only: bool,
}

impl Default for Limits {
    /// 4 MiB, which is about a million tokens of text, 1,024 prompts, and 128 MiB of cache,
    /// which is enough for some 15 million tokens.
    fn default() -> Self {
        Self { prompt_bytes: 4 << 20, prompts: 1024, cache_bytes: 128 << 20, library_only: false }
    }
}

/// How far the prompts of a request are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// The exact token ids.
    Tokens,
    /// The text, or the beginning of it: the ids are those of that text, and what the engine is
    /// given may go on or be put together otherwise. [`Prompts::why`] says why.
    Text,
}

impl Level {
    /// A word for metrics, logs and headers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Text => "text",
        }
    }
}

/// What the engine will be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    /// The token ids of each prompt; at least one prompt, each may be empty.
    pub prompts: Vec<Vec<u32>>,
    /// How far the ids are known.
    pub level: Level,
    /// Why the level is not [`Level::Tokens`].
    pub why: Option<Unrouted>,
    /// The text of each prompt, for explaining and debugging; `None` where the request gave ids.
    pub texts: Vec<Option<String>>,
    /// Tokens of all prompts together; an estimate unless the level is [`Level::Tokens`].
    pub tokens: u64,
}

impl Prompts {
    /// Prompts whose ids are exact.
    pub(crate) fn exact(prompts: Vec<Vec<u32>>, texts: Vec<Option<String>>) -> Self {
        let tokens = prompts.iter().map(|prompt| prompt.len() as u64).sum();
        Self { prompts, level: Level::Tokens, why: None, texts, tokens }
    }

    /// Beginnings of prompts that have `bytes` bytes together, more than the `limit`.
    pub(crate) fn heads(
        prompts: Vec<Vec<u32>>,
        texts: Vec<Option<String>>,
        tokens: u64,
        (bytes, limit): (usize, usize),
    ) -> Self {
        let why = Unrouted::Head { bytes, limit };
        Self { tokens, ..Self::exact(prompts, texts).approximate(why) }
    }

    /// The same as no more than an approximation.
    pub(crate) fn approximate(self, why: Unrouted) -> Self {
        Self { level: Level::Text, why: Some(why), ..self }
    }
}
