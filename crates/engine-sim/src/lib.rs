//! A model of an inference engine, faithful to vLLM V1 where a router can notice.
//!
//! An [`Engine`] is a paged KV cache with prefix caching, a continuous-batching scheduler with
//! chunked prefill, a cost model and the KV events of both, in virtual time: no I/O, no async, no
//! threads and no clock. Whoever drives it submits requests, calls [`Engine::step`] whenever the
//! previous step's duration has passed, and hands out what the step produced:
//!
//! ```
//! use kvasir_engine_sim::{Engine, EngineConfig, Request, RequestId};
//!
//! let mut engine = Engine::new(EngineConfig::default())?;
//! let prompt: Vec<u32> = (0..100).collect();
//! engine.submit(Request::new(RequestId(1), prompt.clone(), 3))?;
//! let mut tokens = 0;
//! while let Some(step) = engine.step() {
//!     tokens += step.outputs.len(); // what clients see `step.duration` later
//! }
//! assert_eq!(tokens, 3);
//!
//! engine.submit(Request::new(RequestId(2), prompt, 1))?;
//! let step = engine.step().ok_or("idle")?;
//! assert_eq!(step.outputs[0].cached_tokens, 96); // six blocks of 16
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same sequence of calls gives the same results, on every machine. Data-parallel ranks are
//! engines of their own.
//!
//! What is modelled, and from where:
//!
//! * the cache and the scheduler follow the published sources of vLLM 0.20 to 0.32 (first-come
//!   first-served policy, one full-attention cache group, synchronous scheduling); their events
//!   are compared byte for byte with recordings of real servers, and their steps with those of
//!   vLLM 0.32's own scheduler under random load;
//! * block hashes are the engine's own where `kvasir-kv-hash` has its contract, and opaque ones of
//!   the right size otherwise ([`Hashing`]);
//! * [`EventFormat`] encodes a batch as a given release does, 0.10 to 0.33;
//! * durations come from a [`CostModel`]; no recording backs them.
//!
//! * of prefill/decode disaggregation the engine has both ends: a request may leave its prompt's
//!   blocks behind, kept ([`Request::hold`]), or find its prompt computed elsewhere
//!   ([`Request::remote_prefill`]); how blocks travel is the matter of whoever drives it.
//!
//! [`server`] drives engines in real time behind sockets: HTTP as vLLM answers it, and KV events
//! over ZeroMQ.
//!
//! Not modelled: hybrid and sliding-window caches, speculative decoding, offload tiers, priority
//! scheduling, `kv_cache_report_mode`.

mod block_hash;
mod cache;
mod config;
mod engine;
mod events;
mod hashes;
mod hashing;
mod held;
mod request;
mod scheduler;
mod sequence;
pub mod server;
mod stats;
mod timing;
mod tokens;

pub use self::block_hash::BlockHash;
pub use self::config::{ConfigError, EngineConfig, MAX_BLOCK_SIZE};
pub use self::engine::{Engine, Output, StepOutcome};
pub use self::events::{BlockRemoved, BlockStored, Event, EventFormat, ExtraKey, HashForm};
pub use self::hashing::{Hashing, OpaqueHashing};
pub use self::held::Held;
pub use self::request::{FinishReason, Request, RequestId, SubmitError};
pub use self::stats::EngineStats;
pub use self::timing::{CostModel, StepLoad};
pub use self::tokens::{NextToken, PseudoRandom, TokenRequest, TokenSource};

pub use kvasir_kv_hash::vllm::{Algorithm, Lora, MmItem, Version};
