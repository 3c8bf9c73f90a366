//! Names of engines, looked up anew for new connections, with a short memory. One look-up of a name
//! is under way at a time, for all who need it.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long an answer is taken for current.
const FRESH: Duration = Duration::from_secs(5);
/// How long it is used while a name cannot be looked up: a name server's outage is none of the
/// engines.
const STALE: Duration = Duration::from_secs(600);
/// How long a connection waits for a look-up before an old answer has to do.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one look-up may take. The system's may go on in its thread, and another begins.
const LONGEST: Duration = Duration::from_secs(10);
/// Names kept; more are looked up every time.
const MOST_NAMES: usize = 4096;
/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 16;

/// A lookup on its way.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Looks up names.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `host`, which is no address itself, in the order in which to try them.
    fn resolve(&self, host: &str, port: u16) -> Lookup;
}

/// The operating system's.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, host: &str, port: u16) -> Lookup {
        let host = host.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Names and what they stand for.
pub(crate) struct Names(Arc<Inner>);

struct Inner {
    resolver: Arc<dyn Resolve>,
    state: Mutex<State>,
    /// How often an old answer had to do.
    stale: AtomicU64,
}

#[derive(Default)]
struct State {
    known: HashMap<Key, Known>,
    /// Names being looked up; as many as somebody needs.
    asked: HashMap<Key, Flight>,
}

type Key = (String, u16);

struct Known {
    addresses: Vec<SocketAddr>,
    at: Instant,
    /// When it was last looked up, with or without an answer.
    asked: Instant,
}

/// What comes of a look-up, for all who wait for it; `None` until then.
type Flight = watch::Receiver<Option<Found>>;
type Found = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// The name is not being looked up any more, however that ended.
struct Landing {
    names: Arc<Inner>,
    key: Key,
}

// === impl Names ===

impl Names {
    pub(crate) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self(Arc::new(Inner { resolver, state: Mutex::default(), stale: AtomicU64::new(0) }))
    }

    pub(crate) fn stale_uses(&self) -> u64 {
        self.0.stale.load(Ordering::Relaxed)
    }

    /// The addresses of `host`; at least one.
    pub(crate) async fn lookup(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Arc<io::Error>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let key = (host.to_owned(), port);
        let (mut flight, old) = match self.0.remembered_or_asked(&key) {
            Ok(addresses) => return Ok(addresses),
            Err(asked) => asked,
        };
        let landed = async {
            match flight.wait_for(Option::is_some).await {
                Ok(found) => found.clone().unwrap_or_else(given_up),
                // Only when its runtime ends.
                Err(_) => given_up(),
            }
        };
        let found = match &old {
            None => landed.await,
            Some(_) => tokio::time::timeout(PATIENCE, landed).await.unwrap_or_else(|_| given_up()),
        };
        match (found, old) {
            (Err(error), Some(old)) => Ok(self.0.make_do(&key, &error, old)),
            (found, _) => found,
        }
    }
}

fn given_up() -> Found {
    Err(Arc::new(io::Error::new(io::ErrorKind::TimedOut, "the name server does not answer")))
}

// === impl Inner ===

impl Inner {
    /// What is known well enough, or known at all while somebody else asks, or just has; else a
    /// look-up on its way, and what is known until it ends.
    fn remembered_or_asked(
        self: &Arc<Self>,
        key: &Key,
    ) -> Result<Vec<SocketAddr>, (Flight, Option<Known>)> {
        let mut state = self.state.lock();
        let State { known, asked } = &mut *state;
        let usable = known.get_mut(key).filter(|entry| entry.at.elapsed() < STALE);
        let flight = asked.get(key);
        let mut old = None;
        if let Some(entry) = usable {
            let asked = flight.is_some() || entry.asked.elapsed() < PATIENCE;
            if asked || entry.at.elapsed() < FRESH {
                return Ok(entry.addresses.clone());
            }
            entry.asked = Instant::now();
            old = Some(Known { addresses: entry.addresses.clone(), ..*entry });
        }
        if let Some(flight) = flight {
            return Err((flight.clone(), old));
        }
        let (lands, flight) = watch::channel(None);
        asked.insert(key.clone(), flight.clone());
        drop(state);
        // It goes on when who asked first leaves: others wait for it, too.
        let landing = Landing { names: Arc::clone(self), key: key.clone() };
        tokio::spawn(async move {
            let found = landing.names.ask(&landing.key).await;
            if let Ok(addresses) = &found {
                landing.names.remember(&landing.key, addresses);
            }
            drop(landing);
            lands.send_replace(Some(found));
        });
        Err((flight, old))
    }

    async fn ask(&self, (host, port): &Key) -> Found {
        match tokio::time::timeout(LONGEST, self.resolver.resolve(host, *port)).await {
            Ok(Ok(mut addresses)) if !addresses.is_empty() => {
                addresses.truncate(MOST_ADDRESSES);
                Ok(addresses)
            }
            Ok(Ok(_)) => Err(Arc::new(io::Error::other("the name has no address"))),
            Ok(Err(error)) => Err(Arc::new(error)),
            Err(_) => given_up(),
        }
    }

    fn remember(&self, key: &Key, addresses: &[SocketAddr]) {
        let known = &mut self.state.lock().known;
        if known.len() >= MOST_NAMES && !known.contains_key(key) {
            known.retain(|_, entry| entry.at.elapsed() < FRESH);
            if known.len() >= MOST_NAMES {
                return;
            }
        }
        let (addresses, now) = (addresses.to_vec(), Instant::now());
        known.insert(key.clone(), Known { addresses, at: now, asked: now });
    }

    /// An old answer, since there is no other.
    fn make_do(&self, key: &Key, error: &io::Error, old: Known) -> Vec<SocketAddr> {
        self.stale.fetch_add(1, Ordering::Relaxed);
        let age_s = old.at.elapsed().as_secs();
        tracing::warn!(name = key.0, %error, age_s, "name not looked up; its last address is used");
        old.addresses
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.names.state.lock().asked.remove(&self.key);
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}
