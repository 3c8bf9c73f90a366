//! When a connection was last busy, so that it can be closed for being idle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::state::State;

/// How often an idle connection looks whether it is to be closed.
const LOOK: Duration = Duration::from_millis(20);

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
        let mut seen = self.0.subscribe();
        loop {
            let since = *seen.borrow_and_update();
            let (Some(since), Some(most)) = (since, state.faults.keep_alive()) else {
                // That idle connections are closed may be asked for while this one is.
                tokio::select! {
                    _ = seen.changed() => {}
                    () = sleep(LOOK) => {}
                }
                continue;
            };
            tokio::select! {
                _ = seen.changed() => {}
                () = sleep_until(since + most) => return,
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.send_replace(Some(Instant::now()));
    }
}
