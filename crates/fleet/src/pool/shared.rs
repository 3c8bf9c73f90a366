//! What pools share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kvasir_inventory::Inventory;
use parking_lot::Mutex;

use crate::by_name::ByName;
use crate::hand_over::{HandOverCounts, HandOvers};
use crate::health::Health;
use crate::load::LoadCounters;
use crate::pending::PendingPrefixes;
use crate::retired::Retired;
use crate::trust_changes::TrustChanges;

/// What is known of all engines, whichever pools and fleets they are in.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// What their caches hold.
    pub(crate) inventory: Arc<Inventory>,
    /// What they are computing.
    pub(crate) pending: Arc<PendingPrefixes>,
    /// What endpoints have in hand.
    pub(crate) accounts: Arc<ByName<LoadCounters>>,
    /// How engines are, by URL.
    pub(crate) healths: Arc<ByName<Mutex<Health>>>,
    /// Engines that were sent requests whose blocks differ by more than tokens, by URL: whoever
    /// follows their streams anew must know.
    pub(crate) carried_extras: Arc<ByName<AtomicBool>>,
    /// How often the trust in their events changed, by URL.
    pub(crate) trust_changes: Arc<ByName<TrustChanges>>,
    /// How their hand-overs of KV went, and what is counted of them, by URL.
    pub(crate) hand_overs: Arc<HandOvers>,
    pub(crate) hand_over_counts: Arc<ByName<HandOverCounts>>,
    /// Endpoints that are none any more and still have requests.
    pub(crate) retired: Arc<Retired>,
}

impl Shared {
    /// Nothing is pending, nothing in hand.
    pub(crate) fn new(inventory: Arc<Inventory>) -> Self {
        Self {
            inventory,
            pending: Arc::default(),
            accounts: Arc::default(),
            healths: Arc::default(),
            carried_extras: Arc::default(),
            trust_changes: Arc::default(),
            hand_overs: Arc::default(),
            hand_over_counts: Arc::default(),
            retired: Arc::default(),
        }
    }
}
