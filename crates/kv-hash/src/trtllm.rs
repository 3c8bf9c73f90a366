//! TensorRT-LLM's block hashes, as its KV-cache events carry them.
//!
//! A [`Contract`] is one engine's way of hashing (`hash_algo` and which cache manager it runs). A
//! [`Chain`] applies it to one request's tokens and yields one [`BlockHash`] per full block. There
//! is no seed. [`v1_block_key`] hashes a single block after a parent that the caller knows.
//!
//! Sources: `tensorrt_llm/runtime/kv_cache_hash.py`, `cpp/tensorrt_llm/batch_manager/blockKey.cpp`
//! and `kv_cache_manager_v2/{blockRadixTree,eventHash}.cpp` of 2025 and 2026 (1.x). Text blocks of
//! `v1_block_key` are tested against the engine's own code; multimodal blocks and the `v2`
//! algorithms were read, not run.
//!
//! ```
//! use kvasir_kv_hash::trtllm::{Algorithm, Contract, Manager, Request, Salt};
//!
//! let contract = Contract::new("auto".parse()?, Manager::V2)?;
//! let mut chain = contract.chain(4)?; // tokens_per_block
//! let new = chain.append(&[1, 2, 3, 4, 5, 6, 7, 8]);
//! assert_eq!(new[0].to_u64(), 924_206_229_973_855);
//!
//! // The C++ manager hashes a salt with std::hash, which depends on its standard library.
//! let salted = Request { salt: Some(Salt::Text("tenant-a".into())), ..Request::default() };
//! let contract = Contract::new(Algorithm::V1BlockKey, Manager::V1)?;
//! assert!(contract.chain_with(4, salted).is_err());
//! # Ok::<(), kvasir_kv_hash::trtllm::ContractError>(())
//! ```

mod chain;
mod contract;
mod error;
mod request;
mod v1;
mod v2;

pub use self::chain::{BlockHash, Chain};
pub use self::contract::{Algorithm, Contract, Manager};
pub use self::error::{ContractError, Unknowable};
pub use self::request::{MmItem, Request, Salt, salt_id};
pub use self::v1::{MmKey, V1Block, v1_block_key};
