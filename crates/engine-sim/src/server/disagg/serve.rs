//! The side that has computed the prompt: it hands it over.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::params::Source;
use super::rooms::{Phase, Ready, Side};
use super::wire::Pull;
use crate::server::generate::ask::object;
use crate::server::refusal::{Refusal, json_response};
use crate::server::state::State;

/// Answers `POST /sim/kv/pull`: 200 when the transfer is over, 404 if there is no such prompt,
/// 409 if it is another one or the room has been used, 504 if the partner did not come, 500 if the
/// transfer failed.
pub(in crate::server) async fn serve(
    state: &State,
    body: &[u8],
) -> Result<Response<Full<Bytes>>, Refusal> {
    let body = object(body)?;
    let Some(pull) = Pull::read(&body) else {
        return Err(Refusal::bad("This is no transfer."));
    };
    let answer = match &pull.source {
        Source::Lease { name, engine } => {
            match lease(state, &pull, name, engine.as_deref()).await? {
                Some(ready) => moved(ready),
                // Nobody asks: it reads the blocks, whatever is in them now.
                None if state.faults.gone_is_read() => json!({"garbage": true}),
                None => return Err(no(StatusCode::NOT_FOUND, "there is no such lease")),
            }
        }
        Source::Room(number) => moved(room(state, &pull, *number).await?),
    };
    Ok(json_response(StatusCode::OK, &answer))
}

fn moved(ready: Ready) -> Value {
    json!({"tokens": ready.tokens, "first_token": ready.first})
}

/// `None` if it is gone.
async fn lease(
    state: &State,
    pull: &Pull,
    name: &str,
    engine: Option<&str>,
) -> Result<Option<Ready>, Refusal> {
    if engine.is_some_and(|engine| engine != *state.disagg.engine_id.lock()) {
        return Err(no(StatusCode::NOT_FOUND, "that is another engine"));
    }
    let Some(reading) = state.disagg.leases.read(name) else { return Ok(None) };
    let ready = reading.ready;
    same_prompt(pull, ready)?;
    sleep(pull.time(ready.tokens)).await;
    if pull.fails {
        return Err(no(StatusCode::INTERNAL_SERVER_ERROR, "it was to fail"));
    }
    Ok(reading.finish().then_some(ready))
}

async fn room(state: &State, pull: &Pull, number: u64) -> Result<Ready, Refusal> {
    let used = |_| no(StatusCode::CONFLICT, "the room has been used");
    let seat = state.disagg.rooms.enter(number, Side::Decode).map_err(used)?;
    let computed = seat.until(|phase| *phase != Phase::Open);
    let ready = match timeout(state.config.pd.rendezvous, computed).await {
        Ok(Phase::Ready(ready)) => ready,
        Ok(_) => return Err(no(StatusCode::NOT_FOUND, "the prefill leg has left")),
        Err(_) => return Err(no(StatusCode::GATEWAY_TIMEOUT, "the prefill leg did not come")),
    };
    same_prompt(pull, ready)?;
    seat.tell(Phase::Moving);
    let broken = seat.until(|phase| *phase == Phase::Broken);
    if timeout(pull.time(ready.tokens), broken).await.is_ok() {
        return Err(no(StatusCode::NOT_FOUND, "the prefill leg has left"));
    }
    if pull.fails {
        return Err(no(StatusCode::INTERNAL_SERVER_ERROR, "it was to fail"));
    }
    seat.tell(Phase::Done);
    Ok(ready)
}

fn same_prompt(pull: &Pull, ready: Ready) -> Result<(), Refusal> {
    if pull.prompt == ready.prompt {
        return Ok(());
    }
    Err(no(StatusCode::CONFLICT, "the prompt is another one"))
}

fn no(status: StatusCode, why: &str) -> Refusal {
    Refusal::new(status, "TransferError", why)
}
