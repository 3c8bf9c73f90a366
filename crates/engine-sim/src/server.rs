//! A real server around the engine model: HTTP as vLLM 0.32 answers it, KV events over ZeroMQ, in
//! real time.

mod config;

use std::sync::Arc;

use crate::EngineStats;

pub use self::config::{SimServerConfig, SimServerError};

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct SimServer {
    config: Arc<SimServerConfig>,
}

impl SimServer {
    /// Binds all sockets and starts.
    ///
    /// # Errors
    /// What of the configuration cannot be used, or which socket cannot be bound.
    pub async fn start(config: SimServerConfig) -> Result<Self, SimServerError> {
        Ok(Self { config: Arc::new(config) })
    }

    /// `http://host:port`, without a final slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.config.listen)
    }

    /// Where rank 0 publishes events, to connect to.
    #[must_use]
    pub fn events_endpoint(&self) -> Option<String> {
        None
    }

    /// Where rank 0 answers replay requests, to connect to.
    #[must_use]
    pub fn replay_endpoint(&self) -> Option<String> {
        None
    }

    /// Counters and gauges, of all ranks together.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        EngineStats::default()
    }

    /// Starts a new life on the same ports, as a restarted process does.
    pub async fn restart(&self) {}

    /// Stops everything; when it returns, nothing is open any more.
    pub async fn stop(self) {}
}
