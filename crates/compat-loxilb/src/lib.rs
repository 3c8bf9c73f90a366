//! `LoxiLB`'s API for inference rules, over Kvasir's own pools.
//!
//! This crate is the only place that speaks of rules, VIPs, `ep_idx` and Tier 1.5. A rule goes: body
//! (`rule`) → what it may not say, with the reference's texts (`validate`) → its place among the others
//! (`table`: key, service id, order of endpoints) → a pool of our own configuration (`translate`, a pure
//! function). All rules of one address and port are a [`Scope`]: a listener whose requests see the pools
//! of these rules and nothing else. What only the program can do (bind a port, run a fleet) is asked of
//! [`Gateway`]; what it decided comes back as a [`Note`] and is counted under the names of the reference
//! (`tally`, `exposition`).
//!
//! Differences that are meant are in `docs/loxilb.md`: proper 4xx, roles that imply prefill and decode,
//! event streams that follow every change of a rule, and blocks known by their tokens, so that hash
//! algorithm and seed need not agree with the engines.

// Tests say so where they can.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod answer;
mod api;
mod exposition;
mod gateway;
mod inventory;
mod rule;
mod server;
mod store;
mod table;
mod tally;
mod translate;
mod validate;

pub use self::api::Api;
pub use self::gateway::{Gateway, Later, Scope, ScopePool};
pub use self::server::{Server, ServerError, ServerSettings};
pub use self::store::StoreError;
pub use self::tally::Note;
pub use self::translate::Defaults;
pub use kvasir_server_tls::TlsFiles;
