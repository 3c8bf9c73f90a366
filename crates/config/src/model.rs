//! The tree itself, its defaults and its checks.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::Authority;
use kvasir_balance::{PolicySpec, SelectionSpec, SessionSource, StickyOptions};
use serde::Deserialize;

use crate::admission::AdmissionConfig;
use crate::connections::{EngineTlsConfig, Most, max_connections, max_idle_connections};
use crate::decision_log::DecisionLogConfig;
use crate::endpoint::{EndpointConfig, RankAddressing};
use crate::error::ConfigError;
use crate::identity::BlockIdentity;
use crate::inventory::InventoryConfig;
use crate::listener::ListenerConfig;
use crate::resilience::{HealthConfig, RetriesConfig};
use crate::secret::Secret;
use crate::timeouts::{PoolTimeouts, TimeoutsConfig};
use crate::tracing::TracingConfig;

/// Why two engines cannot connect to us in the same way.
const ONE_EACH: &str = "engines that share an address need a `topic` each";

/// Below, heads of prompts would say nothing.
const LEAST_PROMPT_BYTES: usize = 1024;

/// Everything a gateway is told.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
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
    /// Whether answers carry `x-kvasir-endpoint` and `x-kvasir-reason`. Off by default: what is
    /// cached where is a tenant's secret.
    pub decision_headers: bool,
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
    /// Logging.
    pub log: LogConfig,
}

/// One model and the engines that serve it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// The model's name in requests, as the engines serve it.
    pub model: String,
    /// The routing policy: its name, or a map of `name` and its options. Default `latency`.
    #[serde(default)]
    pub policy: PolicySpec,
    /// What chooses where the policy has no say. Default `least_load`.
    #[serde(default = "fallback")]
    pub fallback: PolicySpec,
    /// The time to first token above which an endpoint is avoided, in milliseconds.
    #[serde(default)]
    pub slo_ttft_ms: Option<f64>,
    /// Whether conversations stay where they are, and for how long. Not by default.
    #[serde(default)]
    pub sticky: Option<StickyOptions>,
    /// Where a conversation's name is looked for, in this order. Default: two headers, then the
    /// body's `prompt_cache_key`, `user` and `safety_identifier`.
    #[serde(default = "SessionSource::defaults")]
    pub sessions: Vec<SessionSource>,
    /// A policy that chooses beside the pool's, without effect.
    #[serde(default)]
    pub shadow: Option<PolicySpec>,
    /// A directory of staged tokenizers: the model's is in the subdirectory of its name with `/`
    /// written as `__`.
    #[serde(default)]
    pub tokenizer_dir: Option<PathBuf>,
    /// The key sent to the engines as `Authorization: Bearer …`, in place of the client's.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// The environment variable that holds that key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// The file that holds that key.
    #[serde(default)]
    pub api_key_file: Option<PathBuf>,
    /// How requests reach one data-parallel rank of an engine. Default `none`.
    #[serde(default)]
    pub rank_addressing: RankAddressing,
    /// What blocks are known by. Default `tokens`.
    #[serde(default)]
    pub identity: BlockIdentity,
    /// Whether token ids that clients give in `x-kvasir-token-ids` or `x-rolter-vllm-token-ids` are
    /// taken for the prompt's. Off by default: the bodies are not held against them.
    #[serde(default)]
    pub trust_token_headers: bool,
    /// When own tokens are held against the engines' `/tokenize`. Default `sample`.
    #[serde(default)]
    pub token_parity: TokenParity,
    /// TLS to those of its engines whose URL says `https`.
    #[serde(default)]
    pub engine_tls: Option<EngineTlsConfig>,
    /// Whether its engines are spoken to in h2. Off by default.
    #[serde(default)]
    pub http2: bool,
    /// Connections to one engine that are kept unused. Default 256.
    #[serde(default = "max_idle_connections")]
    pub max_idle_connections: usize,
    /// Connections to one engine in all. Default 4096.
    #[serde(default = "max_connections")]
    pub max_connections: usize,
    /// How long its engines may take, where that is not what `timeouts` of all pools says.
    #[serde(default)]
    pub timeouts: PoolTimeouts,
    /// What it takes at once, and who waits. Everything and nobody by default.
    #[serde(default)]
    pub admission: AdmissionConfig,
    /// The engines.
    pub endpoints: Vec<EndpointConfig>,
}

/// When own tokens are held against the engines' `/tokenize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenParity {
    /// Never.
    Off,
    /// Built-in texts and chats, once tokenizer and engine are there.
    Startup,
    /// That, and now and then a request that came by.
    #[default]
    Sample,
}

/// Logging.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `text` (default) or `json`.
    pub format: LogFormat,
    /// A filter such as `info` or `kvasir_fleet=debug`; the environment's `RUST_LOG` wins.
    pub level: Option<String>,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

fn fallback() -> PolicySpec {
    SelectionSpec::default().fallback
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            listener: ListenerConfig::default(),
            api_keys: None,
            api_keys_env: None,
            api_keys_file: None,
            pools: Vec::new(),
            decision_headers: false,
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
        let config: Self = serde_saphyr::from_str(text).map_err(|e| syntax(file, &e))?;
        config.check().map_err(|(key, message)| ConfigError::Meaning {
            file: file.to_owned(),
            key,
            message,
        })?;
        Ok(config)
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

    fn check(&self) -> Result<(), (String, String)> {
        let fail = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
        if self.pools.is_empty() {
            return fail("pools", "at least one pool is needed");
        }
        if self.max_body_bytes == 0 {
            return fail("max_body_bytes", "must be above 0");
        }
        if self.max_prompt_bytes < LEAST_PROMPT_BYTES {
            return fail("max_prompt_bytes", "must be at least 1024");
        }
        self.timeouts
            .check()
            .or_else(|(key, message)| fail(&format!("timeouts.{key}"), &message))?;
        if self.scrape_interval_ms < 50 {
            return fail("scrape_interval_ms", "must be at least 50");
        }
        self.inventory
            .check()
            .or_else(|(key, message)| fail(&format!("inventory.{key}"), &message))?;
        self.check_client_keys()?;
        self.retries.check().or_else(|(key, message)| fail(&format!("retries.{key}"), &message))?;
        self.health.check().or_else(|(key, message)| fail(&format!("health.{key}"), &message))?;
        for (i, path) in self.forward_paths.iter().enumerate() {
            if !path.starts_with('/') {
                return fail(&format!("forward_paths[{i}]"), "must begin with `/`");
            }
        }
        let mut streams = HashMap::new();
        let mut addressings = HashMap::new();
        let mut states = HashMap::new();
        let mut identities = HashMap::new();
        let mut bound: HashMap<&str, Vec<(&Authority, Option<&str>)>> = HashMap::new();
        let mut models = HashSet::new();
        for (i, pool) in self.pools.iter().enumerate() {
            if !models.insert(pool.model.as_str()) {
                let message = format!("model `{}` has two pools", pool.model);
                return fail(&format!("pools[{i}].model"), &message);
            }
            pool.check().or_else(|(key, message)| fail(&format!("pools[{i}].{key}"), &message))?;
            self.timeouts
                .with(&pool.timeouts)
                .check()
                .or_else(|(key, why)| fail(&format!("pools[{i}].timeouts.{key}"), &why))?;
            for (j, endpoint) in pool.endpoints.iter().enumerate() {
                let ranks = (pool.rank_addressing, endpoint.ranks, endpoint.rank);
                let known = *addressings.entry(endpoint.url.authority()).or_insert(ranks);
                if known != ranks {
                    let message =
                        format!("the ranks of {} are told otherwise elsewhere", endpoint.url);
                    return fail(&format!("pools[{i}].endpoints[{j}].url"), &message);
                }
                let state = *states.entry(endpoint.url.authority()).or_insert(endpoint.state);
                if state != endpoint.state {
                    let message = format!("{} has another state elsewhere", endpoint.url);
                    return fail(&format!("pools[{i}].endpoints[{j}].state"), &message);
                }
                let first = identities.entry(endpoint.url.authority()).or_insert(pool);
                if first.identity != pool.identity {
                    let message = format!(
                        "{} is in the pools `{}` and `{}`: blocks of one engine are known in one way",
                        endpoint.url, first.model, pool.model
                    );
                    return fail(&format!("pools[{i}].identity"), &message);
                }
                let otherwise = first.connections() != pool.connections()
                    || first.endpoints.iter().any(|known| {
                        known.url.authority() == endpoint.url.authority()
                            && known.url != endpoint.url
                    });
                if otherwise {
                    let message = format!(
                        "{} is connected to otherwise in the pool `{}` (scheme, `engine_tls`, \
                         `http2`, `max_idle_connections`, `max_connections`)",
                        endpoint.url, first.model
                    );
                    return fail(&format!("pools[{i}].endpoints[{j}].url"), &message);
                }
                if let Some((address, topic)) = endpoint.listens_at() {
                    let others = bound.entry(address).or_default();
                    let alike = |(other, known): &&(&Authority, Option<&str>)| {
                        *other != endpoint.url.authority()
                            && (topic.is_none() || known.is_none() || topic == *known)
                    };
                    if let Some((other, _)) = others.iter().find(alike) {
                        let message = format!("http://{other} connects there too: {ONE_EACH}");
                        return fail(&format!("pools[{i}].endpoints[{j}].topic"), &message);
                    }
                    others.push((endpoint.url.authority(), topic));
                }
                let Some(stream) = endpoint.stream() else { continue };
                let known = *streams.entry(endpoint.url.authority()).or_insert(stream);
                if known != stream {
                    let message = format!("{} has another event stream elsewhere", endpoint.url);
                    return fail(&format!("pools[{i}].endpoints[{j}].events"), &message);
                }
            }
        }
        Ok(())
    }
}

// === impl PoolConfig ===

impl PoolConfig {
    /// How its endpoints are selected.
    #[must_use]
    pub fn selection(&self) -> SelectionSpec {
        SelectionSpec {
            policy: self.policy.clone(),
            fallback: self.fallback.clone(),
            slo_ttft_ms: self.slo_ttft_ms,
            sticky: self.sticky,
            sessions: self.sessions.clone(),
            shadow: self.shadow.clone(),
        }
    }

    /// A pool with the defaults and no endpoints yet.
    #[must_use]
    pub fn named(model: String) -> Self {
        Self {
            model,
            policy: PolicySpec::default(),
            fallback: fallback(),
            slo_ttft_ms: None,
            sticky: None,
            sessions: SessionSource::defaults(),
            shadow: None,
            tokenizer_dir: None,
            api_key: None,
            api_key_env: None,
            api_key_file: None,
            rank_addressing: RankAddressing::default(),
            identity: BlockIdentity::default(),
            trust_token_headers: false,
            token_parity: TokenParity::default(),
            engine_tls: None,
            http2: false,
            max_idle_connections: max_idle_connections(),
            max_connections: max_connections(),
            timeouts: PoolTimeouts::default(),
            admission: AdmissionConfig::default(),
            endpoints: Vec::new(),
        }
    }

    /// The key for the engines, from wherever it is kept.
    ///
    /// # Errors
    /// When the variable is not set or the file cannot be read; the message says which.
    pub fn resolve_api_key(&self) -> Result<Option<Secret>, String> {
        if let Some(key) = &self.api_key {
            return Ok(Some(key.clone()));
        }
        if let Some(name) = &self.api_key_env {
            return match std::env::var(name) {
                Ok(key) => Ok(Some(Secret::new(key))),
                Err(error) => Err(format!("api_key_env: {name}: {error}")),
            };
        }
        let Some(path) = &self.api_key_file else { return Ok(None) };
        match std::fs::read_to_string(path) {
            Ok(key) => Ok(Some(Secret::new(key.trim_end().to_owned()))),
            Err(error) => Err(format!("api_key_file: {}: {error}", path.display())),
        }
    }

    fn check_connections(&self) -> Result<(), (&'static str, String)> {
        Most { idle: self.max_idle_connections, connections: self.max_connections }.check()?;
        let Some(tls) = &self.engine_tls else { return Ok(()) };
        if !self.endpoints.iter().any(|endpoint| endpoint.url.is_https()) {
            return Err(("engine_tls", "no endpoint of the pool has an `https` URL".to_owned()));
        }
        tls.check().map_err(|(key, message)| ("engine_tls", format!("`{key}` {message}")))
    }

    /// How its engines are connected to: one engine in two pools has the same in both.
    fn connections(&self) -> (Option<&EngineTlsConfig>, bool, usize, usize) {
        let Self { engine_tls, http2, max_idle_connections, max_connections, .. } = self;
        (engine_tls.as_ref(), *http2, *max_idle_connections, *max_connections)
    }

    fn check(&self) -> Result<(), (String, String)> {
        let fail = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
        if self.model.is_empty() {
            return fail("model", "must not be empty");
        }
        if self.endpoints.is_empty() {
            return fail("endpoints", "at least one endpoint is needed");
        }
        let keys = usize::from(self.api_key.is_some())
            + usize::from(self.api_key_env.is_some())
            + usize::from(self.api_key_file.is_some());
        if keys > 1 {
            return fail("api_key", "give one of `api_key`, `api_key_env`, `api_key_file`");
        }
        SessionSource::check(&self.sessions).map_err(|(place, why)| {
            (place.map_or("sessions".to_owned(), |place| format!("sessions[{place}]")), why)
        })?;
        self.identity.check()?;
        self.admission.check().map_err(|(key, why)| (format!("admission.{key}"), why))?;
        self.check_connections().or_else(|(key, message)| fail(key, &message))?;
        let mut urls = HashSet::new();
        for (i, endpoint) in self.endpoints.iter().enumerate() {
            if !urls.insert(endpoint.url.authority()) {
                let message = format!("{} is listed twice", endpoint.url);
                return fail(&format!("endpoints[{i}].url"), &message);
            }
            endpoint
                .check(self.rank_addressing)
                .or_else(|(key, message)| fail(&format!("endpoints[{i}].{key}"), &message))?;
        }
        Ok(())
    }
}

fn syntax(file: &str, error: &serde_saphyr::Error) -> ConfigError {
    let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
    // The place is said once, in front.
    let text = error.without_snippet().to_string();
    let message = text.split(" at line ").next().unwrap_or_default().to_owned();
    ConfigError::Syntax { file: file.to_owned(), line, column, message }
}
