//! When a connection was last busy, so that it can be closed for being idle.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::state::State;

/// Since when a connection is idle; `None` while it is not.
#[derive(Clone, Debug)]
pub(super) struct Idle(Arc<watch::Sender<Option<Instant>>>);

/// A request being answered.
#[derive(Debug)]
pub(super) struct Busy(Idle);

impl Idle {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Some(Instant::now()))))
    }

    pub(super) fn busy(&self) -> Busy {
        self.0.send_replace(None);
        Busy(self.clone())
    }

    /// Resolves when the connection has been idle for longer than the server's faults
    /// allow.
    pub(super) async fn too_long(&self, state: Arc<State>) {
        let (mut seen, mut kept) = (self.0.subscribe(), state.faults.keep_alive());
        loop {
            let (since, most) = (*seen.borrow_and_update(), *kept.borrow_and_update());
            let over = async {
                match (since, most) {
                    (Some(since), Some(most)) => sleep_until(since + most).await,
                    _ => pending().await,
                }
            };
            tokio::select! {
                _ = seen.changed() => {}
                _ = kept.changed() => {}
                () = over => return,
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.send_replace(Some(Instant::now()));
    }
}
