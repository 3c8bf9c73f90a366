//! Routing policies, and the stages of a pool's decisions.
//!
//! A decision is a pure function of what is passed in: the [`Query`], the endpoints ([`Members`]),
//! the clock and the seeded random source ([`Moment`]), and what the [`Selection`] remembers of the
//! calls before. No clock, no I/O, no global state: the gateway, a simulator and a replay of a
//! decision log call the same code and get the same [`Decision`].
//!
//! This crate knows no HTTP, no sockets and no configuration file. What speaks against an endpoint
//! (health, drain, adapter) is found out by the caller, as an [`Exclusion`].

mod choice;
pub mod e4;
mod estimate;
mod exclusion;
mod hashed;
mod kind;
mod miss;
mod pair;
mod policies;
mod policy;
mod query;
pub mod record;
mod rng;
mod select;
mod sessions;
mod slo;
mod spec;
mod sticky;
mod view;

pub use self::choice::{Choice, Reason};
pub use self::estimate::{
    DEFAULT_PROMPT_TOKENS, PrefillRate, RecentWork, even_out, expected_rate, fetch_rate,
    foreign_waiting, median_rate, next_typical_prompt,
};
pub use self::exclusion::Exclusion;
pub use self::hashed::{HashKey, KeyParts};
pub use self::kind::{PolicyKind, UnknownPolicy};
pub use self::miss::{Blind, Miss};
pub use self::pair::{
    Cut, DEFAULT_TRANSFER_RATE, DecodeTerms, Legs, PairPlan, PairSelect, PairTerms, Paired,
    Pairing, PlanCost, PrefillTerms, Role, Sides, TransferTerms,
};
pub use self::policies::{
    Blend, CacheAware, CacheAwareOptions, Capacity, Chwbl, ConsistentHash, Guard, Latency,
    LeastLoad, LmcacheAware, LoadScore, PowerOfTwo, PreciseCacheAware, PreciseOptions,
    PrecisePipeline, Random, Relief, RoundRobin, Session, Ttft, Weighted, detail,
};
pub use self::policy::{Moment, Outcome, Policy};
pub use self::query::{HEAD_BYTES, Needs, Prefix, Query, digest, digest_of_text, digest_of_tokens};
pub use self::rng::Rng;
pub use self::select::{Decision, Members, Note, Selection, Stage};
pub use self::sessions::{BodyName, MAX_SESSION_BYTES, SessionSource};
pub use self::slo::Slo;
pub use self::spec::{PolicySpec, SelectionSpec};
pub use self::sticky::{Pins, StickyOptions};
pub use self::view::{Candidate, EndpointId, FleetView, Load};
