//! Pools and endpoints at run time.
//!
//! A [`Fleet`] holds the [`Pool`]s of a gateway and the [`Endpoint`]s behind them, and keeps them
//! current in the background: it asks every engine what it is, reads its metrics, follows its
//! events into the inventory, and loads each model's tokenizer. On the request path it does no
//! network I/O: it gathers [`Evidence`] for a prompt, lets the pool's policy choose, and commits
//! the choice as a [`Reservation`] in the same step.
//!
//! Endpoints are keyed by address and data-parallel rank, engines by address: two pools on one
//! engine share its health, load, rates and inventory.
//!
//! This crate knows no client request, no HTTP listener and no configuration file. A missing
//! signal (no metrics, no events, no tokenizer) never makes an endpoint or a request fail; it has
//! a named state and costs only routing quality.
//!
//! Words used here:
//!
//! - *seat*: a pool's place in the fleet; a reload puts another pool there.
//! - *roster*: what all fleets of a gateway share, one after the other, and the engines that are leaving.
//! - *supervised*: an engine with the task that keeps it current.
//! - *ranks*: the endpoints of one engine, one or one for each data-parallel rank.
//! - *retired*: an endpoint that is none any more while its engine stays and requests are still there.
//! - *asked*: what is known of a request besides its tokens.
//! - *trial*: a request that may try an engine whose breaker is half-open.
//! - *bell*: there may be room again, so that whoever waits at a door tries ([`Door`]).
//! - *lease*: blocks that a prefill engine keeps until the decode leg has fetched them ([`Lease`]).
//! - *pair*: the prefill and the decode endpoint of one request; each does one *leg* of it.

mod admission;
mod advice;
mod apply;
mod asked;
mod breaker;
mod by_name;
mod card;
mod changes;
mod credit;
mod decision_log;
mod endpoint;
mod engine;
mod engine_client;
mod events;
mod evidence;
mod exclusion;
mod exposition;
mod guess;
mod hand_over;
mod hash_contract;
mod health;
mod identity;
mod kind;
mod lease;
mod load;
mod monitor;
mod parity;
pub mod pending;
mod picture;
mod poll;
mod pool;
mod rank_stream;
mod ranks;
mod refill;
mod registry;
mod reopening;
mod retired;
mod retry_budget;
mod roster;
mod samples;
mod seat;
mod selecting;
mod signals;
mod spec;
mod split;
mod stage;
mod stream_applier;
mod supervised;
mod task;
mod template_state;
#[cfg(test)]
mod test_events;
mod token_headers;
mod token_oracle;
mod tokenizer;
mod transfer;
mod trust_changes;
mod view;

pub use self::admission::{
    AdmissionSpec, Asker, Door, EndpointLimits, Limits as AdmissionLimits, Most, NoRoom, QueueSpec,
    Turn, TurnedAway, Unread,
};
pub use self::advice::{Advice, AdvisedState};
pub use self::apply::Applier;
pub use self::asked::Asked;
pub use self::breaker::BreakerSettings;
pub use self::card::{Adapter, EngineCard, EventSource, ServedModel};
pub use self::changes::Changes;
pub use self::decision_log::{DecisionLog, DecisionLogError, DecisionLogSpec};
pub use self::endpoint::Endpoint;
pub use self::engine_client::{EngineClient, ProbeError};
pub use self::evidence::{Evidence, PromptTokens};
pub use self::exclusion::Exclusion;
pub use self::guess::MAX_TEXT_BYTES;
pub use self::hand_over::HandOverFault;
pub use self::hash_contract::{HashContract, HashState};
pub use self::identity::{BlockIdentity, EngineHashing, HashAlgorithm};
pub use self::kind::EngineKind;
pub use self::lease::Lease;
pub use self::load::Reservation;
pub use self::parity::hits::HitExample;
pub use self::parity::report::Report;
pub use self::parity::tokens::{TokenExample, TokenParity, TokenState};
pub use self::parity::{Prediction, Unjudged};
pub use self::picture::Picture;
pub use self::pool::{Chosen, Decision, Explained, Pool, PrefillSide, Shadow};
pub use self::registry::{Fleet, FleetError, Resolved};
pub use self::retry_budget::{RetryBudget, RetryLimits};
pub use self::samples::{Sample, samples};
pub use self::spec::{
    AdminState, EndpointSpec, EventSpec, FleetSpec, HealthSpec, ParityMode, Part, PoolSpec,
    RankAddressingKind, Timeouts, TokenSpec,
};
pub use self::split::{Protocol, SplitSettings, SplitState};
pub use self::stage::Stage;
pub use self::token_headers::TokenHeaders;
pub use self::token_oracle::{
    Parity, ParityPart, ProbeCase, TokenOracle, probe_chats, probe_texts,
};
pub use self::tokenizer::{ModelPrompts, PromptState};
pub use self::view::{EndpointView, InventoryView, StreamView};
pub use kvasir_balance::{PairPlan, PairSelect, Role};
pub use kvasir_upstream::{Limits as ConnectionLimits, Origin, Tls, TlsError, TlsFiles, bearer};
