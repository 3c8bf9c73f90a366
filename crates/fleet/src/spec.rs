//! What a fleet is built from.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;
use kvasir_balance::PolicyKind;
use kvasir_kv_events::{Address, EndpointError};

/// A whole fleet.
#[derive(Clone, Debug)]
pub struct FleetSpec {
    /// Its pools; model names are unique.
    pub pools: Vec<PoolSpec>,
    /// How often each engine's `/metrics` is read.
    pub scrape_interval: Duration,
    /// How long a connection to an engine may take.
    pub connect_timeout: Duration,
    /// Seeds the policies' tie-breaking.
    pub seed: u64,
}

/// One model and the engines that serve it.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// The model's name in requests.
    pub model: String,
    /// The routing policy.
    pub policy: PolicyKind,
    /// Where tokenizers are staged.
    pub tokenizer_dir: Option<PathBuf>,
    /// The `authorization` header for the engines, in place of the client's.
    pub authorization: Option<HeaderValue>,
    /// The engines.
    pub endpoints: Vec<EndpointSpec>,
}

/// One engine.
#[derive(Clone, Debug)]
pub struct EndpointSpec {
    /// Host and port of its HTTP server.
    pub authority: Authority,
    /// Its event stream, where it is configured; else the engine is asked.
    pub events: Option<EventSpec>,
}

impl EventSpec {
    /// Whether its addresses can be used.
    ///
    /// # Errors
    /// The address that cannot, and why.
    pub fn check(&self) -> Result<(), EndpointError> {
        Address::parse(&self.publisher)?;
        self.replay.as_deref().map(Address::parse).transpose()?;
        Ok(())
    }
}

/// A configured event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// The publisher's address as the engine has it, such as `tcp://*:5557`.
    pub publisher: String,
    /// The replay socket's address, likewise.
    pub replay: Option<String>,
    /// The topic to subscribe to; empty for everything.
    pub topic: String,
    /// Whether the engine connects to us.
    pub bind: bool,
}
