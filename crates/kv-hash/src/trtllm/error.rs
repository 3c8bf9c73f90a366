//! What can be wrong with a contract or with a request under it.

use super::contract::{Algorithm, Manager};

/// Why a contract cannot be built or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The text is no value of `hash_algo`.
    #[error(
        "{text:?} is not a TensorRT-LLM event hash algorithm (auto, v1_block_key, v2_sha256, \
         v2_sha256_64)"
    )]
    BadAlgorithm {
        /// The text, shortened.
        text: String,
    },
    /// That cache manager does not have that algorithm.
    #[error("the {manager} cache manager has no hash algorithm {algorithm}")]
    NotOffered {
        /// The algorithm asked for.
        algorithm: Algorithm,
        /// The cache manager.
        manager: Manager,
    },
    /// The contract cannot be reproduced outside the engine's process.
    #[error("unknowable: {0}")]
    Unknowable(Unknowable),
    /// A block has at least one token.
    #[error("block size 0: a block has at least one token")]
    ZeroBlockSize,
    /// The second cache manager names an item's tokens from the vocabulary's size on.
    #[error("multimodal items need the vocabulary's size with the second cache manager")]
    NoVocabularySize,
    /// An item is empty, or its end is beyond any prompt.
    #[error("multimodal item {index} has an impossible length of {length} tokens")]
    BadItemLength {
        /// Index in the request's items.
        index: usize,
        /// The length given.
        length: usize,
    },
    /// Items come in prompt order and do not overlap.
    #[error("multimodal item {index} starts before the end of the one in front of it")]
    ItemsOutOfOrder {
        /// Index in the request's items.
        index: usize,
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
    /// The first cache manager mixes `std::hash<std::string>` of the salt into the first block.
    #[error(
        "the first cache manager hashes a salt's text with std::hash, which depends on the C++ \
         library it was built with; index by the tokens and `cache_salt` of events, or \
         run the engine with the second cache manager"
    )]
    StdHashSalt,
}
