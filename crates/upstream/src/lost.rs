//! What became of a request without an answer, as far as that can be known.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use crate::failure::Failure;

/// A request as it is sent: origin-form path, host, and a body that is there as a whole.
pub(crate) type Outgoing = Request<Full<Bytes>>;

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) fate: Fate,
    pub(crate) failure: Failure,
}

/// How far it came.
#[derive(Debug)]
pub(crate) enum Fate {
    /// Nothing of it was sent: here it is.
    Unsent(Box<Outgoing>),
    /// The engine says that it did nothing with it.
    Refused,
    /// Some of it was sent, and nothing came back: the engine may have closed a kept connection
    /// just then.
    Silence,
    /// The engine took it, or there is no telling.
    Taken,
}
