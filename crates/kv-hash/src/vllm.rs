//! vLLM's block-hash contract: what an engine of a given version and configuration calls a block.
//!
//! A [`Contract`] is one engine's way of hashing (version, algorithm, seed, lookahead). A [`Chain`]
//! applies it to one request's tokens and yields one [`Digest`] per full block; a [`BlockHasher`]
//! hashes single blocks after parents that the caller knows.
//!
//! Sources: vLLM 0.9.2 to 0.33.0, `vllm/v1/core/kv_cache_utils.py` and `vllm/utils/hashing.py`.
//! All algorithms but `builtin` are here. `builtin`, and engines that start from random bytes, give
//! an [`Unknowable`] that says what to do instead.
//!
//! ```
//! use kvasir_kv_hash::vllm::{Algorithm, Contract};
//!
//! // An engine started with PYTHONHASHSEED=0 and --prefix-caching-hash-algo sha256_cbor.
//! let contract = Contract::new("0.32.0".parse()?, Algorithm::Sha256Cbor, Some("0"))?;
//! let mut chain = contract.chain(3)?; // blocks of 3 tokens
//!
//! // Two full blocks; the seventh token waits for its block to fill.
//! let new = chain.append(&[5, 300, 70_000, 23, 24, 255, 256]);
//! assert_eq!(new.len(), 2);
//! // Events carry this integer by default, or `as_bytes()` where the engine is told so.
//! assert_eq!(new[0].to_u64(), 7_648_633_150_179_582_710);
//!
//! // Later turns cost only their own blocks.
//! let new = chain.append(&[65_535, 65_536]);
//! assert_eq!(new[0].to_u64(), 3_965_611_723_344_660_166);
//! assert_eq!(chain.digests().len(), 3);
//! # Ok::<(), kvasir_kv_hash::vllm::ContractError>(())
//! ```

mod algorithm;
mod cbor;
mod chain;
mod contract;
mod encode;
mod error;
mod extras;
mod generation;
mod hasher;
mod pickle;
mod pipeline;
mod seed;

pub use self::algorithm::Algorithm;
pub use self::chain::{Chain, token_ids};
pub use self::contract::Contract;
pub use self::encode::ExtraKey;
pub use self::error::{ContractError, Unknowable, Unsupported};
pub use self::extras::{Lora, MmItem, PromptEmbeds, RequestExtras};
pub use self::generation::Generation;
pub(crate) use self::hasher::hash_text;
pub use self::hasher::{Block, BlockHasher};
pub use self::seed::python_accepts;
pub use crate::digest::{BadDigest, Digest, GroupHash};
pub use crate::version::{BadVersion, Version};
