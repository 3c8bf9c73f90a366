//! Names of engines, looked up anew for new connections, with a short memory.

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

/// How long an answer is taken for current.
const FRESH: Duration = Duration::from_secs(5);
/// How long it is used while a name cannot be looked up: a name server's outage is none of the
/// engines.
const STALE: Duration = Duration::from_secs(600);
/// How long one lookup may take before the next connection begins another.
const PATIENCE: Duration = Duration::from_secs(2);
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
pub(crate) struct Names {
    resolver: Arc<dyn Resolve>,
    known: Mutex<HashMap<(String, u16), Known>>,
    /// How often an old answer had to do.
    stale: AtomicU64,
}

struct Known {
    addresses: Vec<SocketAddr>,
    at: Instant,
    asked: Instant,
}

impl Names {
    pub(crate) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, known: Mutex::default(), stale: AtomicU64::new(0) }
    }

    pub(crate) fn stale_uses(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }

    /// The addresses of `host`; at least one.
    pub(crate) async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let key = (host.to_owned(), port);
        if let Some(addresses) = self.remembered(&key) {
            return Ok(addresses);
        }
        match self.resolver.resolve(host, port).await {
            Ok(mut addresses) if !addresses.is_empty() => {
                addresses.truncate(MOST_ADDRESSES);
                self.remember(key, addresses.clone());
                Ok(addresses)
            }
            Ok(_) => self.make_do(&key, io::Error::other("the name has no address")),
            Err(error) => self.make_do(&key, error),
        }
    }

    /// What is known well enough; or what is known at all, while somebody else asks.
    fn remembered(&self, key: &(String, u16)) -> Option<Vec<SocketAddr>> {
        let mut known = self.known.lock();
        let entry = known.get_mut(key)?;
        let now = Instant::now();
        let age = now.saturating_duration_since(entry.at);
        let asking = now.saturating_duration_since(entry.asked) < PATIENCE;
        if age < FRESH || (age < STALE && asking) {
            return Some(entry.addresses.clone());
        }
        entry.asked = now;
        None
    }

    fn remember(&self, key: (String, u16), addresses: Vec<SocketAddr>) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= MOST_NAMES && !known.contains_key(&key) {
            known.retain(|_, entry| now.saturating_duration_since(entry.at) < FRESH);
            if known.len() >= MOST_NAMES {
                return;
            }
        }
        // Nobody asks now: the next one after `FRESH` does.
        let asked = now.checked_sub(PATIENCE).unwrap_or(now);
        known.insert(key, Known { addresses, at: now, asked });
    }

    /// An old answer, where there is one that is not too old.
    fn make_do(&self, key: &(String, u16), error: io::Error) -> io::Result<Vec<SocketAddr>> {
        let known = self.known.lock();
        let Some(entry) = known.get(key).filter(|entry| entry.at.elapsed() < STALE) else {
            return Err(error);
        };
        self.stale.fetch_add(1, Ordering::Relaxed);
        let age_s = entry.at.elapsed().as_secs();
        tracing::warn!(name = key.0, %error, age_s, "name not looked up; its last address is used");
        Ok(entry.addresses.clone())
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}
