//! The kept HTTP/1.1 connections of one engine, and how many there may be.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::dial::Deadline;
use crate::failure::{Failure, Phase};
use crate::h1::H1;
use crate::h2::Shared;
use crate::origin::{Inner, Limits};

/// An engine's `Keep-Alive` is kept to with this much to spare, for the way there.
const MARGIN: Duration = Duration::from_millis(500);
/// Waiting requests that may have left before they are looked through.
const LOOK_THROUGH: usize = 64;

/// How long connections are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// Unused.
    pub(crate) idle: Duration,
    /// Since they were opened: a name may have moved.
    pub(crate) lifetime: Duration,
}

/// One engine's connections in one [`Upstream`](crate::Upstream).
pub(crate) struct Pool {
    pub(crate) origin: Weak<Inner>,
    pub(crate) url: String,
    limits: Limits,
    keep: Keep,
    state: Mutex<State>,
    /// Its h2 connections, where it speaks h2.
    pub(crate) shared: Shared,
    pub(crate) counts: Counts,
}

#[derive(Default)]
struct State {
    /// The one used last is used next, so that those beyond need are closed.
    #[expect(
        clippy::vec_box,
        reason = "a connection is large, and moves between here and its user"
    )]
    idle: Vec<Box<H1>>,
    /// All there are, those being opened included.
    open: usize,
    waiting: VecDeque<oneshot::Sender<Grant>>,
    look_through_at: usize,
    /// An h2 connection is being opened.
    opening: bool,
    /// Nothing is kept any more.
    closed: bool,
}

/// What a request waits for.
enum Grant {
    Connection(Box<H1>),
    /// Leave to open one.
    Slot(Slot),
}

/// A kept connection, or leave to open one.
pub(crate) enum Acquired {
    Kept(Box<H1>),
    New(Slot),
}

/// What happened, ever.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections opened, and attempts that failed in the pool, at the name, in TCP, in TLS.
    pub(crate) connects: [AtomicU64; 5],
    /// Requests sent over a connection that had carried another.
    pub(crate) reused: AtomicU64,
    /// Kept connections that had closed before anything was sent.
    pub(crate) unsent: AtomicU64,
    /// Requests sent again since the engine said that it did nothing with them.
    pub(crate) refused: AtomicU64,
    /// Requests sent again since their kept connection broke at once.
    pub(crate) repeated: AtomicU64,
}

/// Leave to have one connection open. The next request in line gets it when it is dropped.
pub(crate) struct Slot {
    pool: Option<Arc<Pool>>,
}

/// Held while an h2 connection is opened. Then those who wait look again.
pub(crate) struct Opening(Arc<Pool>);

// === impl Counts ===

impl Counts {
    pub(crate) fn connect(&self, phase: Option<Phase>) {
        let at = match phase {
            None => 0,
            Some(Phase::Pool) => 1,
            Some(Phase::Dns) => 2,
            Some(Phase::Tls) => 4,
            Some(_) => 3,
        };
        self.connects[at].fetch_add(1, Ordering::Relaxed);
    }
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(origin: &Arc<Inner>, keep: Keep) -> Arc<Self> {
        Arc::new(Self {
            origin: Arc::downgrade(origin),
            url: origin.url.clone(),
            limits: origin.limits,
            keep,
            state: Mutex::default(),
            shared: Shared::default(),
            counts: Counts::default(),
        })
    }

    /// The kept connection used last, if one is usable.
    pub(crate) fn kept(&self) -> Option<Box<H1>> {
        loop {
            let mut connection = self.state.lock().idle.pop()?;
            if self.may_be_used(&connection) && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Leave to open a connection, or one that another request is done with, whichever comes
    /// first; only the former where it has to be `fresh`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        deadline: Deadline,
        fresh: bool,
    ) -> Result<Acquired, Failure> {
        loop {
            let granted = match self.take_or_wait(fresh) {
                Ok(Acquired::Kept(mut connection)) => {
                    if self.may_be_used(&connection) && connection.is_usable() {
                        return Ok(Acquired::Kept(connection));
                    }
                    return Ok(Acquired::New(connection.into_slot()));
                }
                Ok(new) => return Ok(new),
                Err(granted) => granted,
            };
            match deadline.of(Phase::Pool, &self.why_it_waits(), granted).await? {
                Ok(Grant::Slot(slot)) => return Ok(Acquired::New(slot)),
                Ok(Grant::Connection(mut connection)) => {
                    if !fresh && connection.is_usable() {
                        return Ok(Acquired::Kept(connection));
                    }
                    // It has waited for the place: that is not for the next in line.
                    return Ok(Acquired::New(connection.into_slot()));
                }
                // The pool holds the other end as long as we wait.
                Err(_) => {}
            }
        }
    }

    /// In one step, so that no connection is put back between a look at those kept and the waiting.
    fn take_or_wait(self: &Arc<Self>, fresh: bool) -> Result<Acquired, oneshot::Receiver<Grant>> {
        let mut state = self.state.lock();
        if !fresh && let Some(kept) = state.idle.pop() {
            return Ok(Acquired::Kept(kept));
        }
        if state.open < self.limits.connections {
            state.open += 1;
            return Ok(Acquired::New(Slot { pool: Some(Arc::clone(self)) }));
        }
        // One that is kept makes place for one that must be new.
        if fresh && !state.idle.is_empty() {
            let oldest = state.idle.remove(0);
            drop(state);
            return Ok(Acquired::New(oldest.into_slot()));
        }
        if state.waiting.len() >= state.look_through_at.max(LOOK_THROUGH) {
            state.waiting.retain(|waiting| !waiting.is_closed());
            state.look_through_at = state.waiting.len() * 2;
        }
        let (grant, granted) = oneshot::channel();
        state.waiting.push_back(grant);
        Err(granted)
    }

    /// Takes back a connection whose answer was read to its end.
    pub(crate) fn put(&self, mut connection: Box<H1>) {
        connection.idle_since = Instant::now();
        if !self.may_be_used(&connection) {
            return;
        }
        loop {
            let mut state = self.state.lock();
            let Some(waiting) = state.waiting.pop_front() else {
                if !state.closed && state.idle.len() < self.limits.idle {
                    state.idle.push(connection);
                    return;
                }
                drop(state);
                // One too many.
                drop(connection);
                return;
            };
            drop(state);
            match waiting.send(Grant::Connection(connection)) {
                Err(Grant::Connection(back)) => connection = back,
                _ => return,
            }
        }
    }

    fn may_be_used(&self, connection: &H1) -> bool {
        let kept_for = connection.kept_for.map(|kept| kept.saturating_sub(MARGIN));
        let idle = kept_for.map_or(self.keep.idle, |kept| kept.min(self.keep.idle));
        connection.idle_since.elapsed() < idle && connection.born.elapsed() < self.keep.lifetime
    }

    /// Closes what was kept long enough, and what the engine closed.
    pub(crate) fn sweep(&self) {
        let mut closed = Vec::new();
        {
            let mut state = self.state.lock();
            let mut kept = Vec::with_capacity(state.idle.len());
            for mut connection in state.idle.drain(..) {
                if self.may_be_used(&connection) && connection.is_usable() {
                    kept.push(connection);
                } else {
                    closed.push(connection);
                }
            }
            state.idle = kept;
        }
        drop(closed);
        self.shared.sweep(self.keep.lifetime);
    }

    /// Keeps nothing any more. A kept connection keeps its pool, so this has to be done.
    pub(crate) fn close(&self) {
        let kept = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.idle)
        };
        drop(kept);
        self.shared.close();
    }

    /// Leave to open an h2 connection, if there is any and nobody else is opening one.
    pub(crate) fn open_one(self: &Arc<Self>) -> Option<(Slot, Opening)> {
        let mut state = self.state.lock();
        if state.opening || state.open >= self.limits.connections {
            return None;
        }
        state.opening = true;
        state.open += 1;
        Some((Slot { pool: Some(Arc::clone(self)) }, Opening(Arc::clone(self))))
    }

    /// What a request waits for.
    pub(crate) fn why_it_waits(&self) -> String {
        if self.state.lock().opening {
            return "a connection to the engine is still being opened".to_owned();
        }
        format!("all {} connections to the engine are busy", self.limits.connections)
    }

    /// Connections kept, and in use; requests that wait for one.
    pub(crate) fn numbers(&self) -> (usize, usize, usize) {
        let kept = self.shared.idle();
        let state = self.state.lock();
        let waiting = state.waiting.iter().filter(|waiting| !waiting.is_closed()).count();
        let waiting = waiting + self.shared.waiting();
        let idle = state.idle.len() + kept;
        (idle, state.open.saturating_sub(idle), waiting)
    }

    /// A connection is closed: the next in line may open one.
    fn give_back(self: &Arc<Self>) {
        let mut slot = Slot { pool: Some(Arc::clone(self)) };
        loop {
            let waiting = {
                let mut state = self.state.lock();
                let Some(waiting) = state.waiting.pop_front() else {
                    state.open = state.open.saturating_sub(1);
                    slot.pool = None;
                    drop(state);
                    self.shared.released();
                    return;
                };
                waiting
            };
            match waiting.send(Grant::Slot(slot)) {
                Err(Grant::Slot(back)) => slot = back,
                _ => return,
            }
        }
    }
}

// === impl Opening ===

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.state.lock().opening = false;
        self.0.shared.released();
    }
}

// === impl Slot ===

impl Slot {
    /// Moves to another connection.
    pub(crate) fn take(&mut self) -> Self {
        Self { pool: self.pool.take() }
    }

    /// Takes back the connection that has this slot.
    pub(crate) fn put(connection: Box<H1>) {
        if let Some(pool) = connection.slot.pool.clone() {
            pool.put(connection);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back();
        }
    }
}
