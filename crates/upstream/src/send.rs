//! One request out, the beginning of its answer back, and the one repeat that there may be.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::uri::{Parts as UriParts, PathAndQuery};
use http::{Uri, Version, header};
use http_body_util::BodyExt;

use crate::answer::{AnswerStream, Broken, Started, Via};
use crate::dial::Deadline;
use crate::failure::{Failure, Phase};
use crate::h1::H1;
use crate::h2::{self, H2};
use crate::lost::{Fate, Lost, Outgoing};
use crate::origin::Origin;
use crate::pool::{Acquired, Pool};
use crate::upstream::{Patience, Upstream};

/// A kept connection that breaks this soon may have been closed while the request was on its way;
/// later the engine was at work on it.
const SOON: Duration = Duration::from_secs(1);

/// Why a request is sent again.
enum Again {
    /// The engine got nothing of it, or did nothing with it.
    Free,
    /// It was lost with a kept connection, and this is said where there is no second one.
    Lost(Failure),
}

/// What it is not sent over.
#[derive(Default)]
struct Not {
    /// A connection that was kept.
    kept: bool,
    /// This one.
    h2: Option<Weak<H2>>,
}

impl Upstream {
    /// Sends what `request` makes to `origin`, and waits for the first data of the answer.
    ///
    /// `request` gives method, path, headers and body; the host is set here. At most once it is
    /// sent again, over another connection, before anything of an answer came:
    ///
    /// - where nothing of it was sent since a kept connection had been closed, and where an h2
    ///   engine says that it did nothing with it: in any case;
    /// - where a kept HTTP/1.1 connection broke at once, so that the engine may or may not have
    ///   got it: if `may_repeat`, which is asked only then. Where there is no connection to be had
    ///   the request failed as it broke.
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// The phase in which it failed, and why.
    pub async fn send(
        &self,
        origin: &Origin,
        patience: Patience,
        may_repeat: impl Fn() -> bool,
        request: impl Fn() -> Outgoing,
    ) -> Result<Started, Failure> {
        let pool = self.pool(origin);
        let mut outgoing = addressed(request(), origin);
        let mut again: Option<Again> = None;
        let mut not = Not::default();
        loop {
            let repeated = again.is_some();
            let mut link = match self.link(&pool, origin, patience.connect, &not).await {
                Ok(link) => link,
                // The engine got it once, and may be gone because of it.
                Err(failure) => {
                    let lost = match again {
                        Some(Again::Lost(lost)) => lost,
                        _ => failure,
                    };
                    return Err(lost.repeated(repeated));
                }
            };
            let began = Instant::now();
            let exchange = link.exchange(outgoing);
            let lost = match tokio::time::timeout(patience.first_data, exchange).await {
                Err(_) => return Err(Failure::late(patience.first_data).repeated(repeated)),
                Ok(Ok(beginning)) => {
                    let begun = begun(beginning, link, &pool);
                    return begun.map_err(|failure| failure.repeated(repeated));
                }
                Ok(Err(lost)) => lost,
            };
            not = link.and_its_like();
            let kept = link.is_kept();
            drop(link);
            let Lost { fate, failure } = lost;
            if repeated {
                return Err(failure.repeated(true));
            }
            let (count, back, why) = match fate {
                Fate::Unsent(back) if kept => (&pool.counts.unsent, Some(*back), Again::Free),
                Fate::Refused => (&pool.counts.refused, None, Again::Free),
                Fate::Silence if kept && began.elapsed() <= SOON && may_repeat() => {
                    (&pool.counts.repeated, None, Again::Lost(failure))
                }
                _ => return Err(failure),
            };
            count.fetch_add(1, Ordering::Relaxed);
            outgoing = back.unwrap_or_else(|| addressed(request(), origin));
            again = Some(why);
        }
    }

    /// Something to send a request over.
    async fn link(
        &self,
        pool: &Arc<Pool>,
        origin: &Origin,
        patience: Duration,
        not: &Not,
    ) -> Result<Link, Failure> {
        if !origin.0.http2
            && !not.kept
            && let Some(kept) = pool.kept()
        {
            return Ok(Link::H1(kept));
        }
        let opened = self.open(pool, origin, Deadline::after(patience), not).await;
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
        not: &Not,
    ) -> Result<Link, Failure> {
        let dial = || self.dial(origin, deadline);
        if origin.0.http2 {
            return Ok(Link::H2(pool.stream(deadline, not.h2.as_ref(), dial).await?));
        }
        let slot = match pool.acquire(deadline, not.kept).await? {
            Acquired::Kept(connection) => return Ok(Link::H1(connection)),
            Acquired::New(slot) => slot,
        };
        Ok(Link::H1(H1::over(dial().await?, slot).await?))
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

    /// What a request that was lost with it is not sent over.
    fn and_its_like(&self) -> Not {
        let h2 = match self {
            Self::H1(_) => None,
            Self::H2(stream) => Some(stream.connection()),
        };
        Not { kept: true, h2 }
    }

    async fn exchange(&mut self, request: Outgoing) -> Result<Beginning, Lost> {
        let taken = |failure| Lost { fate: Fate::Taken, failure };
        match self {
            Self::H1(connection) => {
                let (head, mut body) = connection.head(request).await?.into_parts();
                let first = std::future::poll_fn(|cx| connection.poll_body(&mut body, cx)).await;
                let first = first.transpose().map_err(|error| taken(connection.why(&error)))?;
                Ok((head, first, body))
            }
            Self::H2(stream) => {
                let (head, mut body) = stream.head(request).await?.into_parts();
                let first = body.frame().await.transpose();
                let first = first.map_err(|error| taken(h2::why(&error)))?;
                if first.is_none() && !http_body::Body::is_end_stream(&body) {
                    return Err(taken(Failure::new(Phase::Broke, Broken::Short.to_string())));
                }
                Ok((head, first, body))
            }
        }
    }
}

/// The beginning of an answer, if it is one.
fn begun(beginning: Beginning, link: Link, pool: &Pool) -> Result<Started, Failure> {
    let (head, first, body) = beginning;
    // It would speak another protocol, for which nobody has asked.
    if head.status.is_informational() {
        let why = format!("what came is no HTTP answer: {}", head.status);
        return Err(Failure::new(Phase::NotHttp, why));
    }
    let (kept, via) = match link {
        // Its head is here already.
        Link::H1(connection) => (connection.answers > 1, Via::H1(connection)),
        Link::H2(stream) => (stream.kept, Via::H2(stream)),
    };
    if kept {
        pool.counts.reused.fetch_add(1, Ordering::Relaxed);
    }
    let mut rest = AnswerStream::new(body, via);
    if first.is_none() || http_body::Body::is_end_stream(&rest) {
        rest.finish();
    }
    Ok(Started { head, first, rest })
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
