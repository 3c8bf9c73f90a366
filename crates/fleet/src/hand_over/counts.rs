//! What is counted of one engine's hand-overs, as long as the engine is there.

use std::sync::atomic::{AtomicU64, Ordering};

use kvasir_balance::Role;

use super::Fault;

/// Counters of one engine.
#[derive(Debug, Default)]
pub(crate) struct HandOverCounts {
    failed: [AtomicU64; 2],
    blamed: [AtomicU64; 3],
}

impl HandOverCounts {
    /// One failed in which it had this part.
    pub(super) fn failed(&self, part: Role) {
        let [prefill, decode] = &self.failed;
        let count = if part == Role::Decode { decode } else { prefill };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// It, or its link to another one, was found at fault.
    pub(super) fn blamed(&self, fault: Fault) {
        let [prefill, decode, link] = &self.blamed;
        let count = match fault {
            Fault::Prefill => prefill,
            Fault::Decode => decode,
            Fault::Link => link,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Those that failed, by its part.
    pub(crate) fn failures(&self) -> [(Role, u64); 2] {
        let [prefill, decode] = &self.failed;
        [(Role::Prefill, prefill), (Role::Decode, decode)]
            .map(|(role, count)| (role, count.load(Ordering::Relaxed)))
    }

    /// How often it was found at fault, by what was.
    pub(crate) fn blames(&self) -> [(Fault, u64); 3] {
        let [prefill, decode, link] = &self.blamed;
        [(Fault::Prefill, prefill), (Fault::Decode, decode), (Fault::Link, link)]
            .map(|(fault, count)| (fault, count.load(Ordering::Relaxed)))
    }
}
