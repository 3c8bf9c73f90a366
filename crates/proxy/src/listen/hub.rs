//! What all accept loops of one listener share: the limit of connections, the stop and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Gauge};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::moment::Moment;

/// Shared by accept loops and connections.
#[derive(Debug)]
pub(super) struct Hub {
    max: usize,
    room: Arc<Semaphore>,
    stop: Moment,
    /// Whether the limit was reached and said so.
    full: AtomicBool,
    meters: Meters,
}

/// Metrics, looked up once.
struct Meters {
    open: Gauge,
    paused: Gauge,
    full: Counter,
    failed: Counter,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// A place of one connection; dropping it makes room.
#[derive(Debug)]
pub(super) struct Place {
    hub: Arc<Hub>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hub.meters.open.decrement(1.0);
    }
}

impl Hub {
    /// With room for `max` connections.
    pub(super) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        metrics::gauge!("kvasir_client_connections_limit").set(max as f64);
        let meters = Meters {
            open: metrics::gauge!("kvasir_client_connections"),
            paused: metrics::gauge!("kvasir_accept_paused"),
            full: metrics::counter!("kvasir_accept_pauses_total", "reason" => "max_connections"),
            failed: metrics::counter!("kvasir_accept_pauses_total", "reason" => "accept_error"),
        };
        // There from the first scrape on.
        meters.open.set(0.0);
        meters.paused.set(0.0);
        meters.full.absolute(0);
        meters.failed.absolute(0);
        Self {
            max,
            room: Arc::new(Semaphore::new(max)),
            stop: Moment::default(),
            full: AtomicBool::new(false),
            meters,
        }
    }

    /// Waits for room without taking it, and says so where there is none.
    pub(super) async fn room(&self) {
        if self.room.available_permits() > 0 {
            return;
        }
        self.meters.full.increment(1);
        self.meters.paused.increment(1.0);
        let paused = Paused(&self.meters.paused);
        if !self.full.swap(true, Ordering::Relaxed) {
            let max = self.max;
            tracing::warn!(max, "max_connections is reached: further clients wait to be accepted");
        }
        // Never closed.
        drop(self.room.acquire().await);
        drop(paused);
        if self.full.swap(false, Ordering::Relaxed) {
            tracing::info!("clients are accepted again");
        }
    }

    /// A place for a connection that was accepted. There is one at once, unless another loop just
    /// took the last.
    pub(super) async fn place(self: &Arc<Self>) -> Option<Place> {
        let permit = Arc::clone(&self.room).acquire_owned().await.ok()?;
        Some(self.taken(permit))
    }

    /// A place, if there is one now.
    pub(super) fn try_place(self: &Arc<Self>) -> Option<Place> {
        Some(self.taken(Arc::clone(&self.room).try_acquire_owned().ok()?))
    }

    fn taken(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Place {
        self.meters.open.increment(1.0);
        Place { hub: Arc::clone(self), _permit: permit }
    }

    /// An accept failed: usually the process is out of file descriptors.
    pub(super) fn accept_failed(&self) {
        self.meters.failed.increment(1);
    }

    /// How many connections are open.
    pub(super) fn open(&self) -> usize {
        self.max.saturating_sub(self.room.available_permits())
    }

    /// Asks everybody to come to an end.
    pub(super) fn stop(&self) {
        self.stop.come();
    }

    /// Whether that was asked.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_there()
    }

    /// Resolves when that is asked.
    pub(super) async fn stopped(&self) {
        self.stop.wait().await;
    }

    /// Resolves when no connection is open any more.
    pub(super) async fn ended(&self) {
        // Clamped to what fits when it was made.
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        drop(self.room.acquire_many(all).await);
    }
}

/// Counts a loop that does not accept, until dropped.
struct Paused<'a>(&'a Gauge);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
