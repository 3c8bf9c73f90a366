//! The configuration as a whole: its keys, their defaults, and how it is read.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admin::AdminConfig;
use crate::bounds::Wrong;
use crate::controller::ControllerConfig;
use crate::decision_log::DecisionLogConfig;
use crate::error::{ConfigError, bounded};
use crate::inventory::InventoryConfig;
use crate::listen_address::ListenAddress;
use crate::listener::ListenerConfig;
use crate::loxilb::LoxilbConfig;
use crate::pool::PoolConfig;
use crate::resilience::{HealthConfig, RetriesConfig};
use crate::secret::{Secret, SecretSource, Sources};
use crate::shown::shown;
use crate::timeouts::TimeoutsConfig;
use crate::tracing::TracingConfig;
use crate::yaml;

/// Everything a gateway is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect. Default `127.0.0.1:8080`.
    pub listen: ListenAddress,
    /// How they are served.
    pub listener: ListenerConfig,
    /// The API keys that clients must show, one of three. Everybody is let in by default.
    pub api_keys: Option<Vec<Secret>>,
    /// The environment variable that holds them.
    pub api_keys_env: Option<String>,
    /// The file that holds them, one a line; read again when it changes.
    pub api_keys_file: Option<PathBuf>,
    /// One entry per model.
    pub pools: Vec<PoolConfig>,
    /// Whether answers carry `x-kvasir-endpoint` and `x-kvasir-reason`, in pools that do not say
    /// otherwise. Off by default: what is
    /// cached where is a tenant's secret.
    pub decision_headers: bool,
    /// The token that turns them on for one request, which shows it in `x-kvasir-debug`; one of three.
    pub decision_headers_token: Option<Secret>,
    /// The environment variable that holds it.
    pub decision_headers_token_env: Option<String>,
    /// The file that holds it.
    pub decision_headers_token_file: Option<PathBuf>,
    /// The largest request body, in bytes. Default 64 MiB.
    pub max_body_bytes: usize,
    /// The most bytes of prompt text that are tokenised of one request; of longer prompts the head.
    /// Default 4 MiB.
    pub max_prompt_bytes: usize,
    /// Paths forwarded, by load, besides the known API paths: exact, or a prefix ending in `*`.
    /// Nothing by default, since engines expose administrative paths.
    pub forward_paths: Vec<String>,
    /// How long engines may take for each phase of a request.
    pub timeouts: TimeoutsConfig,
    /// How often each engine's `/metrics` is read, in milliseconds. Default 1000.
    pub scrape_interval_ms: u64,
    /// How long streams may go on after a stop was asked for, in seconds. Default 30.
    pub shutdown_grace_s: u64,
    /// How long, before that, connections are still accepted while `/readyz` says 503, in seconds: for
    /// load balancers that look there. Default 0.
    pub shutdown_delay_s: u64,
    /// What the picture of the engines' caches may take.
    pub inventory: InventoryConfig,
    /// Where decisions are logged. Not at all by default.
    pub decision_log: Option<DecisionLogConfig>,
    /// When a request is sent to another engine.
    pub retries: RetriesConfig,
    /// When an engine is left alone.
    pub health: HealthConfig,
    /// Where spans of requests are sent to. None are made by default.
    pub tracing: Option<TracingConfig>,
    /// The control plane's own port. None by default.
    pub admin: Option<AdminConfig>,
    /// The port of `LoxiLB`'s API. None by default.
    pub loxilb: Option<LoxilbConfig>,
    /// The weight controller that is followed. None by default.
    pub controller: Option<ControllerConfig>,
    /// Logging.
    pub log: LogConfig,
}

/// Logging.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `text` (default) or `json`.
    pub format: LogFormat,
    /// A filter such as `info` or `kvasir_fleet=debug`; the environment's `RUST_LOG` wins.
    pub level: Option<String>,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)).into(),
            listener: ListenerConfig::default(),
            api_keys: None,
            api_keys_env: None,
            api_keys_file: None,
            pools: Vec::new(),
            decision_headers: false,
            decision_headers_token: None,
            decision_headers_token_env: None,
            decision_headers_token_file: None,
            max_body_bytes: 64 << 20,
            max_prompt_bytes: 4 << 20,
            forward_paths: Vec::new(),
            timeouts: TimeoutsConfig::default(),
            scrape_interval_ms: 1_000,
            shutdown_grace_s: 30,
            shutdown_delay_s: 0,
            inventory: InventoryConfig::default(),
            decision_log: None,
            retries: RetriesConfig::default(),
            health: HealthConfig::default(),
            tracing: None,
            admin: None,
            loxilb: None,
            controller: None,
            log: LogConfig::default(),
        }
    }
}

impl Config {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// When the file cannot be read, or as [`Config::parse`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with_text(path).map(|(config, _)| config)
    }

    /// [`load`](Self::load), and the file's text for [`differences`](crate::differences).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with_text(path: &Path) -> Result<(Self, String), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let config = Self::parse(&path.display().to_string(), &text)?;
        Ok((config, text))
    }

    /// Parses a text; `file` is the name used in errors.
    ///
    /// # Errors
    /// When the text is not YAML, a key is unknown, or a value is not allowed.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_saphyr::from_str(text).map_err(|e| yaml::wrong(file, text, &e))?;
        config.check().map_err(|(key, why)| ConfigError::of_key(file, text, key, why))?;
        Ok(config)
    }

    /// Whether what it says fits together, for one that was changed since it was parsed; `source` is
    /// where the values come from, for errors.
    ///
    /// # Errors
    /// The first key whose value is not allowed.
    pub fn verify(&self, source: &str) -> Result<(), ConfigError> {
        self.check().map_err(|(key, message)| ConfigError::Meaning {
            file: source.to_owned(),
            place: None,
            key,
            message: bounded(message),
        })
    }

    /// All of it as YAML, with the defaults and without the secrets: what is read back from it is the
    /// same but for them.
    ///
    /// # Errors
    /// When a value cannot be written, which none of them is known to be.
    pub fn to_yaml(&self) -> Result<String, String> {
        let tree = shown(self).map_err(|error| error.to_string())?;
        serde_saphyr::to_string(&tree).map_err(|error| error.to_string())
    }

    /// Where the token is that turns decision headers on for one request.
    #[must_use]
    pub fn decision_headers_token_source(&self) -> Option<SecretSource<'_>> {
        self.decision_headers_token_sources().source()
    }

    fn decision_headers_token_sources(&self) -> Sources<'_, Secret> {
        Sources {
            key: "decision_headers_token",
            given: self.decision_headers_token.as_ref(),
            env: self.decision_headers_token_env.as_deref(),
            file: self.decision_headers_token_file.as_deref(),
        }
    }

    pub(crate) fn check_decision_headers_token(&self) -> Result<(), Wrong> {
        self.decision_headers_token_sources().check_token()
    }

    /// How often each engine's `/metrics` is read.
    #[must_use]
    pub fn scrape_interval(&self) -> Duration {
        Duration::from_millis(self.scrape_interval_ms)
    }

    /// How long streams may go on after a stop was asked for.
    #[must_use]
    pub fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_s)
    }

    /// How long connections are accepted after a stop was asked for.
    #[must_use]
    pub fn shutdown_delay(&self) -> Duration {
        Duration::from_secs(self.shutdown_delay_s)
    }
}
