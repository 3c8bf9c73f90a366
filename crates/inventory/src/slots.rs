//! The list of endpoints and of the slots that are free.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::endpoint::Endpoint;
use crate::residency::{Limits, Slot};

/// One endpoint's state, shared by the calls that are under way.
type Shared = Arc<Mutex<Endpoint>>;

/// Every slot ever given out.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    list: RwLock<List>,
}

#[derive(Debug, Default)]
struct List {
    endpoints: Vec<Shared>,
    /// The one free for longest is given out first.
    free: VecDeque<Slot>,
}

impl Slots {
    /// A slot with a fresh endpoint, unless all are in use.
    pub(crate) fn take(&self, limits: Limits) -> Option<Slot> {
        // A new one each time: a call that still waits for the old one finds it unregistered.
        let endpoint = Arc::new(Mutex::new(Endpoint::new(limits)));
        let mut list = self.list.write();
        if let Some(slot) = list.free.pop_front() {
            list.endpoints[slot.index()] = endpoint;
            return Some(slot);
        }
        let number = u16::try_from(list.endpoints.len()).ok().filter(|n| *n < u16::MAX)?;
        list.endpoints.push(endpoint);
        Some(Slot::new(number))
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<Shared> {
        self.list.read().endpoints.get(slot.index()).cloned()
    }

    /// Frees a slot whose blocks are gone.
    pub(crate) fn give_back(&self, slot: Slot) {
        self.list.write().free.push_back(slot);
    }
}
