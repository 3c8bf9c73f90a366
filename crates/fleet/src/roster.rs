//! What all fleets of a gateway share, one after the other: what is known of engines by name, and the
//! engines that left and still have requests.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use parking_lot::{Mutex, MutexGuard};

use crate::endpoint::Endpoint;
use crate::pool::Shared;
use crate::supervised::Supervised;

/// How often it is looked whether an engine that left is through with its requests.
const LOOK: Duration = Duration::from_millis(100);

/// What outlives a reload.
#[derive(Debug)]
pub(crate) struct Roster {
    shared: Shared,
    leaving: Mutex<Leaving>,
}

/// Engines that are in no pool any more, until their last request ends.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    engines: Vec<Arc<Supervised>>,
    /// Whether somebody looks after them.
    watched: bool,
}

impl Roster {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared, leaving: Mutex::default() }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Nobody leaves for good, and nobody else comes or goes, while it is held.
    pub(crate) fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock()
    }

    /// The endpoints of engines that left, and those that are none any more and have requests.
    pub(crate) fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        let mut endpoints: Vec<Arc<Endpoint>> = {
            let leaving = self.leaving.lock();
            leaving.engines.iter().flat_map(|engine| engine.ranks().endpoints()).collect()
        };
        for retired in self.shared.retired.busy() {
            // Two of one name have one account.
            if endpoints.iter().all(|known| known.name() != retired.name()) {
                endpoints.push(retired);
            }
        }
        endpoints
    }

    /// Ends what is through with its requests; whether anybody is left.
    pub(crate) async fn reap(&self) -> bool {
        let (gone, any_left) = {
            let mut leaving = self.leaving.lock();
            let gone = leaving.engines.extract_if(.., |engine| engine.in_flight() == 0);
            let gone: Vec<Arc<Supervised>> = gone.collect();
            leaving.watched = !leaving.engines.is_empty();
            (gone, leaving.watched)
        };
        for engine in gone {
            engine.end().await;
            tracing::info!(endpoint = engine.url(), "endpoint is gone");
        }
        any_left
    }

    /// Looks after those that leave, until the last one is gone. Must be called within a tokio
    /// runtime, without the guard of [`leaving`](Self::leaving).
    pub(crate) fn watch(self: &Arc<Self>) {
        {
            let mut leaving = self.leaving.lock();
            if leaving.engines.is_empty() || std::mem::replace(&mut leaving.watched, true) {
                return;
            }
        }
        let roster = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(roster) = roster.upgrade()
                && roster.reap().await
            {
                drop(roster);
                tokio::time::sleep(LOOK).await;
            }
        });
    }
}

impl Leaving {
    /// Never one that has ended: nobody watches it any more.
    pub(crate) fn find(&self, authority: &Authority) -> Option<&Arc<Supervised>> {
        self.engines.iter().find(|engine| is_watched_at(engine, authority))
    }

    /// Takes out an engine that comes back.
    pub(crate) fn take(&mut self, authority: &Authority) -> Option<Arc<Supervised>> {
        let place = self.engines.iter().position(|engine| is_watched_at(engine, authority))?;
        Some(self.engines.swap_remove(place))
    }

    pub(crate) fn add(&mut self, engine: Arc<Supervised>) {
        engine.leave();
        self.engines.push(engine);
    }
}

fn is_watched_at(engine: &Supervised, authority: &Authority) -> bool {
    engine.ranks().engine().authority() == authority && !engine.ends()
}
