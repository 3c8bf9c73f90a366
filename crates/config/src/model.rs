//! The tree itself, its defaults and its checks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use kvasir_balance::PolicyKind;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use crate::error::ConfigError;
use crate::secret::Secret;

/// Everything a gateway is told.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// One entry per model.
    pub pools: Vec<PoolConfig>,
    /// Whether answers carry `x-kvasir-endpoint` and `x-kvasir-reason`. Off by default: what is
    /// cached where is a tenant's secret.
    pub decision_headers: bool,
    /// The largest request body, in bytes. Default 64 MiB.
    pub max_body_bytes: usize,
    /// Paths forwarded, by load, besides the known API paths: exact, or a prefix ending in `*`.
    /// Nothing by default, since engines expose administrative paths.
    pub forward_paths: Vec<String>,
    /// How long a connection to an engine may take, in milliseconds. Default 5000.
    pub connect_timeout_ms: u64,
    /// How often each engine's `/metrics` is read, in milliseconds. Default 1000.
    pub scrape_interval_ms: u64,
    /// How long streams may go on after a stop was asked for, in seconds. Default 30.
    pub shutdown_grace_s: u64,
    /// Logging.
    pub log: LogConfig,
}

/// One model and the engines that serve it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// The model's name in requests, as the engines serve it.
    pub model: String,
    /// The routing policy. Default `latency`.
    #[serde(default, deserialize_with = "policy")]
    pub policy: PolicyKind,
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
    /// The engines.
    pub endpoints: Vec<EndpointConfig>,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Its base URL: `http://host:port`.
    pub url: EngineUrl,
    /// Its event publisher, `tcp://host:port`; found through `GET /kv_event_sources` when absent.
    #[serde(default)]
    pub events: Option<String>,
    /// Its replay socket; found likewise.
    #[serde(default)]
    pub replay: Option<String>,
    /// The topic to subscribe to. Default: everything.
    #[serde(default)]
    pub topic: Option<String>,
    /// Whether the engine connects to us: `events` is then the address to listen on.
    #[serde(default)]
    pub bind: bool,
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

/// An engine's base URL: scheme `http`, a host, an optional port, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineUrl(http::uri::Authority);

// === impl EngineUrl ===

impl EngineUrl {
    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &http::uri::Authority {
        &self.0
    }
}

impl FromStr for EngineUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What stands before an `@` or after a `?` may be a password or a key: not repeated.
        if text.contains(['@', '?']) {
            return Err(
                "an engine URL is http://host:port alone, without a user or a query; a key \
                        goes into `api_key_env` or `api_key_file`"
                    .to_owned(),
            );
        }
        let problem =
            |why: &str| format!("`{text}` is not an engine URL (http://host:port): {why}");
        let uri: http::Uri = text.parse().map_err(|e| problem(&format!("{e}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => return Err(problem(&format!("scheme `{other}` is not supported"))),
            None => return Err(problem("it has no scheme")),
        }
        if !matches!(uri.path(), "" | "/") {
            return Err(problem("it must have no path"));
        }
        let authority = uri.authority().ok_or_else(|| problem("it has no host"))?;
        if authority.host().is_empty() {
            return Err(problem("it has no host"));
        }
        if authority.as_str() != authority.host() && authority.port_u16().is_none() {
            return Err(problem("the port is no number up to 65535"));
        }
        Ok(Self(authority.clone()))
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

impl<'de> Deserialize<'de> for EngineUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicyKind, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            pools: Vec::new(),
            decision_headers: false,
            max_body_bytes: 64 << 20,
            forward_paths: Vec::new(),
            connect_timeout_ms: 5_000,
            scrape_interval_ms: 1_000,
            shutdown_grace_s: 30,
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
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text)
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

    /// How long a connection to an engine may take.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
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

    fn check(&self) -> Result<(), (String, String)> {
        let fail = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
        if self.pools.is_empty() {
            return fail("pools", "at least one pool is needed");
        }
        if self.max_body_bytes == 0 {
            return fail("max_body_bytes", "must be above 0");
        }
        if self.connect_timeout_ms == 0 {
            return fail("connect_timeout_ms", "must be above 0");
        }
        if self.scrape_interval_ms < 50 {
            return fail("scrape_interval_ms", "must be at least 50");
        }
        for (i, path) in self.forward_paths.iter().enumerate() {
            if !path.starts_with('/') {
                return fail(&format!("forward_paths[{i}]"), "must begin with `/`");
            }
        }
        let mut streams = HashMap::new();
        let mut models = HashSet::new();
        for (i, pool) in self.pools.iter().enumerate() {
            if !models.insert(pool.model.as_str()) {
                let message = format!("model `{}` has two pools", pool.model);
                return fail(&format!("pools[{i}].model"), &message);
            }
            pool.check().or_else(|(key, message)| fail(&format!("pools[{i}].{key}"), &message))?;
            for (j, endpoint) in pool.endpoints.iter().enumerate() {
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
    /// A pool with the defaults and no endpoints yet.
    #[must_use]
    pub fn named(model: String) -> Self {
        Self {
            model,
            policy: PolicyKind::default(),
            tokenizer_dir: None,
            api_key: None,
            api_key_env: None,
            api_key_file: None,
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
        let mut urls = HashSet::new();
        for (i, endpoint) in self.endpoints.iter().enumerate() {
            if !urls.insert(endpoint.url.authority()) {
                let message = format!("{} is listed twice", endpoint.url);
                return fail(&format!("endpoints[{i}].url"), &message);
            }
            if endpoint.events.is_none() && (endpoint.replay.is_some() || endpoint.bind) {
                return fail(
                    &format!("endpoints[{i}].events"),
                    "is needed where `replay` or `bind` is given",
                );
            }
        }
        Ok(())
    }
}

// === impl EndpointConfig ===

impl EndpointConfig {
    /// What is configured of its event stream: an engine in two pools has one.
    fn stream(&self) -> Option<(&str, Option<&str>, Option<&str>, bool)> {
        let events = self.events.as_deref()?;
        Some((events, self.replay.as_deref(), self.topic.as_deref(), self.bind))
    }

    /// An engine of which only the URL is known.
    #[must_use]
    pub fn at(url: EngineUrl) -> Self {
        Self { url, events: None, replay: None, topic: None, bind: false }
    }
}

fn syntax(file: &str, error: &serde_saphyr::Error) -> ConfigError {
    let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
    // The place is said once, in front.
    let text = error.without_snippet().to_string();
    let message = text.split(" at line ").next().unwrap_or_default().to_owned();
    ConfigError::Syntax { file: file.to_owned(), line, column, message }
}
