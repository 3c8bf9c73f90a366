//! One attempt at one engine: the client's bytes out, the head and first data of the answer back.

use bytes::Bytes;
use http::request::Parts;
use http::response::Parts as ResponseParts;
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Uri, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use kvasir_fleet::{Endpoint, Pool, root_cause};

use crate::app::App;
use crate::headers;

/// An engine's answer as it begins.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) head: ResponseParts,
    /// The first frame; `None` when the answer has no body.
    pub(crate) first: Option<Frame<Bytes>>,
    pub(crate) rest: Incoming,
}

/// Why an attempt failed before anything of an answer was seen.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// No connection.
    Connect(String),
    /// The connection broke, or what came is not HTTP.
    Broke(String),
}

impl Failure {
    /// The word used in metrics.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Broke(_) => "broke",
        }
    }

    /// The cause, for people.
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Connect(why) | Self::Broke(why) => why,
        }
    }
}

/// Sends the request to `endpoint` and waits for the first data of its answer: engines send the
/// head of a stream before they have computed anything, so only the first data shows that the
/// engine took the request.
///
/// Dropping the future drops the connection, which is how engines learn that a client left.
pub(crate) async fn attempt(
    app: &App,
    pool: &Pool,
    endpoint: &Endpoint,
    request: &Parts,
    body: &Bytes,
) -> Result<Started, Failure> {
    let outgoing = outgoing(pool, endpoint, request, body)
        .map_err(|error| Failure::Broke(error.to_string()))?;
    let response = app.upstream.request(outgoing).await.map_err(|error| {
        let why = root_cause(&error);
        if error.is_connect() { Failure::Connect(why) } else { Failure::Broke(why) }
    })?;
    let (head, mut rest) = response.into_parts();
    let first = match rest.frame().await {
        None => None,
        Some(Ok(frame)) => Some(frame),
        Some(Err(error)) => return Err(Failure::Broke(root_cause(&error))),
    };
    Ok(Started { head, first, rest })
}

fn outgoing(
    pool: &Pool,
    endpoint: &Endpoint,
    request: &Parts,
    body: &Bytes,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let path = request.uri.path_and_query().cloned();
    let uri = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(endpoint.authority().clone())
        .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
        .build()?;
    let mut outgoing = Request::new(Full::new(body.clone()));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = uri;
    *outgoing.version_mut() = Version::HTTP_11;
    *outgoing.headers_mut() =
        headers::to_engine(request.headers.clone(), pool.authorization(), endpoint.rank_to_name());
    Ok(outgoing)
}
