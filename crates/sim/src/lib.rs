//! Routing policies over workloads in virtual time: which policy, at which load, for which traffic.
//!
//! [`simulate`] plays one [`Workload`] (a recorded trace or a made-up one) under several policies
//! on the same fleet and compares them. Nothing waits: an hour of traffic takes seconds.
//!
//! [`conformance`] checks whether a policy keeps conversations where they are, and tenants apart.
//!
//! What is real and what is modelled:
//!
//! * the policies are those of `kvasir-balance`, called with what a gateway would know; other
//!   routers' formulas are there for comparison ([`SimPolicy`]);
//! * engines are `kvasir-engine-sim`'s: paged cache with prefix caching and eviction, chunked
//!   prefill under a token budget, decode pace by batch and context, KV events in vLLM's encoding;
//! * each gateway follows every engine's events with `kvasir-kv-events`' stream, keeps them in a
//!   `kvasir-inventory` of its own and believes them as `kvasir-fleet` does; events come late and
//!   get lost, metrics are read once in a while, speeds are learned from first tokens, and prompts
//!   count where they are being computed by `kvasir-fleet`'s pending prefixes;
//! * fleets may have prefill and decode engines: pairs are chosen by `kvasir-balance`, prompts kept for a
//!   while where they were computed, and handed over in a time of their own;
//! * several gateways do not know of each other's requests but through metrics and events;
//! * clients wait for answers, and a turn of a conversation waits for the turn before it.
//!
//! Not modelled: tokenising (prompts are known exactly), clients that hang up, adapters, slower
//! cache tiers, networks that differ from one engine to another or are shared by what travels.
//!
//! The same workload, options and seed give the same numbers, byte for byte.

mod compare;
mod conformance;
mod decisions;
mod gaps;
mod gateway;
mod options;
mod policies;
mod prepared;
mod queue;
mod record;
mod replica;
mod report;
mod saturation;
mod workload;
mod world;

pub use self::compare::{Progress, simulate, simulate_fleets};
pub use self::conformance::{Conformance, Isolation, Tenants, conformance};
pub use self::decisions::{LogError, simulate_logged};
pub use self::options::{Engines, Fleet, News, Options, OptionsError, Restart, Split};
pub use self::policies::{Peer, SimPolicy, UnknownSimPolicy};
pub use self::report::{
    Comparison, HandOvers, Plans, PolicyReport, Spread, csv, json, plot, table,
};
pub use self::saturation::{Saturation, SaturationState, find_saturation};
pub use self::workload::{
    Asked, Release, Segment, Synthetic, TraceError, TraceProblem, UnknownWorkload, Workload,
};
