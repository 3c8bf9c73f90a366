//! A request that two engines serve: one computes its prompt, the other one generates from the blocks
//! that it fetches there.
//!
//! What engines are told and what they answer is made and read here, in the bytes of the client's
//! request and of their answers; nothing of them is rebuilt. Who is asked, and what follows from a
//! failure, is in `attempts`.

mod companion;
mod eligible;
mod finished;
mod nixl;
mod request;
mod rooms;
mod sglang;
mod stream_error;
mod trtllm;
mod usage;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use kvasir_fleet::{Lease, Protocol};
use kvasir_prompt::{Api, ObjectText};

pub(crate) use self::companion::{Companion, PrefillEnd, Sending};
pub(crate) use self::eligible::{OWN_PARAMS, Read, SEVERAL_ANSWERS, read, why_not};
pub(crate) use self::request::Request;
pub(crate) use self::rooms::{Room, Rooms};
pub(crate) use self::sglang::Bootstrap;
pub(crate) use self::stream_error::{begins_with_error, failed_fetch};
pub(crate) use self::usage::{Details, StreamMerge, merged};
use crate::usage::Usage;

/// The code of the error where a decode engine broke off without a byte, and nobody does better.
pub(crate) const DECODE_DIED: &str = "pd_decode_backend_died";
/// The same of a prefill engine.
pub(crate) const PREFILL_DIED: &str = "pd_prefill_backend_died";
/// The code of the error where prefill legs failed that were sent together with their decode legs.
pub(crate) const PAIR_FAILED: &str = "pd_sg_prefill_failed";
/// The code of the error where neither of two legs that were sent together gave data in time.
pub(crate) const PAIR_TIMEOUT: &str = "pd_pair_timeout";

/// An engine's part in a split request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    Prefill,
    Decode,
}

impl Leg {
    /// The word used in metrics and spans.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// The code of the error where it takes too long.
    pub(crate) fn timeout(self) -> &'static str {
        match self {
            Self::Prefill => "pd_prefill_timeout",
            Self::Decode => "pd_decode_timeout",
        }
    }

    /// It succeeded, begun then. `streamed` says that its first data came with its first token, and not
    /// when all of it was generated.
    pub(crate) fn took(self, began: Instant, streamed: bool) {
        let stream = if streamed { "true" } else { "false" };
        metrics::histogram!("kvasir_pd_leg_seconds", "leg" => self.as_str(), "stream" => stream)
            .record(began.elapsed());
    }
}

/// What a prefill engine handed over: where a prompt's blocks lie, as long as it keeps them.
#[derive(Debug)]
pub(crate) struct Handed {
    /// Raw JSON, for the decode leg.
    pub(crate) params: Arc<str>,
    /// How much of the prompt the prefill engine had cached, where it says so.
    pub(crate) details: Option<Details>,
    pub(crate) lease: Lease,
    pub(crate) protocol: Protocol,
    /// The request's number, where engines are given one.
    pub(crate) _room: Option<Room>,
}

impl Handed {
    /// Whether the blocks are still kept.
    pub(crate) fn is_live(&self) -> bool {
        self.lease.is_live()
    }
}

/// What rides with the decode engine's answer.
#[derive(Debug)]
pub(crate) struct Ride {
    /// What its usage has to say of the prompt's tokens.
    pub(crate) details: Option<Details>,
    /// The prefill leg that goes on meanwhile.
    pub(crate) both: Option<Companion>,
}

/// What a prefill engine answered.
#[derive(Debug)]
pub(crate) struct Prefilled {
    pub(crate) usage: Usage,
    pub(crate) outcome: Outcome,
}

/// What comes of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Handed {
        params: Arc<str>,
        details: Option<Details>,
        /// How long the blocks are kept from now on, where it says so.
        kept: Option<Duration>,
    },
    /// It is the whole answer.
    Finished,
    /// It came to its end with the first token, and nothing was kept for a decode leg.
    Early,
    Missing,
}

impl Prefilled {
    /// Nothing that could be read.
    pub(crate) fn nothing() -> Self {
        Self { usage: Usage::default(), outcome: Outcome::Missing }
    }
}

/// The body of the prefill leg that comes first; `None` where there is none.
pub(crate) fn prefill_body(protocol: Protocol, body: &Request, number: u64) -> Option<Bytes> {
    match protocol {
        Protocol::Nixl => Some(nixl::prefill(body)),
        Protocol::Trtllm => Some(trtllm::prefill(body, number)),
        Protocol::Sglang | Protocol::Auto => None,
    }
}

/// The body of the decode leg that follows it.
pub(crate) fn decode_body(protocol: Protocol, body: &Request, params: &str) -> Option<Bytes> {
    match protocol {
        Protocol::Nixl => Some(nixl::decode(body, params)),
        Protocol::Trtllm => Some(trtllm::decode(body, params)),
        Protocol::Sglang | Protocol::Auto => None,
    }
}

/// The body of both legs, where they are sent at once.
pub(crate) fn pair_body(body: &Request, at: &Bootstrap, number: u64) -> Bytes {
    sglang::leg(body, at, number)
}

/// Reads a prefill engine's answer.
pub(crate) fn prefilled(protocol: Protocol, answer: &[u8]) -> Prefilled {
    let Ok(answer) = ObjectText::parse(answer) else { return Prefilled::nothing() };
    let handed = |params: &str, kept| Outcome::Handed {
        params: params.into(),
        details: Details::of(&answer),
        kept,
    };
    let outcome = match protocol {
        Protocol::Nixl => match nixl::params(&answer) {
            Some(params) => handed(params, nixl::kept_for(params, SystemTime::now())),
            None if nixl::ended_early(&answer) => Outcome::Early,
            None => Outcome::Missing,
        },
        Protocol::Trtllm => match trtllm::context(&answer) {
            trtllm::Context::Params(params) => handed(&params, None),
            trtllm::Context::Finished => Outcome::Finished,
            trtllm::Context::Missing => Outcome::Missing,
        },
        Protocol::Sglang | Protocol::Auto => Outcome::Missing,
    };
    Prefilled { usage: usage::usage_of(&answer), outcome }
}

/// A prefill engine's answer as the client wants it, whose head it is; `None` where it cannot be made
/// of it.
pub(crate) fn finish(
    mut head: Parts,
    answer: &[u8],
    api: Option<Api>,
    request: &Request,
    streamed: bool,
) -> Option<(Parts, Frame<Bytes>)> {
    let answer = ObjectText::parse(answer).ok()?;
    head.headers.remove(CONTENT_LENGTH);
    head.status = StatusCode::OK;
    let text = if streamed {
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        head.headers.insert(CONTENT_TYPE, kind);
        finished::streamed(api?, &answer, finished::wants_usage(request))?
    } else {
        let text = finished::whole(&answer)?;
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
        text
    };
    Some((head, Frame::data(text.into())))
}
