//! How often the trust in an engine's events changed, and from what to what. The engine keeps count
//! itself, so that one that is gone leaves no series behind.

use std::collections::BTreeMap;

use kvasir_inventory::Trust;
use parking_lot::Mutex;

/// One kind of change. There are few: ranks, states and reasons are all bounded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrustChange {
    /// `None` where it is all ranks' at once.
    pub(crate) rank: Option<u32>,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) reason: &'static str,
}

/// Counts of one engine, whichever of its streams come and go.
#[derive(Debug, Default)]
pub(crate) struct TrustChanges(Mutex<BTreeMap<TrustChange, u64>>);

impl TrustChanges {
    pub(crate) fn count(&self, rank: Option<u32>, from: Trust, to: Trust, reason: &'static str) {
        let change = TrustChange { rank, from: from.to_string(), to: to.to_string(), reason };
        *self.0.lock().entry(change).or_default() += 1;
    }

    pub(crate) fn ever(&self) -> BTreeMap<TrustChange, u64> {
        self.0.lock().clone()
    }
}
