//! The list of endpoints and of the slots that are free.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::residency::{Limits, Slot};
use crate::sync::{AtomicUsize, Mutex, Ordering, RwLock};

/// One endpoint's state, shared by the calls that are under way.
#[derive(Debug)]
pub(crate) struct Cell {
    endpoint: Mutex<Endpoint>,
    /// The bytes it was charged for after the last call.
    bytes: AtomicUsize,
}

impl Cell {
    /// Runs one call on the endpoint, unless it was unregistered.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Endpoint) -> T) -> Option<T> {
        let mut endpoint = self.endpoint.lock();
        if !endpoint.is_registered() {
            return None;
        }
        let result = call(&mut endpoint);
        self.bytes.store(endpoint.bytes(), Ordering::Relaxed);
        Some(result)
    }
}

/// Every slot ever given out.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    list: RwLock<List>,
}

#[derive(Debug, Default)]
struct List {
    endpoints: Vec<Arc<Cell>>,
    /// The one free for longest is given out first.
    free: VecDeque<Slot>,
}

impl Slots {
    /// A slot with a fresh endpoint, unless all are in use.
    pub(crate) fn take(&self, limits: Limits) -> Option<Slot> {
        // A new one each time: a call that still waits for the old one finds it unregistered.
        let endpoint = Mutex::new(Endpoint::new(limits));
        let endpoint = Arc::new(Cell { endpoint, bytes: AtomicUsize::new(0) });
        let mut list = self.list.write();
        if let Some(slot) = list.free.pop_front() {
            list.endpoints[slot.index()] = endpoint;
            return Some(slot);
        }
        let number = u16::try_from(list.endpoints.len()).ok().filter(|n| *n < u16::MAX)?;
        list.endpoints.push(endpoint);
        Some(Slot::new(number))
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<Arc<Cell>> {
        self.list.read().endpoints.get(slot.index()).cloned()
    }

    /// The endpoint that is charged for most bytes.
    pub(crate) fn largest(&self) -> Option<(Slot, Arc<Cell>)> {
        let list = self.list.read();
        let bytes = |cell: &Arc<Cell>| cell.bytes.load(Ordering::Relaxed);
        let (number, cell) = list.endpoints.iter().enumerate().max_by_key(|(_, c)| bytes(c))?;
        Some((Slot::new(number as u16), cell.clone()))
    }

    /// Frees a slot whose blocks are gone.
    pub(crate) fn give_back(&self, slot: Slot) {
        self.list.write().free.push_back(slot);
    }
}
