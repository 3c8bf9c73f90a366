//! Requests out, beginnings of answers back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::uri::{Parts as UriParts, PathAndQuery};
use http::{Uri, Version, header};
use http_body_util::BodyExt;
use parking_lot::RwLock;

use crate::answer::{AnswerStream, Started, Via};
use crate::dial::{Deadline, dial};
use crate::dns::{Names, Resolve, System};
use crate::failure::{Failure, Phase};
use crate::h1::{H1, Lost, Outgoing};
use crate::h2;
use crate::origin::Origin;
use crate::pool::{Acquired, Keep, Pool};

/// How often kept connections are looked through.
const SWEEP: Duration = Duration::from_millis(500);
/// A kept connection that breaks this soon may have been closed while the request was on its way;
/// later the engine was at work on it.
const SOON: Duration = Duration::from_secs(1);

/// How often a request is sent again that an h2 engine says it did nothing with.
const MOST_REFUSALS: u32 = 8;

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
    /// Kept connections that had closed before anything was sent.
    pub unsent: u64,
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

    /// Sends what `request` makes to `origin`, and waits for the first data of the answer.
    ///
    /// `request` gives method, path, headers and body; the host is set here. It is called again
    /// only where a kept connection broke at once, before anything of an answer came, and the
    /// request is `repeatable`: it is then sent once more over a new connection; where there is none
    /// to be had, the request failed as it broke. What was not sent at all, or what an h2 engine says it did nothing with, goes over another connection in any
    /// case.
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// The phase in which it failed, and why.
    pub async fn send(
        &self,
        origin: &Origin,
        patience: Patience,
        repeatable: bool,
        request: impl Fn() -> Outgoing,
    ) -> Result<Started, Failure> {
        let pool = self.pool(origin);
        let mut outgoing = addressed(request(), origin);
        let mut refusals = 0;
        // Why it was lost with a connection that had been kept: it is sent a second time.
        let mut broke: Option<Failure> = None;
        loop {
            let repeated = broke.is_some();
            let mut link = match self.link(&pool, origin, patience.connect, repeated).await {
                Ok(link) => link,
                // The engine got it once, and may be gone because of it.
                Err(failure) => return Err(broke.unwrap_or(failure).repeated(repeated)),
            };
            let kept = link.is_kept();
            let began = Instant::now();
            let exchange = tokio::time::timeout(patience.first_data, link.exchange(outgoing));
            let lost = match exchange.await {
                Err(_) => return Err(Failure::late(patience.first_data).repeated(repeated)),
                // It would speak another protocol, for which nobody has asked.
                Ok(Ok((head, ..))) if head.status.is_informational() => {
                    let why = format!("what came is no HTTP answer: {}", head.status);
                    return Err(Failure::new(Phase::NotHttp, why).repeated(repeated));
                }
                Ok(Ok((head, first, body))) => {
                    if kept {
                        pool.counts.reused.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok(started(head, first, body, link));
                }
                Ok(Err(lost)) => lost,
            };
            drop(link);
            match lost.unsent {
                Some(back) if kept => {
                    pool.counts.unsent.fetch_add(1, Ordering::Relaxed);
                    outgoing = back;
                    continue;
                }
                _ => {}
            }
            if lost.refused && refusals < MOST_REFUSALS {
                pool.counts.unsent.fetch_add(1, Ordering::Relaxed);
                refusals += 1;
                outgoing = addressed(request(), origin);
                continue;
            }
            if !kept || repeated || !repeatable || lost.answered || began.elapsed() > SOON {
                return Err(lost.failure.repeated(repeated));
            }
            pool.counts.repeated.fetch_add(1, Ordering::Relaxed);
            outgoing = addressed(request(), origin);
            broke = Some(lost.failure);
        }
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

    fn pool(&self, origin: &Origin) -> Arc<Pool> {
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

    /// Something to send a request over.
    async fn link(
        &self,
        pool: &Arc<Pool>,
        origin: &Origin,
        patience: Duration,
        fresh: bool,
    ) -> Result<Link, Failure> {
        if !origin.0.http2
            && !fresh
            && let Some(kept) = pool.kept()
        {
            return Ok(Link::H1(kept));
        }
        let opened = self.open(pool, origin, Deadline::after(patience), fresh).await;
        match &opened {
            Err(failure) => pool.counts.connect(Some(failure.phase())),
            Ok(link) if !link.is_kept() => pool.counts.connect(None),
            Ok(_) => {}
        }
        opened
    }

    async fn open(
        &self,
        pool: &Arc<Pool>,
        origin: &Origin,
        deadline: Deadline,
        fresh: bool,
    ) -> Result<Link, Failure> {
        let dial = || dial(&self.0.names, &origin.0, deadline);
        if origin.0.http2 {
            return Ok(Link::H2(pool.stream(deadline, fresh, dial).await?));
        }
        let slot = match pool.acquire(deadline, fresh).await? {
            Acquired::Kept(connection) => return Ok(Link::H1(connection)),
            Acquired::New(slot) => slot,
        };
        Ok(Link::H1(H1::over(dial().await?, slot).await?))
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

/// What one request is sent over.
enum Link {
    H1(Box<H1>),
    H2(h2::Stream),
}

type Beginning =
    (http::response::Parts, Option<http_body::Frame<bytes::Bytes>>, hyper::body::Incoming);

impl Link {
    fn is_kept(&self) -> bool {
        match self {
            Self::H1(connection) => connection.answers > 0,
            Self::H2(stream) => stream.kept,
        }
    }

    async fn exchange(&mut self, request: Outgoing) -> Result<Beginning, Lost> {
        let lost = |failure| Lost { unsent: None, answered: true, refused: false, failure };
        match self {
            Self::H1(connection) => {
                let (head, mut body) = connection.head(request).await?.into_parts();
                let first = std::future::poll_fn(|cx| connection.poll_body(&mut body, cx)).await;
                let first = first.transpose().map_err(|error| lost(connection.why(&error)))?;
                Ok((head, first, body))
            }
            Self::H2(stream) => {
                let (head, mut body) = stream.head(request).await?.into_parts();
                let first = body.frame().await.transpose();
                let first = first.map_err(|error| lost(h2::why(&error)))?;
                Ok((head, first, body))
            }
        }
    }
}

fn started(
    head: http::response::Parts,
    first: Option<http_body::Frame<bytes::Bytes>>,
    body: hyper::body::Incoming,
    link: Link,
) -> Started {
    let via = match link {
        Link::H1(connection) => Via::H1(connection),
        Link::H2(stream) => Via::H2(stream),
    };
    let mut rest = AnswerStream::new(body, via);
    if first.is_none() || http_body::Body::is_end_stream(&rest) {
        rest.finish();
    }
    Started { head, first, rest }
}

/// Directs a request to an engine: HTTP/1.1 has the path in its first line and the host in a
/// header, h2 has both in the URI.
fn addressed(mut request: Outgoing, origin: &Origin) -> Outgoing {
    if !origin.0.http2 {
        *request.version_mut() = Version::HTTP_11;
        request.headers_mut().insert(header::HOST, origin.0.host_header.clone());
        return request;
    }
    let mut parts = UriParts::default();
    parts.scheme = Some(origin.scheme());
    parts.authority = Some(origin.authority().clone());
    let path = request.uri().path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
    // Scheme, authority and path together are always a URI.
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    request
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
        repeated: counts.repeated.load(Ordering::Relaxed),
    }
}
