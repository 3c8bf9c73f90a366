//! Routing policies behind one trait.
//!
//! A decision is a pure function of what is passed in: the [`Query`], the [`FleetView`], the
//! [`PolicyState`] (counters and the seeded random source). No clock, no I/O, no global state: the
//! gateway, a simulator and a replay of a decision log call the same code and get the same
//! [`Choice`].
//!
//! This crate knows no HTTP, no sockets and no configuration file. Which endpoints may be chosen at
//! all (health, drain, adapter) is decided by the caller: a view holds eligible candidates only.

mod estimate;
mod kind;
mod policies;
mod rng;
mod view;

pub use self::estimate::{
    DEFAULT_PREFILL_RATE, DEFAULT_PROMPT_TOKENS, PrefillRate, foreign_waiting, median_rate,
    next_typical_prompt,
};
pub use self::kind::{PolicyKind, UnknownPolicy};
pub use self::policies::{Latency, LeastLoad, PreciseCacheAware, RoundRobin};
pub use self::rng::Rng;
pub use self::view::{Candidate, Choice, FleetView, Load, Policy, PolicyState, Query, Reason};
