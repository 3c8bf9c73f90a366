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
mod rooms;
mod sglang;
mod stream_error;
mod trtllm;
mod usage;

use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use kvasir_fleet::{Lease, Protocol};
use kvasir_prompt::{Api, ObjectText};

pub(crate) use self::companion::{Companion, PrefillEnd, Sending};
pub(crate) use self::eligible::{OWN_PARAMS, SEVERAL_ANSWERS, why_not};
pub(crate) use self::nixl::kept_for;
pub(crate) use self::rooms::{Room, Rooms};
pub(crate) use self::sglang::Bootstrap;
pub(crate) use self::stream_error::failed_fetch;
pub(crate) use self::usage::{StreamMerge, merged};
use crate::usage::Usage;

/// The code of the error where a decode engine broke off without a byte, and nobody does better.
pub(crate) const DECODE_DIED: &str = "pd_decode_backend_died";
/// The code of the error where prefill legs failed that were sent together with their decode legs.
pub(crate) const PAIR_FAILED: &str = "pd_sg_prefill_failed";

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

    /// It succeeded, begun then.
    pub(crate) fn took(self, began: Instant) {
        metrics::histogram!("kvasir_pd_leg_seconds", "leg" => self.as_str())
            .record(began.elapsed());
    }
}

/// What a prefill engine handed over: where a prompt's blocks lie, as long as it keeps them.
#[derive(Debug)]
pub(crate) struct Handed {
    /// Raw JSON, for the decode leg.
    pub(crate) params: String,
    /// How much of the prompt the prefill engine had cached, as it says.
    pub(crate) cached: Option<u64>,
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
    /// What its usage has to say of cached tokens.
    pub(crate) cached: Option<u64>,
    /// The prefill leg that goes on meanwhile.
    pub(crate) both: Option<Companion>,
}

/// What a prefill engine answered.
#[derive(Debug)]
pub(crate) enum Prefilled {
    Handed {
        params: String,
        cached: Option<u64>,
    },
    /// It is the whole answer.
    Finished,
    Missing,
}

/// The body of the prefill leg that comes first; `None` where there is none.
pub(crate) fn prefill_body(protocol: Protocol, body: &[u8], number: u64) -> Option<Bytes> {
    let body = ObjectText::parse(body).ok()?;
    let text = match protocol {
        Protocol::Nixl => nixl::prefill(&body),
        Protocol::Trtllm => trtllm::prefill(&body, number),
        Protocol::Sglang | Protocol::Auto => return None,
    };
    Some(text.into())
}

/// The body of the decode leg that follows it.
pub(crate) fn decode_body(protocol: Protocol, body: &[u8], params: &str) -> Option<Bytes> {
    let body = ObjectText::parse(body).ok()?;
    let text = match protocol {
        Protocol::Nixl => nixl::decode(&body, params),
        Protocol::Trtllm => trtllm::decode(&body, params),
        Protocol::Sglang | Protocol::Auto => return None,
    };
    Some(text.into())
}

/// The body of both legs, where they are sent at once.
pub(crate) fn pair_body(body: &[u8], at: &Bootstrap, room: &Room) -> Option<Bytes> {
    let body = ObjectText::parse(body).ok()?;
    Some(sglang::leg(&body, at, room.number).into())
}

/// Reads a prefill engine's answer.
pub(crate) fn prefilled(protocol: Protocol, answer: &[u8]) -> Prefilled {
    let Ok(answer) = ObjectText::parse(answer) else { return Prefilled::Missing };
    let cached = usage::cached_tokens(&answer);
    let params = match protocol {
        Protocol::Nixl => nixl::params(&answer).map(str::to_owned),
        Protocol::Trtllm => match trtllm::context(&answer) {
            trtllm::Context::Params(params) => Some(params),
            trtllm::Context::Finished => return Prefilled::Finished,
            trtllm::Context::Missing => None,
        },
        Protocol::Sglang | Protocol::Auto => None,
    };
    params.map_or(Prefilled::Missing, |params| Prefilled::Handed { params, cached })
}

/// What a prefill engine's answer says of its cache.
pub(crate) fn usage_of(answer: &[u8]) -> Usage {
    let Ok(answer) = ObjectText::parse(answer) else { return Usage::default() };
    Usage {
        cached_tokens: usage::cached_tokens(&answer),
        prompt_tokens: usage::prompt_tokens(&answer),
    }
}

/// A prefill engine's answer as the client wants it, whose head it is; `None` where it cannot be made
/// of it.
pub(crate) fn finish(
    mut head: Parts,
    answer: &[u8],
    api: Option<Api>,
    request: &[u8],
    streamed: bool,
) -> Option<(Parts, Frame<Bytes>)> {
    let (answer, request) = (ObjectText::parse(answer).ok()?, ObjectText::parse(request).ok()?);
    head.headers.remove(CONTENT_LENGTH);
    head.status = StatusCode::OK;
    let text = if streamed {
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        head.headers.insert(CONTENT_TYPE, kind);
        finished::streamed(api?, &answer, finished::wants_usage(&request))?
    } else {
        let text = finished::whole(&answer)?;
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
        text
    };
    Some((head, Frame::data(text.into())))
}
