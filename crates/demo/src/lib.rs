//! The demonstration: what a routing policy is worth on one workload.
//!
//! [`Workload`] makes the conversations of many users from a seed, [`play`] has them through any
//! OpenAI-compatible address and measures every answer, [`PolicyReport`] boils the measurements
//! down and [`table`] and [`json`] show them. [`engine_config`] is the engine the workload is
//! sized for, and [`StagedModel`] the tokenizer of the model it claims to serve.
//!
//! Nothing here knows a gateway: it is an address, and two headers in its answers
//! (`x-kvasir-endpoint`, `x-kvasir-reason`).

mod client;
mod engines;
mod model;
mod player;
mod report;
mod reset;
mod rng;
mod rounds;
mod table;
mod text;
mod workload;

pub use self::client::{Answer, ChatError, http_client};
pub use self::engines::engine_config;
pub use self::model::StagedModel;
pub use self::player::{Played, Progress, Target, play};
pub use self::report::{Percentiles, PolicyReport, json};
pub use self::reset::reset_prefix_cache;
pub use self::rounds::{Rounds, rounds_json, rounds_table};
pub use self::table::{table, verdict};
pub use self::workload::{Shape, Workload};
