//! Why an engine's HTTP server cannot be asked, and what to do about each cause.

use http::StatusCode;
use kvasir_fleet::ProbeError;

use crate::report::{Leg, LegName};
use crate::shown::shown;

/// The leg `http` of an engine that did not answer `GET /v1/models` as an engine does.
pub(super) fn unreachable(error: &ProbeError) -> Leg {
    let remedy = match error {
        ProbeError::Connect(why) => connect(why),
        ProbeError::Timeout(_) => {
            "something accepts connections there and says nothing: see the engine's log; it may \
             still be starting, or hang"
        }
        ProbeError::Broken(_) => {
            "what listens there does not speak HTTP/1.1 as it was asked to: where it speaks TLS, say \
             https:// in its URL; else give the engine's own HTTP port"
        }
        ProbeError::Status { status, .. } => status_remedy(*status),
        ProbeError::Content { .. } => {
            "something answers, but not with an OpenAI model list: give the base URL of the \
             engine itself, without a path"
        }
    };
    Leg::off(LegName::Http, shown(&error.to_string()), remedy)
}

fn connect(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if says(&["refused"]) {
        "nothing listens there: start the engine, or correct host and port; an engine bound to \
         127.0.0.1 is not reachable from elsewhere (--host 0.0.0.0)"
    } else if says(&["lookup", "name or service", "resolve", "dns", "nodename"]) {
        "the host name does not resolve here: correct it, or use an address"
    } else if says(&["timed out", "deadline", "elapsed"]) {
        "packets vanish: look for a firewall or a wrong address between here and the engine"
    } else if says(&["unreachable", "no route"]) {
        "there is no route to that host from here: correct the address, or the network"
    } else {
        "see whether the engine runs and can be reached from this machine"
    }
}

fn status_remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "give the engine's key: --header 'authorization: Bearer KEY' (`api_key` of the pool in \
             a configuration)"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            "is this an OpenAI-compatible server? Give its base URL without a path, and the \
             engine's own address if there is a proxy in front"
        }
        StatusCode::BAD_REQUEST => {
            "a port that expects TLS answers so, too: then say https:// in its URL"
        }
        status if status.is_redirection() => {
            "redirections are not followed: give the address it points to"
        }
        status if status.is_server_error() => {
            "the engine or a proxy before it fails, or is still starting: see its log"
        }
        _ => "see the engine's log",
    }
}
