//! What can be wrong with a contract or with a request under it.

use crate::version::{BadVersion, Version};

/// Why a contract cannot be built or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The text is no version number.
    #[error(transparent)]
    BadVersion(#[from] BadVersion),
    /// No generation is known for this version.
    #[error(
        "the page-hash contract of SGLang {version} is not known: {why}; to assume that of a \
         verified release, give its number instead"
    )]
    UnverifiedVersion {
        /// The version asked for.
        version: Version,
        /// Why it is not known.
        why: &'static str,
    },
    /// The text is no value of `format` in `--kv-events-config`.
    #[error("{text:?} is not an SGLang event format (default, dynamo)")]
    BadFormat {
        /// The text, shortened.
        text: String,
    },
    /// The Dynamo format came with 0.5.22.
    #[error("SGLang {version} has no \"dynamo\" event format (0.5.22 and later do)")]
    NoDynamoFormat {
        /// The engine's version.
        version: Version,
    },
    /// The contract cannot be reproduced outside the engine's process.
    #[error("unknowable: {0}")]
    Unknowable(Unknowable),
    /// A page has at least one token.
    #[error("page size 0: a page has at least one token")]
    ZeroPageSize,
    /// Token ids of 2^32 and more came with 0.5.23.
    #[error("SGLang {version} fails on token {token} at index {index}: it is 2^32 or more")]
    WideToken {
        /// Index in the given tokens.
        index: usize,
        /// The token.
        token: u64,
        /// The engine's version.
        version: Version,
    },
    /// No SGLang has token ids of 2^63 and more.
    #[error("token {token} at index {index} is out of range (0 to 2^63 - 1)")]
    TokenOutOfRange {
        /// Index in the given tokens.
        index: usize,
        /// The token.
        token: u64,
    },
}

impl From<Unknowable> for ContractError {
    fn from(error: Unknowable) -> Self {
        Self::Unknowable(error)
    }
}

/// What only the engine's process knows, and what to do instead.
///
/// To index by tokens is what [`KeySpace`](crate::KeySpace) is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unknowable {
    /// An adapter's id is drawn at random when it is loaded, and enters the published hash.
    #[error(
        "this engine's hashes for an adapter cover its id, which is random and which events do not \
         carry; index by the tokens and `lora_name` of events, or give the id"
    )]
    LoraId,
}
