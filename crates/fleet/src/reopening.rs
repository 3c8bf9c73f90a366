//! Tells those that wait when an engine may take more by the mere passing of time: the quiet time it
//! asked for, or its breaker's rest, is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::admission;
use crate::engine::Engine;

/// At most one task an engine, while there is a moment to wait for.
#[derive(Debug, Default)]
pub(crate) struct Reopening {
    watched: AtomicBool,
    /// There is another moment.
    changed: Arc<Notify>,
}

impl Reopening {
    /// Rings at every such moment of its `engine`, from now until there is none any more. Without an
    /// async runtime nobody waits.
    pub(crate) fn watch(&self, engine: &Arc<Engine>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.watched.swap(true, Ordering::AcqRel) {
            self.changed.notify_one();
            return;
        }
        runtime.spawn(ring_later(Arc::downgrade(engine), Arc::clone(&self.changed)));
    }
}

async fn ring_later(engine: Weak<Engine>, changed: Arc<Notify>) {
    while let Some(next) = engine.upgrade().and_then(|engine| next_moment(&engine)) {
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {
                let Some(engine) = engine.upgrade() else { return };
                admission::ring_engine(engine.authority());
            }
            () = changed.notified() => {}
        }
    }
}

/// Under the lock under which moments are set: whoever sets one later finds that nobody watches.
fn next_moment(engine: &Engine) -> Option<std::time::Instant> {
    let health = engine.health().lock();
    let next = health.opens_at();
    if next.is_none() {
        engine.reopening().watched.store(false, Ordering::Release);
    }
    next
}
