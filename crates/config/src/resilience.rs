//! What is done about engines that fail or are busy: `retries` and `health`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds::within;

/// When a request is sent to another engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetriesConfig {
    /// Engines that may get one request, the first included. Default 3.
    pub attempts: u32,
    /// Retries in percent of the pool's requests of the last ten seconds. Default 20.
    pub budget_percent: u32,
    /// Retries a second allowed besides. Default 10.
    pub budget_min_per_s: u32,
    /// The longest `retry-after` that is waited for, in seconds. Default 2.
    pub max_retry_after_s: u64,
}

/// When an engine is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Requests in a row that must fail. Default 3.
    pub failures: u32,
    /// How long it is left alone at first, in seconds. Default 5.
    pub open_s: u64,
    /// How many requests may try it after that, at one time. Default 1.
    pub half_open_trials: u32,
    /// The path of engines' health pages. Not asked for by default.
    pub probe_path: Option<String>,
    /// How long such a page may take, in milliseconds. Default 2000.
    pub probe_timeout_ms: u64,
}

impl Default for RetriesConfig {
    fn default() -> Self {
        Self { attempts: 3, budget_percent: 20, budget_min_per_s: 10, max_retry_after_s: 2 }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            failures: 3,
            open_s: 5,
            half_open_trials: 1,
            probe_path: None,
            probe_timeout_ms: 2_000,
        }
    }
}

impl RetriesConfig {
    /// The longest `retry-after` that is waited for.
    #[must_use]
    pub fn max_retry_after(&self) -> Duration {
        Duration::from_secs(self.max_retry_after_s)
    }

    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        within("attempts", &self.attempts, &1, &16)?;
        within("budget_percent", &self.budget_percent, &0, &1_000)?;
        within("budget_min_per_s", &self.budget_min_per_s, &0, &100_000)?;
        within("max_retry_after_s", &self.max_retry_after_s, &0, &60)
    }
}

impl HealthConfig {
    /// How long an engine is left alone at first.
    #[must_use]
    pub fn open(&self) -> Duration {
        Duration::from_secs(self.open_s)
    }

    /// How long a health page may take.
    #[must_use]
    pub fn probe_timeout(&self) -> Duration {
        Duration::from_millis(self.probe_timeout_ms)
    }

    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        within("failures", &self.failures, &1, &1_000)?;
        within("open_s", &self.open_s, &1, &3_600)?;
        within("half_open_trials", &self.half_open_trials, &1, &1_000)?;
        within("probe_timeout_ms", &self.probe_timeout_ms, &1, &60_000)?;
        let Some(path) = &self.probe_path else { return Ok(()) };
        let plain = path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
        if plain {
            Ok(())
        } else {
            Err(("probe_path".to_owned(), "must be a path such as `/health`".to_owned()))
        }
    }
}
