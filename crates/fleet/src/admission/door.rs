//! A pool's door: its limits, its queue, and the bells that say there may be room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderName;
use http::uri::Authority;
use parking_lot::Mutex;

use super::{Admission, Asker, Limits, NoRoom, QueueSpec, Tally, Turn, WAITING};
use crate::endpoint::Endpoint;

/// All doors there are. An endpoint may be behind several of them, of pools that were replaced
/// too: whoever waits there is to hear of its room.
static DOORS: Mutex<Vec<Weak<Door>>> = Mutex::new(Vec::new());

/// How a pool lets requests in.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionSpec {
    /// What it takes at once.
    pub limits: Limits,
    /// Who waits.
    pub queue: QueueSpec,
    /// How long requests wait where no endpoint is ready.
    pub hold: Duration,
    /// The header that names the tenant whose share a request is counted for.
    pub tenant_header: Option<HeaderName>,
    /// The header that says how soon a request comes: a whole number, higher sooner.
    pub priority_header: Option<HeaderName>,
    /// The header that says for how many seconds the client waits.
    pub timeout_header: Option<HeaderName>,
}

/// The door of one pool.
#[derive(Debug)]
pub struct Door {
    model: String,
    spec: AdmissionSpec,
    /// The limits of the pool in place, which may have another door by now or none: those who wait
    /// here choose by them.
    limits_now: Arc<ArcSwapOption<Limits>>,
    /// One queue, whatever doors a pool has one after the other: who came before a reload is served
    /// before those who come after it.
    admission: Arc<Admission>,
    /// Whose room those who wait want to hear of.
    members: ArcSwap<Vec<Arc<Endpoint>>>,
    unread_priorities: AtomicU64,
    unread_timeouts: AtomicU64,
}

/// What a header says that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The priority.
    Priority,
    /// The time the client waits.
    Timeout,
}

/// An endpoint may have room: a request of it is done, or its prompt computed. Costs the reading of
/// a number where nobody waits anywhere.
pub(crate) fn ring(endpoint: &Endpoint) {
    ring_engine(endpoint.authority());
}

/// The same of an engine, whatever its endpoints are called.
pub(crate) fn ring_engine(engine: &Authority) {
    if WAITING.load(Ordering::SeqCst) > 0 {
        ring_where(|door| door.members.load().iter().any(|member| member.authority() == engine));
    }
}

/// More is known of an engine, or it is there again.
pub(crate) fn ring_all() {
    if WAITING.load(Ordering::SeqCst) > 0 {
        ring_where(|_| true);
    }
}

fn ring_where(concerns: impl Fn(&Door) -> bool) {
    let doors: Vec<Arc<Door>> = DOORS.lock().iter().filter_map(Weak::upgrade).collect();
    let waiting = doors.iter().filter(|door| door.admission.waiting() > 0);
    // The doors of pools that took each other's place have one queue.
    let mut rung: Vec<*const Admission> = Vec::new();
    for door in waiting.filter(|door| concerns(door)) {
        let queue = Arc::as_ptr(&door.admission);
        if !rung.contains(&queue) {
            rung.push(queue);
            door.admission.ring();
        }
    }
}

impl Door {
    /// In the place of the door `before`, where there was one.
    pub(crate) fn new(model: String, spec: AdmissionSpec, before: Option<&Self>) -> Arc<Self> {
        let limits_now = before.map(|door| Arc::clone(&door.limits_now)).unwrap_or_default();
        limits_now.store(Some(Arc::new(spec.limits)));
        let admission = match before {
            Some(door) => {
                door.admission.configure(spec.queue);
                Arc::clone(&door.admission)
            }
            None => Arc::new(Admission::new(spec.queue)),
        };
        let door = Arc::new(Self {
            model,
            admission,
            spec,
            limits_now,
            members: ArcSwap::default(),
            unread_priorities: AtomicU64::new(0),
            unread_timeouts: AtomicU64::new(0),
        });
        let mut doors = DOORS.lock();
        doors.retain(|known| known.strong_count() > 0);
        doors.push(Arc::downgrade(&door));
        drop(doors);
        door
    }

    /// The pool in place takes everything at once: so do those who wait here.
    pub(crate) fn lift_limits(&self) {
        self.limits_now.store(None);
    }

    /// What it was built from.
    #[must_use]
    pub fn spec(&self) -> &AdmissionSpec {
        &self.spec
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.admission.tally()
    }

    /// A header of a request could not be read: it is passed over.
    pub fn unread(&self, which: Unread, value: &str) {
        let (count, header) = match which {
            Unread::Priority => (&self.unread_priorities, &self.spec.priority_header),
            Unread::Timeout => (&self.unread_timeouts, &self.spec.timeout_header),
        };
        // All of them are counted, one is shown.
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            let header = header.as_ref().map(HeaderName::as_str);
            let value: String = value.chars().take(64).collect();
            tracing::warn!(model = self.model, header, value, "header cannot be read, is ignored");
        }
    }

    /// How many headers could not be read: of priorities, and of timeouts.
    pub(crate) fn unread_ever(&self) -> [u64; 2] {
        [&self.unread_priorities, &self.unread_timeouts].map(|count| count.load(Ordering::Relaxed))
    }

    /// Has `attempt` choose one of `members`: at once, or where there is no room, when the asker's
    /// turn has come. An attempt may be made several times, and holds up whoever waits behind.
    pub async fn admit<T>(
        &self,
        members: impl Fn() -> Arc<Vec<Arc<Endpoint>>>,
        asker: Asker,
        mut attempt: impl FnMut() -> Result<T, NoRoom>,
    ) -> Turn<T> {
        let look = || {
            let members = members();
            if !Arc::ptr_eq(&*self.members.load(), &members) {
                self.members.store(Arc::clone(&members));
            }
            // Not all that an attempt takes, where many wait and are called in vain.
            let limits = self.limits_now.load();
            if limits.as_ref().is_some_and(|limits| limits.are_all_reached(&members)) {
                return Err(NoRoom::FullForAll);
            }
            attempt()
        };
        let turn = self.admission.admit(asker, look).await;
        if let Some(waited) = turn.waited {
            metrics::histogram!("kvasir_admission_wait_seconds", "model" => self.model.clone())
                .record(waited);
        }
        turn
    }
}
