//! The side that decodes: it fetches the prompt before its request is scheduled.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::config::{EngineKind, TransferFailure};
use super::params::{Decode, Source};
use super::rooms::Side;
use super::wire::{PATH, Pull};
use crate::server::faults::TransferFault;
use crate::server::refusal::Refusal;
use crate::server::state::State;
use crate::tokens::seed_of;

/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 10;

/// Why a prompt could not be fetched.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error("no connection")]
    Connect(#[from] io::Error),
    #[error("the connection broke")]
    Http(#[from] hyper::Error),
    #[error("not answered in time")]
    Timeout,
    #[error("the answer cannot be read")]
    Garbage,
    #[error("{0}: {1}")]
    Status(StatusCode, String),
}

/// What a fetch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Fetched {
    /// The prompt is here.
    Prompt,
    /// Something else is, and the engine does not know.
    Garbage,
    /// It has to be computed here.
    Nothing,
}

/// Counts while it is there.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Fetches a prompt of which `have` tokens are here.
pub(in crate::server) async fn fetch(
    state: &State,
    leg: &Decode,
    prompt: &[u32],
    have: usize,
) -> Result<Fetched, Refusal> {
    let _counted = Counted::new(&state.disagg.pulls);
    let used = |_| Refusal::bad("bootstrap_room: the room has been used.").of("bootstrap_room");
    let _seat = match leg.source {
        Source::Room(room) => Some(state.disagg.decoding.enter(room, Side::Decode).map_err(used)?),
        Source::Lease { .. } => None,
    };
    let settings = &state.config.pd;
    let fault = state.faults.take_transfer();
    let slower = if let TransferFault::Slow(time) = fault { time } else { Duration::ZERO };
    let wanted = Pull {
        source: leg.source.clone(),
        have,
        prompt: seed_of(prompt),
        fixed: settings.transfer_time.saturating_add(slower),
        rate: settings.transfer_rate,
        fails: fault == TransferFault::Fail,
    };
    // The transfer itself, and as long again as anybody is waited for.
    let longest = wanted.time(prompt.len()).saturating_add(settings.rendezvous);
    let pulled = timeout(longest, pull(state, &leg.at, &wanted)).await;
    match pulled.unwrap_or(Err(PullError::Timeout)) {
        Ok(Some(first)) if leg.first.is_some_and(|given| given != first) => {
            Err(Refusal::bad("first_gen_tokens: the prompt goes on with another token."))
        }
        Ok(first) => {
            let moved = prompt.len().saturating_sub(have) as u64;
            state.disagg.pulled_tokens.fetch_add(moved, Ordering::Relaxed);
            Ok(first.map_or(Fetched::Garbage, |_| Fetched::Prompt))
        }
        // A client that mixes requests up shall know.
        Err(PullError::Status(StatusCode::CONFLICT, why)) => {
            Err(Refusal::bad(format!("The prompt cannot be fetched: {why}.")))
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                at = leg.at,
                "the prompt could not be fetched"
            );
            state.disagg.failed.fetch_add(1, Ordering::Relaxed);
            sleep(settings.failure_delay).await;
            let may_recompute = state.config.kind != EngineKind::Sglang;
            match settings.on_failure {
                TransferFailure::Recompute if may_recompute => Ok(Fetched::Nothing),
                _ => Err(Refusal::internal()),
            }
        }
    }
}

/// The token after the prompt, when the prompt is here; `None` if another one is.
async fn pull(state: &State, at: &str, wanted: &Pull) -> Result<Option<u64>, PullError> {
    let connect = timeout(state.config.pd.rendezvous, TcpStream::connect(at)).await;
    let stream = connect.map_err(|_| PullError::Timeout)??;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(PATH)
        .header(http::header::HOST, at)
        .body(Full::new(Bytes::from(wanted.to_json().to_string())))
        .map_err(|_| PullError::Garbage)?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|_| PullError::Garbage)?.to_bytes();
        Ok::<_, PullError>((status, body))
    };
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(exchange);
    // Both here, in one task: whoever drops it drops the connection, and the other side sees it.
    let (status, body) = tokio::select! {
        done = &mut exchange => done?,
        ended = &mut connection => {
            ended?;
            exchange.await?
        }
    };
    let answer: Value = serde_json::from_slice(&body).map_err(|_| PullError::Garbage)?;
    if status != StatusCode::OK {
        let why = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
        return Err(PullError::Status(status, why));
    }
    if answer["garbage"] == true {
        return Ok(None);
    }
    answer["first_token"].as_u64().map(Some).ok_or(PullError::Garbage)
}
