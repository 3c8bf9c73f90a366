//! What a pool takes at once, and who waits when it is full: the limits and the queue themselves.
//!
//! `config` reads what they are set to, `crate::pool` keeps them, `proxy::attempts::admission` waits at
//! them, `crate::exposition::admission` shows them.
//!
//! A request that finds no room waits in a bounded queue until somebody is done or its patience is
//! over; then it is turned away, with a guess of when to come again. Nobody who comes later is
//! served before those who wait, but for what was let in before and has to go to another engine.
//!
//! The queue knows no endpoint and no request: whether there is room, the caller finds out. What
//! it is asked for by a pool is in [`Door`].

mod door;
mod limits;
mod pace;
mod queue;
#[cfg(test)]
mod tests;
mod waiter;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use self::door::{AdmissionSpec, Door, Unread};
pub(crate) use self::door::{ring, ring_all, ring_engine};
pub use self::limits::{EndpointLimits, Limits, Most};
use self::pace::Pace;
use self::queue::Queue;
use self::waiter::{MAX_PASSES, Waiter};

/// The longest `retry-after`.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// So many of those that tried at a bell that came to that are tried again at the next, before others.
const FIRST_AGAIN: usize = 32;

/// Requests that wait at any door: where there is none, a bell need not ring.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Who asks to be let in, and for how long it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// Higher comes first.
    pub priority: i32,
    /// Whom its share is counted for: the digest of a name; the same for all without one.
    pub tenant: u64,
    /// How long it is ready to wait, where it says so.
    pub patience: Option<Duration>,
    /// How long it waits where no endpoint is ready.
    pub hold: Duration,
    /// Tokens it asks for.
    pub cost: u64,
    /// It was let in before, and goes before all who wait.
    pub goes_ahead: bool,
}

/// Why there is no endpoint now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// All that could serve it are at their limits.
    Full,
    /// The same, while there is room where it cannot go: nothing is to be kept for it there.
    FullForIt,
    /// All are, whatever is asked for.
    FullForAll,
    /// None could serve it.
    Nobody,
}

/// A request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// There is no room, and no queue.
    Overloaded {
        /// When there may be room.
        retry_after: Duration,
    },
    /// The queue has no place.
    QueueFull {
        /// When there may be one.
        retry_after: Duration,
    },
    /// It has waited for as long as it may.
    WaitedTooLong {
        /// When there may be room.
        retry_after: Duration,
    },
    /// Nobody is there to serve it, and it has waited for as long as it may.
    Nobody,
}

/// What became of one that asked.
#[derive(Debug)]
pub struct Turn<T> {
    /// What it found, or why it found nothing.
    pub result: Result<T, TurnedAway>,
    /// How long it waited; `None` where it did not.
    pub waited: Option<Duration>,
}

/// How a pool's requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// How many may wait.
    pub places: usize,
    /// How long each may, for room.
    pub max_wait: Duration,
}

/// What became of requests that found no room at once, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Served after waiting.
    pub(crate) served: u64,
    /// Turned away where there is no queue.
    pub(crate) overloaded: u64,
    pub(crate) queue_full: u64,
    pub(crate) waited_too_long: u64,
    pub(crate) nobody: u64,
    /// Their clients left.
    pub(crate) left: u64,
}

/// The queue of one pool.
#[derive(Debug)]
pub(crate) struct Admission {
    spec: ArcSwap<QueueSpec>,
    began: Instant,
    queue: Mutex<State>,
    /// Requests in the queue or on their way through it.
    waiting: AtomicUsize,
    /// Grows whenever there may be room and somebody waits.
    bells: AtomicU64,
    /// How many of those called since then passed it on.
    passes: AtomicU64,
}

#[derive(Debug)]
struct State {
    queue: Queue<oneshot::Sender<()>>,
    /// Those called that have not said yet what came of it.
    called: usize,
    pace: Pace,
    tally: Tally,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(spec: QueueSpec) -> Self {
        Self {
            began: Instant::now(),
            queue: Mutex::new(State {
                queue: Queue::new(spec.places),
                called: 0,
                pace: Pace::default(),
                tally: Tally::default(),
            }),
            spec: ArcSwap::from_pointee(spec),
            waiting: AtomicUsize::new(0),
            bells: AtomicU64::new(0),
            passes: AtomicU64::new(0),
        }
    }

    /// Has other places, and another wait, from now on. Who waits keeps its place.
    pub(crate) fn configure(&self, spec: QueueSpec) {
        self.queue.lock().queue.set_limit(spec.places);
        self.spec.store(Arc::new(spec));
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.queue.lock().tally
    }

    /// There may be room: the one whose turn it is tries. While one is trying, it is told of the bell
    /// when it is back, so that nobody gets the room whose turn comes later.
    pub(crate) fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.bells.fetch_add(1, Ordering::SeqCst);
            let passes = self.passes.swap(0, Ordering::Relaxed);
            let nobody_tries = {
                let mut state = self.queue.lock();
                state.queue.all_again((passes >= MAX_PASSES).then_some(FIRST_AGAIN));
                state.called == 0
            };
            if nobody_tries {
                self.call_next();
            }
        }
    }

    fn call_next(&self) {
        loop {
            let next = {
                let mut state = self.queue.lock();
                let Some((_, next)) = state.queue.take() else { return };
                state.called += 1;
                next
            };
            // One that is just leaving does not hear it, and counts itself out.
            if next.send(()).is_ok() {
                return;
            }
        }
    }

    /// Has `attempt` find something: at once, or when the turn has come.
    pub(crate) async fn admit<T>(
        &self,
        asker: Asker,
        mut attempt: impl FnMut() -> Result<T, NoRoom>,
    ) -> Turn<T> {
        let mut why = None;
        if asker.goes_ahead || self.waiting.load(Ordering::SeqCst) == 0 {
            match attempt() {
                Ok(found) => return Turn { result: Ok(found), waited: None },
                Err(none) => why = Some(none),
            }
            if let Some(turned_away) = why.and_then(|why| self.refuses(asker, why)) {
                return Turn { result: Err(turned_away), waited: None };
            }
        }
        let mut waiter = Waiter::new(self, asker);
        let result = waiter.wait(why, attempt).await;
        Turn { result, waited: waiter.waited() }
    }

    /// Whether it cannot even wait.
    fn refuses(&self, asker: Asker, why: NoRoom) -> Option<TurnedAway> {
        match why {
            NoRoom::Full | NoRoom::FullForIt | NoRoom::FullForAll
                if self.spec.load().places == 0 =>
            {
                let mut state = self.queue.lock();
                state.tally.overloaded += 1;
                Some(TurnedAway::Overloaded { retry_after: state.until_room(self.now()) })
            }
            NoRoom::Nobody if asker.hold.is_zero() => {
                // That no other engine is left for it is no news of the pool.
                self.queue.lock().tally.nobody += u64::from(!asker.goes_ahead);
                Some(TurnedAway::Nobody)
            }
            NoRoom::Full | NoRoom::FullForIt | NoRoom::FullForAll | NoRoom::Nobody => None,
        }
    }

    fn patience(&self, asker: Asker, why: NoRoom) -> Duration {
        let most = match why {
            NoRoom::Full | NoRoom::FullForIt | NoRoom::FullForAll => self.spec.load().max_wait,
            NoRoom::Nobody => asker.hold,
        };
        asker.patience.map_or(most, |patience| patience.min(most))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

// === impl State ===

impl State {
    /// When those who wait now will have been served, by the pace of late.
    fn until_room(&self, now: Duration) -> Duration {
        let pace = self.pace.get(now);
        let ahead = self.queue.len() as f64 + 1.0;
        let seconds = if pace > 0.0 { ahead / pace } else { 1.0 };
        let longest = LONGEST_RETRY.as_secs_f64();
        Duration::from_secs_f64(seconds.clamp(1.0, longest))
    }
}
