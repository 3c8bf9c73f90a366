//! The block hashes of LoxiLB's gateway, as it defines them.
//!
//! The gateway computes them from a request's tokens alone, to look them up among the hashes of
//! events. They equal an engine's only for plain text requests under the same seed: adapters,
//! salts, images and lookahead never enter.
//!
//! Sources: `common/sockproxy_kv_exact.c` and the operator guides of LoxiLB (2026).
//!
//! | algorithm | what it hashes | which engine says the same |
//! |---|---|---|
//! | `sha256_cbor`, `xxhash_cbor` | CBOR of `[parent, tokens, null]` | vLLM 0.10.2 (0.13.0) and later with the same `PYTHONHASHSEED`; without one, none |
//! | `sha256_sglang` | the chain of [`sglang`](crate::sglang) 0.5.6 and later | SGLang, for requests without salt and adapter |
//! | `blockhash_trtllm` | the same chain, **not** TensorRT-LLM's hash | none: the gateway hashes the tokens of stored events with it |
//!
//! ```
//! use kvasir_kv_hash::loxilb::{Algorithm, Contract};
//!
//! // LLB_KV_NONE_HASH_SEED=0, kvHashAlgo sha256_cbor, kvBlockSize 16
//! let contract = Contract::new("sha256_cbor".parse()?, Some("0"));
//! let mut chain = contract.chain(16)?;
//! let tokens: Vec<u32> = (1..=16).map(|k| 101 * k).collect();
//! assert_eq!(chain.append(&tokens)[0].to_u64(), 7_876_691_182_959_014_722);
//! # Ok::<(), kvasir_kv_hash::loxilb::ContractError>(())
//! ```

mod chain;
mod contract;

pub use self::chain::{BlockHash, Chain};
pub use self::contract::{Algorithm, Contract, ContractError, FirstParent};
