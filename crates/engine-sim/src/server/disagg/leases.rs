//! Prompts that are kept for a while for whoever knows their names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::rooms::Ready;
use crate::server::rank::Hold;

/// Leases by name. An engine's blocks bound their number: each keeps at least one.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    leases: Mutex<HashMap<String, Lease>>,
    expired: AtomicU64,
}

#[derive(Debug)]
struct Lease {
    ready: Ready,
    /// Transfers under way: they keep it alive, as heartbeats do.
    readers: usize,
    _hold: Hold,
    expiry: AbortHandle,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.expiry.abort();
    }
}

/// A transfer under way.
#[derive(Debug)]
pub(super) struct Reading {
    table: Arc<Table>,
    name: String,
    pub(super) ready: Ready,
}

impl Leases {
    /// Keeps a prompt for `time`.
    pub(super) fn grant(&self, name: String, hold: Hold, ready: Ready, time: Duration) {
        let mut leases = self.0.leases.lock();
        // It finds the lease, however soon: the table is locked until it is there.
        let expiry = tokio::spawn(expire(Arc::downgrade(&self.0), name.clone(), time));
        let lease = Lease { ready, readers: 0, _hold: hold, expiry: expiry.abort_handle() };
        let replaced = leases.insert(name, lease);
        drop(leases);
        drop(replaced);
    }

    /// Begins a transfer; `None` if there is no such lease.
    pub(super) fn read(&self, name: &str) -> Option<Reading> {
        let mut leases = self.0.leases.lock();
        let lease = leases.get_mut(name)?;
        lease.readers += 1;
        Some(Reading { table: Arc::clone(&self.0), name: name.to_owned(), ready: lease.ready })
    }

    pub(super) fn len(&self) -> usize {
        self.0.leases.lock().len()
    }

    pub(super) fn expired(&self) -> u64 {
        self.0.expired.load(Ordering::Relaxed)
    }

    pub(super) fn clear(&self) {
        let leases = std::mem::take(&mut *self.0.leases.lock());
        drop(leases);
        self.0.expired.store(0, Ordering::Relaxed);
    }
}

impl Reading {
    /// The transfer has arrived: the lease is over. False if it was over before.
    pub(super) fn finish(self) -> bool {
        let ended = self.table.leases.lock().remove(&self.name);
        ended.is_some()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(lease) = self.table.leases.lock().get_mut(&self.name) {
            lease.readers = lease.readers.saturating_sub(1);
        }
    }
}

/// Ends a lease after its time, and after as much again for as long as it is being read.
async fn expire(table: Weak<Table>, name: String, time: Duration) {
    const LEAST: Duration = Duration::from_millis(1);
    let mut wait = time;
    loop {
        sleep(wait).await;
        wait = time.max(LEAST);
        let Some(table) = table.upgrade() else { return };
        let ended = {
            let mut leases = table.leases.lock();
            match leases.get(&name) {
                None => return,
                Some(lease) if lease.readers > 0 => continue,
                Some(_) => leases.remove(&name),
            }
        };
        table.expired.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(name, "a lease has expired");
        drop(ended);
        return;
    }
}
