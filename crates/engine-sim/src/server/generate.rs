//! Completions and chats: from the body to the engine and back.

mod answer;
pub(super) mod ask;
mod prefill;
mod stream;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, Response, StatusCode};
use kvasir_prompt::Api;
use tokio::sync::mpsc;

use self::answer::{Answer, Head};
use self::ask::Ask;
use super::body::Payload;
use super::disagg::config::EngineKind;
use super::disagg::fetch::{Fetched, fetch};
use super::disagg::params::Leg;
use super::metrics::unix_seconds;
use super::rank::{Generated, Submission};
use super::refusal::{Refusal, json_response};
use super::state::State;
use crate::{Request, RequestId};
pub(super) use stream::EventStream;

/// Serves one generation request.
pub(super) async fn generate(
    state: &Arc<State>,
    api: Api,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response<Payload>, Refusal> {
    let arrived = Instant::now();
    let rank = chosen_rank(state, headers)?;
    let mut ask = Ask::read(state, api, body).await?;
    let ignored = ask.ignored.join(", ");
    let head = Head {
        id: request_id(state, headers),
        created: unix_seconds() as u64,
        fingerprint: state.fingerprint.clone(),
        block_size: state.engine.block_size,
        report_cached_tokens: state.config.report_cached_tokens,
        modern: state.is_modern(),
    };
    let in_stream = ask.stream && state.config.kind == EngineKind::Vllm;
    let mut response = match ask.leg {
        Leg::Prefill(leg) => prefill::run(state, leg, ask, head, rank, arrived).await?,
        // vLLM's head is out before the prompt has been fetched.
        Leg::Decode(_) if in_stream => {
            let (state, mut of_start) = (Arc::clone(state), ask.clone());
            let start = Box::pin(async move { begin(&state, &mut of_start, rank, arrived).await });
            EventStream::starting(Answer::new(ask, head), start).response()
        }
        Leg::Whole | Leg::Decode(_) => {
            let begun = begin(state, &mut ask, rank, arrived).await?;
            match ask.stream {
                true => EventStream::running(Answer::new(ask, head), begun).response(),
                false => whole(Answer::new(ask, head), begun).await?,
            }
        }
    };
    if let (false, Ok(value)) = (ignored.is_empty(), HeaderValue::from_str(&ignored)) {
        response.headers_mut().insert("x-sim-ignored", value);
    }
    Ok(response)
}

/// The rank a client asks for.
fn chosen_rank(state: &State, headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    let Some(value) = headers.get("x-data-parallel-rank") else { return Ok(None) };
    let ranks = state.ranks.len();
    let Some(rank) = value.to_str().ok().and_then(|text| text.trim().parse::<i64>().ok()) else {
        return Err(Refusal::bad("X-data-parallel-rank must be an integer."));
    };
    match usize::try_from(rank) {
        Ok(rank) if rank < ranks => Ok(Some(rank)),
        _ => Err(Refusal::bad(format!("data_parallel_rank {rank} is out of range [0, {ranks})."))),
    }
}

/// The client's own id, or one of 16 hexadecimal digits.
fn request_id(state: &State, headers: &HeaderMap) -> String {
    let own = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    match own.filter(|id| !id.is_empty()) {
        Some(id) => id.to_owned(),
        None => format!("{:016x}", state.random()),
    }
}

/// Unfinished sequences of one client's request; they are aborted when it is dropped.
#[derive(Debug)]
struct Ticket {
    state: Arc<State>,
    /// By choice: which rank has it, and under which number.
    open: Vec<Option<(usize, RequestId)>>,
    /// What was fetched for it is not its prompt.
    garbled: bool,
}

impl Ticket {
    /// The token that the client gets: another one where the prompt is not what was fetched.
    fn told(&self, token: u32) -> u32 {
        token ^ u32::from(self.garbled)
    }

    fn ended(&mut self, choice: usize) {
        if let Some(open) = self.open.get_mut(choice) {
            *open = None;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        for (rank, id) in self.open.iter().flatten() {
            if let Some(rank) = self.state.ranks.get(*rank) {
                rank.abort(*id);
            }
        }
    }
}

/// Unfinished sequences, and what comes of them.
type Begun = (Ticket, mpsc::UnboundedReceiver<Generated>);

/// Hands a request to the engine, after its prompt has been fetched if it is somewhere else.
async fn begin(
    state: &Arc<State>,
    ask: &mut Ask,
    rank: Option<usize>,
    arrived: Instant,
) -> Result<Begun, Refusal> {
    let Leg::Decode(leg) = &ask.leg else { return submit(state, ask, rank, arrived, false) };
    let rank = rank.unwrap_or_else(|| state.least_loaded(|_| 0));
    let engine = state.ranks.get(rank).ok_or_else(engine_dead)?;
    let have = engine.resident(request(ask, 0, state.next_id())).await.unwrap_or(0);
    let fetched = fetch(state, leg, ask.prompt(0), have).await?;
    if fetched == Fetched::Nothing {
        ask.leg = Leg::Whole;
    }
    let (mut ticket, tokens) =
        submit(state, ask, Some(rank), arrived, fetched != Fetched::Nothing)?;
    ticket.garbled = fetched == Fetched::Garbage;
    Ok((ticket, tokens))
}

/// The engine's request for one choice.
fn request(ask: &Ask, choice: usize, id: RequestId) -> Request {
    let max_tokens = ask.max_tokens.get(choice / ask.n).copied().unwrap_or(1);
    Request {
        ignore_eos: ask.ignore_eos,
        lora: ask.lora.clone(),
        cache_salt: ask.cache_salt.clone(),
        session_id: ask.session_id.clone(),
        hold: matches!(ask.leg, Leg::Prefill(_)),
        ..Request::new(id, ask.prompt(choice).to_vec(), max_tokens)
    }
}

/// Hands every sequence to its rank; those of one rank arrive there together.
fn submit(
    state: &Arc<State>,
    ask: &Ask,
    rank: Option<usize>,
    arrived: Instant,
    remote_prefill: bool,
) -> Result<Begun, Refusal> {
    let (sink, generated) = mpsc::unbounded_channel();
    let adapter: Option<Arc<str>> = ask.lora.as_ref().map(|lora| lora.name.as_str().into());
    let mut by_rank: Vec<Vec<Submission>> = state.ranks.iter().map(|_| Vec::new()).collect();
    let mut open = Vec::with_capacity(ask.choices());
    for choice in 0..ask.choices() {
        let id = state.next_id();
        let request = Request { remote_prefill, ..request(ask, choice, id) };
        let chosen = rank
            .unwrap_or_else(|| state.least_loaded(|rank| by_rank.get(rank).map_or(0, Vec::len)));
        open.push(Some((chosen, id)));
        if let Some(submissions) = by_rank.get_mut(chosen) {
            let (sink, adapter, n) = (sink.clone(), adapter.clone(), ask.n);
            submissions.push(Submission { request, choice, sink, adapter, n, arrived });
        }
    }
    // Where one rank has no room, what the others got is aborted with the ticket.
    let ticket = Ticket { state: Arc::clone(state), open, garbled: false };
    for (rank, submissions) in state.ranks.iter().zip(by_rank) {
        if !submissions.is_empty() {
            rank.submit(submissions).map_err(|_| Refusal::busy())?;
        }
    }
    Ok((ticket, generated))
}

/// Collects an answer that is not streamed.
async fn whole(
    mut answer: Answer,
    (mut ticket, mut generated): Begun,
) -> Result<Response<Payload>, Refusal> {
    while !answer.is_finished() {
        match generated.recv().await {
            Some(Generated::Token { choice, token, finished, cached_tokens, .. }) => {
                let token = ticket.told(token);
                answer.token(choice, token, finished, cached_tokens, None);
                if finished.is_some() {
                    ticket.ended(choice);
                }
            }
            Some(Generated::Refused(error)) => return Err(Refusal::bad(error.to_string())),
            None => return Err(engine_dead()),
        }
    }
    Ok(json_response(StatusCode::OK, &answer.whole()).map(Payload::full))
}

fn engine_dead() -> Refusal {
    let message = "EngineCore encountered an issue.";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
}
