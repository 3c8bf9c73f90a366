//! Which contract made these events, or which part of a configuration is off.
//!
//! Give a [`Detector`] a few stored events that carry tokens, best a chain's first block and some
//! after it. It computes their hashes under every contract it knows and every seed it is given, and
//! reports what fits, and in what an expectation differs from it: the algorithm, the seed, the
//! block size, integers or bytes, extra keys.
//!
//! What a match proves: 64 or more bits of hash. What no match proves: little. Other seeds, the
//! unknowable algorithm `builtin`, and extra keys that events do not carry all look alike.
//!
//! ```
//! use kvasir_kv_hash::detect::{Detector, EventHash, Expected, Leg, StoredEvent};
//! use kvasir_kv_hash::vllm::{Algorithm, Contract};
//!
//! // What an engine publishes, and what its operator believes.
//! let engine = Contract::new("0.32.0".parse()?, Algorithm::XxhashCbor, Some("42"))?;
//! let tokens: Vec<u32> = (0..32).collect();
//! let mut chain = engine.chain(16)?;
//! let hashes: Vec<_> = chain.append(&tokens).iter().map(|d| EventHash::Int(d.to_u64())).collect();
//! let event = StoredEvent { hashes: &hashes, tokens: &tokens, block_size: 16, ..Default::default() };
//!
//! let expected = Expected {
//!     algorithm: Some("sha256_cbor"),
//!     seed: Some(Some("0")),
//!     block_size: Some(16),
//!     ..Expected::default()
//! };
//! let report = Detector::new().expect(expected).run(&[event]);
//! assert_eq!(report.to_string(), "vLLM xxhash_cbor, seed \"42\", generations C to H, integer \
//!     hashes, block size 16 (2 of 2 blocks verified); algorithm is xxhash_cbor, you configured \
//!     sha256_cbor; seed is \"42\", you configured \"0\"");
//! assert!(matches!(report.legs[0], Leg::Algorithm { .. }));
//! # Ok::<(), kvasir_kv_hash::vllm::ContractError>(())
//! ```

mod event;
mod others;
mod report;
mod search;
mod seeds;
mod vllm_search;

pub use self::event::{EventHash, EventKey, Form, StoredEvent};
pub use self::report::{Found, Leg, Match, Report};
pub use self::search::{Detector, Expected};
pub use self::seeds::{BadSeeds, Seed, Seeds};

#[cfg(test)]
mod tests;
