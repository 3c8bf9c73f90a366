//! Why a policy that goes by the engines' caches has no say in a request.

use serde::{Deserialize, Serialize};

/// Why a prompt has no keys that engines' blocks could be known by. Found out by the caller, for
/// whom it is a property of the request or of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blind {
    /// The body has no prompt, or an empty one, or is none that can be read.
    TextEmpty,
    /// The model has no tokenizer here.
    NoTokenizer,
    /// Its tokenizer is not loaded yet.
    TokenizerPending,
    /// All tokenizer threads were busy for too long.
    TokenizerBusy,
    /// Template or tokenizer failed, or the engine does it with code of its own.
    Tokenize,
    /// Something in the request cannot be reproduced outside the engine.
    Unsupported,
    /// The path's bodies are not read for prompts.
    ApiMode,
    /// Its tokens are known, but of no endpoint how it cuts or hashes them: no block size, or no
    /// way to compute the engine's hashes.
    Hashes,
}

/// Why a policy had no say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// The prompt has no keys.
    Blind(Blind),
    /// No candidate's events are believed now.
    NotReady,
    /// The prompt is shorter than a block.
    NoFullBlock,
    /// No candidate holds any of it.
    NoHolder,
    /// The same, once for so many requests in a row: prompts and events may be keyed differently.
    ZeroHits,
    /// An endpoint holds some of it that an earlier stage left out; no candidate does.
    Excluded,
    /// The longest prefix is too short to matter.
    Shallow,
}

impl Blind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::TextEmpty,
        Self::NoTokenizer,
        Self::TokenizerPending,
        Self::TokenizerBusy,
        Self::Tokenize,
        Self::Unsupported,
        Self::ApiMode,
        Self::Hashes,
    ];

    /// The word used in headers, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TextEmpty => "text_empty",
            Self::NoTokenizer => "no_tokenizer",
            Self::TokenizerPending => "tokenizer_pending",
            Self::TokenizerBusy => "tokenizer_busy",
            Self::Tokenize => "tokenize",
            Self::Unsupported => "unsupported",
            Self::ApiMode => "api_mode",
            Self::Hashes => "hashes",
        }
    }
}

impl Miss {
    /// The word used in headers, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blind(blind) => blind.as_str(),
            Self::NotReady => "not_ready",
            Self::NoFullBlock => "no_full_block",
            Self::NoHolder => "no_holder",
            Self::ZeroHits => "zero_hits",
            Self::Excluded => "excluded",
            Self::Shallow => "shallow",
        }
    }
}
