//! All connections to engines of one runtime: whose they are, how long they are kept, what they count.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::dial::{Deadline, dial};
use crate::dns::{Names, Resolve, System};
use crate::failure::Failure;
use crate::io::Io;
use crate::origin::Origin;
use crate::pool::{Keep, Pool};

/// How often kept connections are looked through.
const SWEEP: Duration = Duration::from_millis(500);

/// How long connections are kept, and who knows names.
#[derive(Clone)]
pub struct Options {
    /// How long an HTTP/1.1 connection is kept unused. By default 4 s, below the 5 s after which
    /// vLLM's HTTP server closes it: a request must not meet a connection that is just being
    /// closed. Less where the engine says so (`Keep-Alive: timeout=N`).
    pub idle: Duration,
    /// How long after it was opened a connection still gets requests. By default 5 minutes: a name
    /// may have moved.
    pub lifetime: Duration,
    /// Looks up names; by default the operating system does.
    pub resolver: Arc<dyn Resolve>,
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Until there is a connection, waiting for a free one included.
    pub connect: Duration,
    /// From there until the first data of the answer.
    pub first_data: Duration,
}

/// Sends requests to engines, over connections that are its own. Made once for each runtime, on
/// which all its connections live; clones are the same. Limits count per value.
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    names: Names,
    keep: Keep,
    pools: RwLock<HashMap<u64, Arc<Pool>>>,
    sweeps: AtomicBool,
}

/// One engine's connections now, and what happened ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// The engine's URL.
    pub url: String,
    /// Connections kept.
    pub idle: usize,
    /// Connections with a request, or being opened.
    pub busy: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections opened; attempts that failed in the pool, at the name, in TCP, in TLS.
    pub connects: [u64; 5],
    /// Requests sent over a connection that had carried another.
    pub reused: u64,
    /// Requests sent again since their kept connection had closed before anything was sent.
    pub unsent: u64,
    /// Requests sent again since the engine said that it did nothing with them (h2).
    pub refused: u64,
    /// Requests sent again since their kept connection broke at once.
    pub repeated: u64,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        let (idle, lifetime) = (Duration::from_secs(4), Duration::from_secs(300));
        Self { idle, lifetime, resolver: Arc::new(System) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("idle", &self.idle)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

// === impl Upstream ===

impl Default for Upstream {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Upstream {
    /// Without connections yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let Options { idle, lifetime, resolver } = options;
        Self(Arc::new(Inner {
            names: Names::new(resolver),
            keep: Keep { idle, lifetime },
            pools: RwLock::default(),
            sweeps: AtomicBool::new(false),
        }))
    }

    /// What there is of connections, by URL.
    #[must_use]
    pub fn stats(&self) -> Vec<OriginStats> {
        let pools: Vec<Arc<Pool>> = self.0.pools.read().values().cloned().collect();
        let mut stats: Vec<OriginStats> = pools.iter().map(|pool| stats_of(pool)).collect();
        stats.sort_by(|a, b| a.url.cmp(&b.url));
        stats
    }

    /// How often an old address was used since a name could not be looked up.
    #[must_use]
    pub fn stale_names(&self) -> u64 {
        self.0.names.stale_uses()
    }

    pub(crate) fn pool(&self, origin: &Origin) -> Arc<Pool> {
        if let Some(pool) = self.0.pools.read().get(&origin.0.id) {
            return Arc::clone(pool);
        }
        if !self.0.sweeps.swap(true, Ordering::Relaxed) {
            let weak = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(SWEEP).await;
                    let Some(inner) = weak.upgrade() else { break };
                    inner.sweep();
                }
            });
        }
        match self.0.pools.write().entry(origin.0.id) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(place) => Arc::clone(place.insert(Pool::new(&origin.0, self.0.keep))),
        }
    }

    /// Opens a connection to `origin`.
    pub(crate) async fn dial(&self, origin: &Origin, deadline: Deadline) -> Result<Io, Failure> {
        dial(&self.0.names, &origin.0, deadline).await
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("keep", &self.0.keep).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    fn sweep(&self) {
        let mut gone = Vec::new();
        self.pools.write().retain(|_, pool| {
            let used = pool.origin.strong_count() > 0;
            if !used {
                gone.push(Arc::clone(pool));
            }
            used
        });
        gone.iter().for_each(|pool| pool.close());
        let pools: Vec<Arc<Pool>> = self.pools.read().values().cloned().collect();
        pools.iter().for_each(|pool| pool.sweep());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pools.get_mut().values().for_each(|pool| pool.close());
    }
}

fn stats_of(pool: &Pool) -> OriginStats {
    let (idle, busy, waiting) = pool.numbers();
    let counts = &pool.counts;
    OriginStats {
        url: pool.url.clone(),
        idle,
        busy,
        waiting,
        connects: counts.connects.each_ref().map(|count| count.load(Ordering::Relaxed)),
        reused: counts.reused.load(Ordering::Relaxed),
        unsent: counts.unsent.load(Ordering::Relaxed),
        refused: counts.refused.load(Ordering::Relaxed),
        repeated: counts.repeated.load(Ordering::Relaxed),
    }
}
