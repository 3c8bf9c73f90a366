//! KV-cache block hashes.
//!
//! Two things live here, and they never mix:
//!
//! * [`BlockKey`] and [`KeySpace`]: Kvasir's *own* chained identity of a block, computed from
//!   token ids alone. No seed, algorithm or flag of an engine enters it, so a router can key its
//!   index by it without agreeing on anything with the engine.
//! * the engines' hash *contracts*, bit for bit (modules [`vllm`], [`sglang`], [`trtllm`] and
//!   [`loxilb`], all of one shape; [`Spec`] for whichever a configuration names): what an engine of
//!   a given version and configuration calls the same block. They serve verification and routers
//!   that index by the engine's hashes. [`detect`] tells from events which contract made them, and
//!   [`verify`] holds block after block against one.
//!
//! What cannot be reproduced outside an engine's process is a typed answer that says why and what
//! to do instead.
//!
//! This crate does no I/O, has no async runtime, no global state and no clock. It never knows
//! endpoints, events, tokenizers or HTTP.

mod buffer;
pub mod detect;
mod digest;
mod hex;
mod key;
pub mod loxilb;
pub mod sglang;
mod shown;
mod spec;
mod spelled;
pub mod trtllm;
pub mod verify;
mod version;
pub mod vllm;
mod windows;
mod xxh3;

pub use self::key::{BlockExtra, BlockKey, KeySpace, Scope};
pub use self::spec::{Blocks, Engine, Explained, ExplainedBlock, Spec, SpecError};

/// Runs the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
