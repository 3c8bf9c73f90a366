//! How a prefill leg ends: what it leaves behind, and what its answer says of it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::params::{Prefill, to_opaque};
use super::rooms::{Phase, Ready, Seat, Side};
use crate::server::rank::Hold;
use crate::server::refusal::Refusal;
use crate::server::state::State;
use crate::tokens::seed_of;

/// What a prefill leg's answer says besides the usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) enum Left {
    Nothing,
    /// `kv_transfer_params` of the body.
    Body(Value),
    /// `disaggregated_params` of the first choice.
    Choice(Value),
}

/// A prompt that has been computed for somebody else.
#[derive(Debug)]
pub(in crate::server) struct Computed<'a> {
    pub(in crate::server) hold: Hold,
    pub(in crate::server) prompt: &'a [u32],
    pub(in crate::server) first: u32,
    pub(in crate::server) cached_tokens: usize,
    /// The answer's id, with what vLLM puts behind it for the prompt's number.
    pub(in crate::server) id: String,
}

/// The place of a leg that needs one; taken before anything is computed.
pub(in crate::server) fn seat(state: &State, leg: Prefill) -> Result<Option<Seat>, Refusal> {
    let Prefill::Room(room) = leg else { return Ok(None) };
    let used = |_| Refusal::bad("bootstrap_room: the room has been used.").of("bootstrap_room");
    state.disagg.rooms.enter(room, Side::Prefill).map(Some).map_err(used)
}

/// Leaves the prompt where its partner finds it; SGLang's legs wait until it has been fetched.
pub(in crate::server) async fn leave(
    state: &State,
    leg: Prefill,
    seat: Option<Seat>,
    done: Computed<'_>,
) -> Result<Left, Refusal> {
    let Computed { hold, prompt, first, cached_tokens, id } = done;
    let ready = Ready { tokens: hold.tokens(), prompt: seed_of(prompt), first };
    match leg {
        Prefill::Lease => {
            let name = format!("{id}-{:08x}", state.random() as u32);
            let params = kv_transfer_params(state, &name, &hold, cached_tokens);
            grant(state, name, hold, ready);
            Ok(Left::Body(params))
        }
        Prefill::Context(given) => {
            let context = given.unwrap_or_else(|| state.random() >> 1);
            grant(state, context.to_string(), hold, ready);
            Ok(Left::Choice(json!({"request_type": "context_only", "first_gen_tokens": [first],
                "ctx_request_id": context, "encoded_opaque_state": to_opaque(&reachable(state)
                .to_string()), "draft_tokens": null, "disagg_request_id": given})))
        }
        Prefill::Room(_) => {
            if let Some(seat) = seat {
                seat.tell(Phase::Ready(ready));
                fetched(state, &seat).await?;
            }
            drop(hold);
            Ok(Left::Nothing)
        }
    }
}

fn grant(state: &State, name: String, hold: Hold, ready: Ready) {
    let expired = state.faults.take_lease_expired();
    let time = if expired { Duration::ZERO } else { state.config.pd.lease };
    state.disagg.leases.grant(name, hold, ready, time);
}

/// Field for field as vLLM 0.32.0 gives it.
fn kv_transfer_params(state: &State, name: &str, hold: &Hold, cached_tokens: usize) -> Value {
    let address = reachable(state);
    json!({"do_remote_prefill": true, "do_remote_decode": false,
        "remote_block_ids": [hold.blocks()], "remote_engine_id": *state.disagg.engine_id.lock(),
        "remote_request_id": name, "remote_host": address.ip().to_string(),
        "remote_port": address.port(), "tp_size": 1, "dcp_size": 1, "pp_size": 1,
        "remote_num_tokens": hold.tokens(), "remote_blocks_expiry_time": null,
        "transfer_mode": "pull", "remote_prefill_cached_tokens": cached_tokens})
}

/// Where this server is reached from this machine.
fn reachable(state: &State) -> SocketAddr {
    let mut address = state.address;
    if address.ip().is_unspecified() {
        let local = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(local);
    }
    address
}

/// Waits for the decode leg; one that has come is waited for until it is done or gone.
async fn fetched(state: &State, seat: &Seat) -> Result<(), Refusal> {
    let over = |phase: &Phase| matches!(phase, Phase::Done | Phase::Broken);
    let phase = match timeout(state.config.pd.rendezvous, seat.until(over)).await {
        Ok(phase) => phase,
        Err(_) if seat.phase() == Phase::Moving => seat.until(over).await,
        Err(_) => Phase::Broken,
    };
    if phase == Phase::Done {
        return Ok(());
    }
    state.disagg.failed.fetch_add(1, Ordering::Relaxed);
    Err(Refusal::internal())
}
