//! The h2 connections of one engine, and the requests that wait for a place on one.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{H2, Stream};
use crate::dial::Deadline;
use crate::failure::{Failure, Phase};
use crate::io::Io;
use crate::pool::Pool;

/// Without requests for this long a connection is closed.
const IDLE: Duration = Duration::from_secs(60);

/// The h2 connections of one engine.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    list: Mutex<Vec<Arc<H2>>>,
    /// A place may be free. Each time one of those who wait is woken, and wakes the next when it
    /// leaves some.
    released: Notify,
    waiting: AtomicUsize,
}

/// One that waits.
struct Waits<'a>(&'a Shared);

// === impl Shared ===

impl Shared {
    /// Something may have become free.
    pub(crate) fn released(&self) {
        self.released.notify_one();
    }

    /// Closes what was unused for long; what is old takes no more requests.
    pub(crate) fn sweep(&self, lifetime: Duration) {
        self.retain(|one| {
            let unused = one.is_unused() && one.idle_since.lock().elapsed() >= IDLE;
            !one.sender.is_closed() && !unused && one.born.elapsed() < lifetime
        });
        // An engine that takes more streams than before does not say so to those who wait.
        self.released();
    }

    pub(crate) fn close(&self) {
        self.retain(|_| false);
    }

    /// Connections without requests.
    pub(crate) fn idle(&self) -> usize {
        self.list.lock().iter().filter(|one| one.is_unused()).count()
    }

    /// Requests that wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A place on a connection other than `avoid`.
    fn pick(&self, pool: &Arc<Pool>, avoid: Option<&Weak<H2>>) -> Option<Stream> {
        // A connection that was told to go away is done with its last request.
        self.retain(|one| !one.sender.is_closed());
        let list = self.list.lock();
        let is_avoided = |one: &Arc<H2>| avoid.is_some_and(|it| it.as_ptr() == Arc::as_ptr(one));
        let one = list.iter().find(|one| !is_avoided(one) && one.has_room())?;
        Some(Stream::new(one, pool, true))
    }

    fn has_room(&self) -> bool {
        self.list.lock().iter().any(|one| one.has_room())
    }

    /// What goes is dropped, and wakes others, without the lock.
    fn retain(&self, stays: impl Fn(&H2) -> bool) {
        let gone: Vec<Arc<H2>> = {
            let mut list = self.list.lock();
            if list.iter().all(|one| stays(one)) {
                return;
            }
            let (stay, gone) = list.drain(..).partition(|one| stays(one));
            *list = stay;
            gone
        };
        drop(gone);
    }
}

impl Pool {
    /// A place on a connection: of one there is, or of a new one that `dial` opens. One to `avoid`,
    /// since it refused the request, will do only after something ended.
    pub(crate) async fn stream<F: Future<Output = Result<Io, Failure>>>(
        self: &Arc<Self>,
        deadline: Deadline,
        mut avoid: Option<&Weak<H2>>,
        dial: impl Fn() -> F,
    ) -> Result<Stream, Failure> {
        let shared = &self.shared;
        // Whoever waits already comes first.
        let mut its_turn = shared.waiting() == 0;
        if its_turn && let Some(stream) = shared.pick(self, avoid) {
            return Ok(stream);
        }
        let _waits = Waits::new(shared);
        loop {
            // Before it looks, so that nothing that is freed meanwhile is missed.
            let mut released = pin!(shared.released.notified());
            let woken = released.as_mut().enable();
            its_turn |= woken;
            if its_turn && let Some(stream) = shared.pick(self, avoid) {
                if shared.has_room() {
                    shared.released();
                }
                return Ok(stream);
            }
            // One is opened at a time, since the next may do for those who wait as well.
            if let Some((slot, _opening)) = self.open_one() {
                // A place that is freed meanwhile is for those who wait.
                released.set(shared.released.notified());
                let opened = H2::over(dial().await?, slot, deadline).await?;
                let stream = Stream::new(&opened, self, false);
                shared.list.lock().push(opened);
                return Ok(stream);
            }
            if !woken {
                deadline.of(Phase::Pool, &self.why_it_waits(), released).await?;
            }
            (its_turn, avoid) = (true, None);
        }
    }
}

// === impl Waits ===

impl<'a> Waits<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
