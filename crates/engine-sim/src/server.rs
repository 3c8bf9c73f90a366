//! A real server around the engine model: HTTP as vLLM answers it, KV events over ZeroMQ, in real
//! time.
//!
//! ```
//! use kvasir_engine_sim::server::{SimServer, SimServerConfig};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = SimServer::start(SimServerConfig { ranks: 2, ..Default::default() }).await?;
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! assert!(server.events_endpoint().is_some());
//! server.restart().await; // same ports, nothing cached
//! server.stop().await;
//! # Ok(()) }
//! ```
//!
//! # What is served
//!
//! `/v1/completions` and `/v1/chat/completions` (streamed or not; `n`, several prompts, usage,
//! `return_token_ids`, `cache_salt`, adapters as models, `X-data-parallel-rank`), `/tokenize`,
//! `/detokenize`, `/v1/models`, `/health`, `/ping`, `/version`, `/load`, `/kv_event_sources`,
//! `/reset_prefix_cache` and `/metrics`. A client that disconnects aborts its request.
//!
//! Answers are made up, and honest about it: text is words that only tell token ids apart (see
//! [`SimServerConfig::tokens`]), `token_strs` is always null, fields that would shape the text
//! (`stop`, `tools`, `response_format` ..) are accepted and named in the answer's `x-sim-ignored`
//! header, and `echo`, `logprobs`, `suffix` and the like are refused with 400. Without
//! [`SimServerConfig::root`] only completions of token ids are served.
//!
//! The publisher always binds; vLLM connects where its endpoint is no wildcard.
//!
//! # Prefill/decode disaggregation
//!
//! With a role ([`PdConfig`]) a server is one side of a pair, in the protocol of its
//! [`EngineKind`]. Whoever decodes fetches the prompt over `POST /sim/kv/pull` of the other
//! server's own HTTP port, in place of the engines' side channels, which takes
//! [`transfer_time`](PdConfig::transfer_time) and, at
//! [`transfer_rate`](PdConfig::transfer_rate), whatever it does not hold. The prompt then counts
//! as computed externally, is stored with events like any other, and `cached_tokens` does not
//! tell of it. Answers are those of one server that does all the work.
//!
//! * vLLM (`NixlConnector`; fields, block numbers, usage, counters and events are those recorded
//!   for 0.32.0): with `kv_transfer_params.do_remote_decode` the prompt's blocks stay in use under
//!   a [`lease`](PdConfig::lease) and the answer says in `kv_transfer_params` how to get them; a
//!   request with these fetches them. A fetch that fails (no such lease, another engine or life,
//!   nobody there) is an error 500, and in a stream an error event and `[DONE]` after the head, as
//!   vLLM's source has it; or the prompt is computed here ([`TransferFailure`]).
//! * SGLang (from its documentation, not recorded): the legs with one `bootstrap_room` arrive at
//!   two servers at once; `bootstrap_port` is the prefill server's HTTP port. The prefill leg makes
//!   one token and is answered when its prompt has been fetched. A room is used once; one leg that
//!   ends takes the other with it; a request without a room is refused with 400.
//! * TensorRT-LLM (likewise): `disaggregated_params.request_type` `context_only` gives a token,
//!   `finish_reason` `not_finished` (or the true one if the answer ends there) and
//!   `choices[0].disaggregated_params`, `generation_only` with these the whole answer.
//!
//! Stricter than the engines, so that tests see it: parameters that are incomplete, and a prompt
//! other than the one they belong to, are refused with 400. `/metrics` has the gauges `sim_leases`,
//! `sim_rooms` and `sim_pulls` (prompts kept, rooms with somebody in them, fetches under way) and
//! the counters `sim_leases_expired_total`, `sim_transfers_failed_total` and
//! `sim_tokens_pulled_total`; `/sim/state` has them as `pd`.
//!
//! # Faults
//!
//! With [`SimServerConfig::faults`] there are three more paths, which faults never touch:
//!
//! * `POST /sim/faults` changes what its object names, and answers with all settings (as `GET`
//!   does). They outlive restarts.
//!   * `"events"`: `ok`; `drop`, batches are numbered and kept for replay but not sent;
//!     `delay_ms:N`, sent and kept so much later, in order; `duplicate`, sent twice.
//!   * `"http"`: `ok`; `hang`, no answer ever; `error:503`; `slow:MS`, answered so much later;
//!     `reset_mid_body`, the connection is reset after the first part of the answer; `garbage`,
//!     something else than HTTP comes in place of the answer, and the connection ends; `reset`,
//!     the connection is reset in place of an answer.
//!   * `"path"`: the paths `http` applies to begin with this; empty for all.
//!   * `"leg"`: `prefill` or `decode`, `http` applies to such legs only; empty for all requests.
//!   * `"transfer"`, of prompts this server fetches: `ok`; `fail`, they do not arrive, after the
//!     time it would have taken, and their lease stays; `slow:MS`, they arrive so much later.
//!   * `"lease"`: `ok`; `expired`, leases are over as soon as they are granted.
//!   * `"once"`: each of them happens once and is `ok` again.
//!   * `"keep_alive_ms"`: connections end, unannounced, after so long without a request; null, as
//!     at the start, for never.
//! * `POST /sim/restart`, with `{"down_ms": N}` if need be, answers 202 and then starts a new life:
//!   connections break, requests are lost, connecting is refused for so long. The event sockets
//!   are open again at once.
//! * `GET /sim/state`: counters and gauges of each rank, the hashes of its cached blocks (their
//!   last 8 bytes) as decimal strings, one for every block that holds it, `events_lost` (batches
//!   for which the publisher's queue had no room), and the settings of faults.

mod address;
mod body;
mod config;
mod disagg;
mod faults;
mod generate;
mod http;
mod idle;
mod metrics;
mod publisher;
mod rank;
mod refusal;
mod routes;
mod start;
mod state;
mod text;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::address::Base;
use self::state::{Order, State};
use crate::EngineStats;

pub use self::config::{SimServerConfig, SimServerError};
pub use self::disagg::config::{EngineKind, PdConfig, PdRole, TransferFailure};

/// A running server. Dropping it stops it, without waiting.
#[derive(Debug)]
pub struct SimServer {
    state: Arc<State>,
    orders: mpsc::Sender<Order>,
}

impl SimServer {
    /// Binds all sockets and starts, on the current runtime and threads of its own.
    ///
    /// # Errors
    /// What of the configuration cannot be used, or which socket cannot be bound.
    pub async fn start(config: SimServerConfig) -> Result<Self, SimServerError> {
        let (orders, receiver) = mpsc::channel(16);
        let (state, listener) = start::start(config, orders.downgrade()).await?;
        tokio::spawn(start::supervise(Arc::clone(&state), listener, receiver));
        Ok(Self { state, orders })
    }

    /// `http://host:port`, to connect to from this machine, without a final slash.
    #[must_use]
    pub fn url(&self) -> String {
        let mut address = self.state.address;
        if address.ip().is_unspecified() {
            let local = if address.is_ipv4() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                Ipv6Addr::LOCALHOST.into()
            };
            address.set_ip(local);
        }
        format!("http://{address}")
    }

    /// Where rank 0 publishes events, to connect to; further ranks use the ports after it.
    #[must_use]
    pub fn events_endpoint(&self) -> Option<String> {
        self.state.events.as_ref().and_then(Base::to_connect)
    }

    /// Where rank 0 answers replay requests, to connect to; further ranks likewise.
    #[must_use]
    pub fn replay_endpoint(&self) -> Option<String> {
        self.state.replay.as_ref().and_then(Base::to_connect)
    }

    /// Counters and gauges of all ranks together, as of the end of their last steps.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.state.stats()
    }

    /// Starts a new life on the same ports, as a restarted process does: connections break,
    /// requests are lost, caches and counters are empty, sequence numbers start at 0, the start
    /// time is a later one. Returns when everything is open again; what could not be opened is
    /// logged and stays closed.
    pub async fn restart(&self) {
        let (done, restarted) = oneshot::channel();
        let order = Order::Restart { down: Duration::ZERO, done };
        if self.orders.send(order).await.is_ok() {
            // An error means that another order came in between.
            let _ = restarted.await;
        }
    }

    /// Stops everything; when it returns, nothing is open any more.
    pub async fn stop(self) {
        let (done, stopped) = oneshot::channel();
        if self.orders.send(Order::Stop(done)).await.is_ok() {
            let _ = stopped.await;
        }
    }
}
