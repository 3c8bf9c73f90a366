//! Endpoints that are none any more while requests are still there: ranks that an engine no longer
//! has, or that are addressed in another way since a reload.
//!
//! What they have in hand is still the engine's: it is shown, and counted against limits, until the
//! last of these requests ends.

use std::sync::Arc;

use http::uri::Authority;
use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::load::LoadCounters;

/// All of a gateway, whichever fleet they were of.
#[derive(Debug, Default)]
pub(crate) struct Retired(Mutex<Vec<Arc<Endpoint>>>);

/// What an engine has in hand besides what its endpoints have.
#[derive(Debug, Default)]
pub(crate) struct Former {
    loads: Vec<Arc<LoadCounters>>,
    /// How many endpoints the engine has: each is taken for an equal share, since nobody knows which
    /// of them has it.
    endpoints: u64,
}

impl Retired {
    pub(crate) fn add(&self, endpoints: impl IntoIterator<Item = Arc<Endpoint>>) {
        let mut list = self.0.lock();
        list.retain(is_held);
        list.extend(endpoints);
    }

    /// Those with requests.
    pub(crate) fn busy(&self) -> Vec<Arc<Endpoint>> {
        let mut list = self.0.lock();
        list.retain(is_held);
        list.iter().filter(|endpoint| endpoint.in_flight() > 0).cloned().collect()
    }

    /// What is left at the engine at this address, which has these `endpoints` now.
    pub(crate) fn former(&self, authority: &Authority, endpoints: &[Arc<Endpoint>]) -> Former {
        let mut loads: Vec<Arc<LoadCounters>> = Vec::new();
        for endpoint in self.0.lock().iter().filter(|one| one.authority() == authority) {
            let load = endpoint.load();
            // Two of one name share it.
            let is_counted = endpoints.iter().any(|now| Arc::ptr_eq(now.load(), load))
                || loads.iter().any(|known| Arc::ptr_eq(known, load));
            if !is_counted {
                loads.push(Arc::clone(load));
            }
        }
        Former { loads, endpoints: endpoints.len().max(1) as u64 }
    }
}

impl Former {
    /// Requests and prompt tokens yet to be computed, all together.
    pub(crate) fn in_hand(&self) -> (u64, u64) {
        if self.loads.is_empty() {
            return (0, 0);
        }
        let now = std::time::Instant::now();
        self.loads.iter().fold((0, 0), |(requests, tokens), load| {
            let queued = load.at(now).queued_prefill_tokens;
            (requests + u64::from(load.in_flight()), queued.saturating_add(tokens))
        })
    }

    /// The share of one endpoint.
    pub(crate) fn share(&self) -> (u64, u64) {
        let (requests, tokens) = self.in_hand();
        (requests.div_ceil(self.endpoints.max(1)), tokens.div_ceil(self.endpoints.max(1)))
    }
}

/// By a request, or by a pool of before that may still send one.
fn is_held(endpoint: &Arc<Endpoint>) -> bool {
    Arc::strong_count(endpoint) > 1
}
