//! What can be wrong with a contract or with a request under it.

use super::algorithm::Algorithm;
use super::generation::Generation;
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
        "the block-hash contract of vLLM {version} is not known: {why}; to assume that of a \
         verified release, give its number instead"
    )]
    UnverifiedVersion {
        /// The version asked for.
        version: Version,
        /// Why it is not known.
        why: &'static str,
    },
    /// The text is no value of `--prefix-caching-hash-algo`.
    #[error(
        "{text:?} is not a vLLM hash algorithm (builtin, sha256, sha256_cbor_64bit, sha256_cbor, \
         xxhash, xxhash_cbor)"
    )]
    BadAlgorithm {
        /// The text, shortened.
        text: String,
    },
    /// That engine does not have that algorithm.
    #[error("vLLM {version} has no hash algorithm {algorithm}")]
    NotOffered {
        /// The algorithm asked for.
        algorithm: Algorithm,
        /// The engine's version.
        version: Version,
    },
    /// The contract can be reproduced, but this crate does not do it.
    #[error("unsupported: {0}")]
    Unsupported(Unsupported),
    /// The contract cannot be reproduced outside the engine's process.
    #[error("unknowable: {0}")]
    Unknowable(Unknowable),
    /// `NONE_HASH` has 1 to 32 bytes.
    #[error("a NONE_HASH of {len} bytes: it has 1 to 32")]
    BadNoneHash {
        /// Bytes given.
        len: usize,
    },
    /// A block has at least one token.
    #[error("block size 0: a block has at least one token")]
    ZeroBlockSize,
    /// A group's block is at least one hashed block.
    #[error("a group block of 0 hashed blocks: it has at least one")]
    ZeroGroup,
    /// Token ids are 0 to 2^32 - 1.
    #[error("token {token} at index {index} is out of range (0 to 4294967295)")]
    TokenOutOfRange {
        /// Index in the given tokens.
        index: usize,
        /// The offending id.
        token: i64,
    },
    /// Lookahead hashing came with 0.33.0.
    #[error("vLLM {version} does not hash lookahead tokens (0.33.0 and later do)")]
    NoLookahead {
        /// The engine's version.
        version: Version,
    },
    /// Groups of another block size came with 0.12.0.
    #[error("vLLM {version} does not view block hashes at a group's block size (0.12.0 and later)")]
    NoGroupView {
        /// The engine's version.
        version: Version,
    },
    /// This generation hashes a part of the adapter's identity that was not given.
    #[error(
        "vLLM {} and later of its generation hash the LoRA adapter's {part}, which was not given",
        generation.first_release()
    )]
    LoraPartMissing {
        /// The engine's generation.
        generation: Generation,
        /// `int_id` or `path`.
        part: &'static str,
    },
    /// Prompt embeddings enter the hash from 0.11.1.
    #[error("vLLM {version} does not hash prompt embeddings (0.11.1 and later do)")]
    NoPromptEmbeds {
        /// The engine's version.
        version: Version,
    },
    /// The tensor's bytes are not a whole number of rows.
    #[error("{len} bytes of prompt embeddings are not rows of {row_bytes} bytes")]
    BadPromptEmbeds {
        /// Bytes given.
        len: usize,
        /// Bytes per row given.
        row_bytes: usize,
    },
    /// A multimodal item is empty, or its end is beyond any prompt.
    #[error("multimodal item {index} has an impossible length of {length} tokens")]
    BadItemLength {
        /// Index in the request's items.
        index: usize,
        /// The length given.
        length: usize,
    },
    /// Items come in prompt order.
    #[error("multimodal item {index} starts before the one in front of it")]
    ItemsOutOfOrder {
        /// Index in the request's items.
        index: usize,
    },
}

/// A contract that is reproducible, but not by this crate. There is none at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {}

/// A contract that depends on something only the engine's process knows, and what to do instead.
///
/// To index by tokens is what [`KeySpace`](crate::KeySpace) is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unknowable {
    /// `builtin` hashes memory addresses and the interpreter's string key.
    #[error(
        "algorithm builtin is CPython's hash(), which depends on the process's memory and string \
         key; index by the tokens that events carry, or start the engine with \
         --prefix-caching-hash-algo sha256 or sha256_cbor_64bit"
    )]
    BuiltinHash,
    /// The chain starts from random bytes.
    #[error(
        "without PYTHONHASHSEED this engine starts its chains from random bytes (before 0.29, and \
         with xxhash and xxhash_cbor always); set PYTHONHASHSEED on the engine, or index by the \
         tokens that events carry"
    )]
    RandomNoneHash,
}
