//! One pool: a model, the engines that serve it, and how they are used.

use std::collections::HashSet;
use std::path::PathBuf;

use kvasir_balance::{PolicySpec, SelectionSpec, SessionSource, StickyOptions};
use serde::{Deserialize, Serialize};

use crate::admission::AdmissionConfig;
use crate::bounds::check_selection;
use crate::connections::{EngineTlsConfig, Most, max_connections, max_idle_connections};
use crate::disaggregation::{DisaggregationConfig, EndpointRole};
use crate::endpoint::{EndpointConfig, RankAddressing};
use crate::identity::BlockIdentity;
use crate::secret::{Secret, SecretSource, Sources};
use crate::timeouts::PoolTimeouts;

/// The key of the first source of the engines' key.
const API_KEY: &str = "api_key";

/// One model and the engines that serve it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// The model's name in requests, as the engines serve it.
    pub model: String,
    /// Other names of the model in requests, under which the engines serve it as well: requests are
    /// passed on as they are.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Whether answers carry `x-kvasir-endpoint` and `x-kvasir-reason`, where that is not what
    /// `decision_headers` of all pools says.
    #[serde(default)]
    pub decision_headers: Option<bool>,
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
    /// How requests are split among prefill and decode endpoints. With the defaults where an endpoint
    /// has such a role.
    #[serde(default)]
    pub disaggregation: Option<DisaggregationConfig>,
    /// The engines.
    pub endpoints: Vec<EndpointConfig>,
}

/// When own tokens are held against the engines' `/tokenize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

fn fallback() -> PolicySpec {
    SelectionSpec::default().fallback
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

    /// How requests are split among prefill and decode endpoints; `None` where all endpoints serve
    /// whole requests.
    #[must_use]
    pub fn splits(&self) -> Option<DisaggregationConfig> {
        let has_roles =
            || self.endpoints.iter().any(|endpoint| endpoint.role != EndpointRole::Unified);
        let implied = || has_roles().then(DisaggregationConfig::default);
        self.disaggregation.clone().or_else(implied).filter(|split| split.enabled)
    }

    /// A pool with the defaults and no endpoints yet.
    #[must_use]
    pub fn named(model: String) -> Self {
        Self {
            model,
            aliases: Vec::new(),
            decision_headers: None,
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
            disaggregation: None,
            endpoints: Vec::new(),
        }
    }

    /// The key for the engines, from wherever it is kept.
    ///
    /// # Errors
    /// When the variable is not set or the file cannot be read: the pool's key, and what is wrong with it.
    pub fn resolve_api_key(&self) -> Result<Option<Secret>, (String, String)> {
        let source = self.api_key_sources().source();
        source.map(|source| SecretSource::read(source, API_KEY)).transpose()
    }

    fn api_key_sources(&self) -> Sources<'_, Secret> {
        Sources {
            key: API_KEY,
            given: self.api_key.as_ref(),
            env: self.api_key_env.as_deref(),
            file: self.api_key_file.as_deref(),
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
    pub(crate) fn connections(&self) -> (Option<&EngineTlsConfig>, bool, usize, usize) {
        let Self { engine_tls, http2, max_idle_connections, max_connections, .. } = self;
        (engine_tls.as_ref(), *http2, *max_idle_connections, *max_connections)
    }

    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        let fail = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
        if self.model.is_empty() {
            return fail("model", "must not be empty");
        }
        if self.endpoints.is_empty() {
            return fail("endpoints", "at least one endpoint is needed");
        }
        if self.tokenizer_dir.as_ref().is_some_and(|dir| dir.as_os_str().is_empty()) {
            return fail("tokenizer_dir", "must not be empty");
        }
        self.api_key_sources().check()?;
        SessionSource::check(&self.sessions).map_err(|(place, why)| {
            (place.map_or("sessions".to_owned(), |place| format!("sessions[{place}]")), why)
        })?;
        check_selection(&self.selection())?;
        self.identity.check()?;
        self.admission.check().map_err(|(key, why)| (format!("admission.{key}"), why))?;
        if let Some(split) = &self.disaggregation {
            split.check().map_err(|(key, why)| (format!("disaggregation.{key}"), why))?;
        }
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
