//! SGLang's page hashes: what an engine of a given version calls a page of its radix cache.
//!
//! A [`Contract`] is one engine's way of hashing (version, event format, bigrams). A [`Chain`]
//! applies it to one request's tokens and yields one [`PageHash`] per full page. There is no seed
//! and no choice of algorithm: the version decides.
//!
//! Sources: SGLang 0.5.1 to 0.5.23, `sglang/srt/mem_cache/{radix_cache,hicache_storage,utils,
//! events}.py`, `cpp_utils/hash_binding.cpp` and `disaggregation/kv_events.py`.
//!
//! | versions | hash of a page |
//! |---|---|
//! | 0.5.1 to 0.5.5 | `CPython`'s `hash()` of the tuple of its tokens; pages are not chained |
//! | 0.5.6 to 0.5.17 | SHA-256 over the parent page's digest and the tokens |
//! | 0.5.18 to 0.5.21 | the same; a `cache_salt` takes the place of the first page's parent |
//! | 0.5.22 | the same; `"format": "dynamo"` puts published values into a namespace |
//! | 0.5.23 | the default format does so too for adapters; token ids of 2^32 and more |
//!
//! ```
//! use kvasir_kv_hash::sglang::{Contract, EventFormat};
//!
//! let contract = Contract::new("0.5.23".parse()?, EventFormat::Default)?;
//! let mut chain = contract.chain(7)?; // --page-size 7
//! let new = chain.append(&[1, 2, 3, 4, 5, 6, 7]);
//! // Events carry the first eight bytes as a signed integer.
//! assert_eq!(new[0].to_u64(), 0x4c81_6952_ba53_cc36);
//! # Ok::<(), kvasir_kv_hash::sglang::ContractError>(())
//! ```

mod chain;
mod contract;
mod error;
mod generation;
mod namespace;
mod request;
mod tuple_hash;

pub use self::chain::{Chain, PageHash};
pub use self::contract::{Contract, EventFormat};
pub use self::error::{ContractError, Unknowable};
pub use self::generation::Generation;
pub use self::request::{Lora, Request};
pub use crate::version::{BadVersion, Version};
