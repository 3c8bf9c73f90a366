//! One attempt at one engine: the client's bytes out, the head and first data of the answer back.

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Uri};
use http_body_util::Full;
use kvasir_fleet::{Endpoint, Pool};
use kvasir_upstream::{Patience, Started, Upstream};

pub(crate) use kvasir_upstream::{Failure, Fault, Phase, Retry};

use crate::headers;
use crate::split::Leg;

/// What goes to which engine.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) endpoint: &'a Endpoint,
    /// The client's head.
    pub(crate) request: &'a Parts,
    pub(crate) body: &'a Bytes,
    /// The engine's part in a split request.
    pub(crate) leg: Option<Leg>,
}

/// Sends a request to its engine and waits for the first data of its answer: engines send the
/// head of a stream before they have computed anything, so only the first data shows that the
/// engine took the request. Where a kept connection broke at once it is sent a second time if
/// `may_repeat`. `left` is what is left of the time for the whole request, if that has an end.
///
/// Dropping the future drops the connection, which is how engines learn that a client left.
pub(crate) async fn attempt(
    upstream: &Upstream,
    outgoing: Outgoing<'_>,
    may_repeat: impl Fn() -> bool,
    left: Option<Duration>,
) -> Result<Started, Failure> {
    let timeouts = outgoing.pool.timeouts();
    let most = left.unwrap_or(Duration::MAX);
    let patience =
        Patience { connect: timeouts.connect.min(most), first_data: timeouts.first_data.min(most) };
    let origin = outgoing.endpoint.origin();
    let sent = upstream.send(&origin, patience, may_repeat, || outgoing.request());
    // Connecting, waiting and a second time together.
    let Some(left) = left else { return sent.await };
    tokio::time::timeout(left, sent).await.unwrap_or_else(|_| Err(Failure::late(left)))
}

impl Outgoing<'_> {
    /// The request as the engine gets it, but for its host.
    fn request(&self) -> Request<Full<Bytes>> {
        let Self { pool, endpoint, request, body, leg } = *self;
        let path = request.uri.path_and_query().cloned();
        let mut outgoing = Request::new(Full::new(body.clone()));
        *outgoing.method_mut() = request.method.clone();
        *outgoing.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
        let rank = endpoint.rank_to_name();
        let mut headers = headers::to_engine(request.headers.clone(), pool.authorization(), rank);
        if let Some(leg) = leg {
            headers::of_leg(&mut headers, leg, rank);
        }
        *outgoing.headers_mut() = headers;
        outgoing
    }
}
