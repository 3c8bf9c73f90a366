//! KV-cache block hashes.
//!
//! Two things live here, and they never mix:
//!
//! * [`BlockKey`] and [`KeySpace`]: Kvasir's *own* chained identity of a block, computed from
//!   token ids alone. No seed, algorithm or flag of an engine enters it, so a router can key its
//!   index by it without agreeing on anything with the engine.
//! * the engines' hash *contracts*, bit for bit (module [`vllm`]): what an engine of a given
//!   version and configuration calls the same block. They serve verification and routers that
//!   index by the engine's hashes.
//!
//! This crate does no I/O, has no async runtime, no global state and no clock. It never knows
//! endpoints, events, tokenizers or HTTP.

mod buffer;
mod digest;
mod hex;
mod key;
pub mod loxilb;
mod release;
pub mod sglang;
mod shown;
pub mod trtllm;
pub mod vllm;

pub use self::key::{BlockExtra, BlockKey, KeySpace, Scope};

/// Runs the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
