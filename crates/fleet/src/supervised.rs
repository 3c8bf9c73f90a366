//! An engine with the task that keeps it current.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvasir_inventory::Inventory;
use parking_lot::Mutex;

use crate::monitor::{Duties, Duty, Monitor};
use crate::ranks::Ranks;
use crate::stream_applier::off_the_scheduler;
use crate::task::Task;

/// An engine of the fleet, watched until [`end`](Self::end).
#[derive(Debug)]
pub(crate) struct Supervised {
    ranks: Arc<Ranks>,
    duties: Arc<Duties>,
    task: Mutex<Option<Task>>,
    /// It is to end, or has.
    ends: AtomicBool,
}

impl Supervised {
    /// Must be called within a tokio runtime.
    pub(crate) fn start(ranks: Arc<Ranks>, duty: Duty, inventory: Arc<Inventory>) -> Self {
        let duties = Arc::new(Duties::new(duty));
        let monitor = Monitor { ranks: Arc::clone(&ranks), duties: Arc::clone(&duties), inventory };
        Self {
            ranks,
            duties,
            task: Mutex::new(Some(Task::spawn(monitor.run()))),
            ends: AtomicBool::new(false),
        }
    }

    pub(crate) fn ranks(&self) -> &Arc<Ranks> {
        &self.ranks
    }

    pub(crate) fn url(&self) -> &str {
        self.ranks.engine().url()
    }

    /// Gives its monitor another duty. Nothing is disturbed where nothing changed.
    pub(crate) fn charge(&self, duty: Duty, another_client: bool) {
        let known = self.duties.now();
        // Clients cannot be compared: whether it is another one, the caller knows.
        let Duty { events, poll, authorization, interval, probe, client: _, pools } = &*known;
        let same_pools = pools.len() == duty.pools.len()
            && pools.iter().zip(&duty.pools).all(|(one, other)| Arc::ptr_eq(one, other));
        let same = !another_client
            && same_pools
            && *events == duty.events
            && *poll == duty.poll
            && *authorization == duty.authorization
            && *interval == duty.interval
            && *probe == duty.probe;
        if !same {
            self.duties.change(duty);
        }
    }

    /// It is in no pool any more.
    pub(crate) fn leave(&self) {
        let duty = (*self.duties.now()).clone();
        self.duties.change(Duty { pools: Vec::new(), ..duty });
    }

    /// Requests that are still there, all ranks together.
    pub(crate) fn in_flight(&self) -> u64 {
        self.ranks.endpoints().iter().map(|endpoint| u64::from(endpoint.in_flight())).sum()
    }

    /// Whether nobody watches it any more, or soon nobody will.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire) || self.task.lock().as_ref().is_none_or(Task::is_finished)
    }

    /// [`end`](Self::end) in the background. Must be called within a tokio runtime.
    pub(crate) fn begin_end(self: Arc<Self>) {
        self.ends.store(true, Ordering::Release);
        tokio::spawn(async move { self.end().await });
    }

    /// Watches it no more, and forgets its blocks, whoever still holds it.
    pub(crate) async fn end(&self) {
        self.ends.store(true, Ordering::Release);
        let task = self.task.lock().take();
        if let Some(task) = task {
            // Until it has really ended it may still begin streams.
            task.end().await;
        }
        let endpoints = self.ranks.endpoints();
        off_the_scheduler(true, || {
            endpoints.iter().for_each(|endpoint| endpoint.set_streams(Vec::new(), true));
        });
    }
}
