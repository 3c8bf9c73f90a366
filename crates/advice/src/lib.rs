//! Advised weights, for fleets of unlike engines.
//!
//! A *controller* reads a registry of engines, asks each what it is, and advises a gateway how much of its
//! configured weight each endpoint should count ([`controller`]); a *gateway* follows such advice within
//! bounds of its own ([`gateway`]). Between them is one gRPC contract ([`wire`]).
//!
//! Advice is never needed: what is late, wrong or missing leaves the gateway as if there were no controller.
//! What decides is pure ([`registry`], [`fingerprint`](fingerprint()), `controller::{weights, emission,
//! advisor}`, `gateway::follower`); sockets are in `controller::run`, `gateway::watch` and `transport`.

pub mod controller;
mod fingerprint;
pub mod gateway;
pub mod registry;
mod transport;
pub mod wire;

pub use self::fingerprint::fingerprint;
pub use self::transport::{Dialed, TransportError};
