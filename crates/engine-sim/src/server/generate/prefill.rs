//! Prefill legs: the prompt is computed, and stays behind for whoever decodes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use http::{Response, StatusCode};
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{Answer, Head};
use super::ask::Ask;
use super::stream::EventStream;
use super::{engine_dead, submit};
use crate::FinishReason;
use crate::server::body::Payload;
use crate::server::disagg::legs::{Computed, leave, seat};
use crate::server::disagg::params::Prefill;
use crate::server::disagg::rooms::{Phase, Seat};
use crate::server::rank::Generated;
use crate::server::refusal::{Refusal, json_response};
use crate::server::state::State;

/// Serves one; also when streamed, its answer comes whole at the end.
pub(super) async fn run(
    state: &Arc<State>,
    leg: Prefill,
    ask: Ask,
    head: Head,
    rank: Option<usize>,
    arrived: Instant,
) -> Result<Response<Payload>, Refusal> {
    let seat = seat(state, leg)?;
    let prompt = ask.prompt(0).to_vec();
    let stream = ask.stream;
    let (mut ticket, mut generated) = submit(state, &ask, rank, arrived, false)?;
    let mut answer = Answer::new(ask, head);
    let mut events = VecDeque::new();
    let (mut first, mut left) = (None, None);
    while !answer.is_finished() {
        match next(&mut generated, seat.as_ref()).await? {
            Some(Generated::Token { choice, token, finished, cached_tokens, hold }) => {
                answer.token(choice, token, finished, cached_tokens, stream.then_some(&mut events));
                let first = *first.get_or_insert(token);
                if finished.is_some() {
                    ticket.ended(choice);
                }
                left = left.or(hold.map(|hold| (hold, first, cached_tokens, finished)));
            }
            Some(Generated::Refused(error)) => return Err(Refusal::bad(error.to_string())),
            None => return Err(engine_dead()),
        }
    }
    if let Some((hold, first, cached_tokens, finished)) = left {
        // TensorRT-LLM's answer is the client's when there is nothing to go on with.
        let over = matches!(leg, Prefill::Context(_)) && finished == Some(FinishReason::Stop);
        if !over {
            let id = answer.internal_id();
            let done = Computed { hold, prompt: &prompt, first, cached_tokens, id };
            answer.leaves(leave(state, leg, seat, done).await?);
        }
    }
    if stream {
        return Ok(EventStream::of(answer, events, ticket).response());
    }
    Ok(json_response(StatusCode::OK, &answer.whole()).map(Payload::full))
}

/// The next token, unless the partner leaves first.
async fn next(
    generated: &mut UnboundedReceiver<Generated>,
    seat: Option<&Seat>,
) -> Result<Option<Generated>, Refusal> {
    let Some(seat) = seat else { return Ok(generated.recv().await) };
    tokio::select! {
        next = generated.recv() => Ok(next),
        _ = seat.until(|phase| *phase == Phase::Broken) => Err(Refusal::internal()),
    }
}
