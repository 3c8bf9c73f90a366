//! How long an engine may take for each phase of a request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds::DAY_MS;

/// How long the phases of a request may take at an engine. Each has its own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutsConfig {
    /// Until there is a connection, waiting for a free one included. Default 5000.
    pub connect_ms: u64,
    /// From there until the first data of the answer. Default 600000: long prompts take long, and
    /// wait behind others.
    pub first_data_ms: u64,
    /// Between two pieces of an answer. Default 120000.
    pub idle_ms: u64,
    /// All of it, from the request's head to the answer's last byte. Default 3600000.
    pub request_ms: u64,
}

/// What a pool has otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolTimeouts {
    /// See [`TimeoutsConfig::connect_ms`].
    pub connect_ms: Option<u64>,
    /// See [`TimeoutsConfig::first_data_ms`].
    pub first_data_ms: Option<u64>,
    /// See [`TimeoutsConfig::idle_ms`].
    pub idle_ms: Option<u64>,
    /// See [`TimeoutsConfig::request_ms`].
    pub request_ms: Option<u64>,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self { connect_ms: 5_000, first_data_ms: 600_000, idle_ms: 120_000, request_ms: 3_600_000 }
    }
}

impl TimeoutsConfig {
    /// These, and what a pool has otherwise.
    #[must_use]
    pub fn with(self, pool: &PoolTimeouts) -> Self {
        Self {
            connect_ms: pool.connect_ms.unwrap_or(self.connect_ms),
            first_data_ms: pool.first_data_ms.unwrap_or(self.first_data_ms),
            idle_ms: pool.idle_ms.unwrap_or(self.idle_ms),
            request_ms: pool.request_ms.unwrap_or(self.request_ms),
        }
    }

    /// Until there is a connection.
    #[must_use]
    pub fn connect(&self) -> Duration {
        Duration::from_millis(self.connect_ms)
    }

    /// Until the first data of the answer.
    #[must_use]
    pub fn first_data(&self) -> Duration {
        Duration::from_millis(self.first_data_ms)
    }

    /// Between two pieces of the answer.
    #[must_use]
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// The whole request.
    #[must_use]
    pub fn request(&self) -> Duration {
        Duration::from_millis(self.request_ms)
    }

    /// Whether each can be waited for; the key that cannot.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, value) in [
            ("connect_ms", self.connect_ms),
            ("first_data_ms", self.first_data_ms),
            ("idle_ms", self.idle_ms),
            ("request_ms", self.request_ms),
        ] {
            if !(1..=DAY_MS).contains(&value) {
                return Err((key, format!("must be from 1 to {DAY_MS} (a day)")));
            }
        }
        Ok(())
    }
}
