//! Prefill/decode disaggregation: what of it one server keeps, counts and forgets.
//!
//! A prompt that was computed here for somebody else stays in the engine's blocks: under a lease
//! ([`leases`]) that whoever knows its name may fetch, or in a room ([`rooms`]) where both legs
//! meet. Whoever decodes asks for it over HTTP ([`fetch`], [`serve`]).

pub(super) mod config;
pub(super) mod fetch;
mod leases;
pub(super) mod legs;
pub(super) mod params;
pub(super) mod rooms;
pub(super) mod serve;
mod wire;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use self::leases::Leases;
use self::rooms::Rooms;
use super::metrics::unix_seconds;
use super::state::mix;

/// The state of both sides.
#[derive(Debug)]
pub(super) struct Disagg {
    seed: u64,
    /// `remote_engine_id`, another one in every life.
    engine_id: Mutex<String>,
    leases: Leases,
    /// Where legs that prefill here meet those that decode elsewhere.
    rooms: Rooms,
    /// The rooms of legs that decode here.
    decoding: Rooms,
    pulls: AtomicUsize,
    pulled_tokens: AtomicU64,
    failed: AtomicU64,
}

/// What the metrics page and the state show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Prompts kept under a lease.
    pub(super) leases: usize,
    /// Rooms with at least one leg in them.
    pub(super) rooms: usize,
    /// Transfers this server is fetching.
    pub(super) pulls: usize,
    /// Leases nobody fetched in time.
    pub(super) expired: u64,
    /// Transfers this server fetched in vain.
    pub(super) failed: u64,
    /// Tokens this server fetched.
    pub(super) pulled_tokens: u64,
}

impl Disagg {
    pub(super) fn new(seed: u64, address: SocketAddr) -> Self {
        let seed = mix(seed, u64::from(address.port()));
        Self {
            seed,
            engine_id: Mutex::new(uuid(seed)),
            leases: Leases::default(),
            rooms: Rooms::default(),
            decoding: Rooms::default(),
            pulls: AtomicUsize::new(0),
            pulled_tokens: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            leases: self.leases.len(),
            rooms: self.rooms.len() + self.decoding.len(),
            pulls: self.pulls.load(Ordering::Relaxed),
            expired: self.leases.expired(),
            failed: self.failed.load(Ordering::Relaxed),
            pulled_tokens: self.pulled_tokens.load(Ordering::Relaxed),
        }
    }

    /// Nothing of the life before is there any more.
    pub(super) fn new_life(&self) {
        self.leases.clear();
        self.rooms.clear();
        self.decoding.clear();
        self.pulled_tokens.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        *self.engine_id.lock() = uuid(self.seed);
    }
}

/// A version 4 UUID that differs at every moment.
fn uuid(seed: u64) -> String {
    let (a, b) = (mix(seed, unix_seconds().to_bits()), mix(!seed, unix_seconds().to_bits()));
    let hex = format!("{a:016x}{b:016x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-4{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

#[cfg(test)]
mod tests;
