//! What a server is started with, and why it cannot start.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use kvasir_kv_hash::vllm::Version;

use super::address::Base;
use super::disagg::config::{EngineKind, PdConfig};
use crate::{ConfigError, EngineConfig, EventFormat, HashForm, PseudoRandom};

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct SimServerConfig {
    /// The engine of each rank. Its `version` and `enable_kv_cache_events` are overridden by
    /// `version` and `events` below; of the two `max_model_len` the lesser counts.
    pub engine: EngineConfig,
    /// The served name of the base model.
    pub model: String,
    /// The model's directory, reported as `root` by `/v1/models`. Its tokenizer and chat template
    /// serve text prompts and chats; `None` means token-id prompts only.
    pub root: Option<PathBuf>,
    /// LoRA adapters: served name and path.
    pub adapters: Vec<(String, String)>,
    /// Where HTTP is served; port 0 picks one, which restarts keep.
    pub listen: SocketAddr,
    /// The ZeroMQ endpoint rank 0 publishes events on, for example `tcp://127.0.0.1:*`; the other
    /// ranks use the ports after it. It is always bound. `None` publishes nothing.
    pub events: Option<String>,
    /// The ZeroMQ endpoint of rank 0's replay socket, ports of other ranks likewise. Needs
    /// `events`.
    pub replay: Option<String>,
    /// The topic of event messages.
    pub topic: String,
    /// Data-parallel ranks: engines of their own behind one HTTP address.
    pub ranks: u32,
    /// The release to behave like, for example `0.32.0`: what `/version` says, the form of events
    /// and replay answers, the engine's accounting, and HTTP bodies as far as they are known
    /// (those of 0.20.2 before 0.32, those of 0.32.0 from there on).
    pub version: String,
    /// How events show block hashes.
    pub hash_form: HashForm,
    /// Whether events carry the tokens of stored blocks.
    pub event_tokens: bool,
    /// What `/metrics` calls the hash algorithm (`prefix_caching_hash_algo`).
    pub hash_algorithm: String,
    /// Batches kept for replay.
    pub buffer_steps: usize,
    /// Whether `usage` says how many prompt tokens were cached
    /// (`--enable-prompt-tokens-details`); otherwise `prompt_tokens_details` is null.
    pub report_cached_tokens: bool,
    /// Context length in tokens.
    pub max_model_len: u64,
    /// What is generated.
    pub tokens: PseudoRandom,
    /// The engine whose protocol of disaggregation is spoken.
    pub kind: EngineKind,
    /// The server's part in prefill/decode disaggregation.
    pub pd: PdConfig,
    /// Whether the `/sim/` paths exist (`/sim/kv/pull` exists with a P/D role).
    pub faults: bool,
    /// Makes request ids and the fingerprint.
    pub seed: u64,
}

impl Default for SimServerConfig {
    /// vLLM 0.32.0 with blocks of 16 tokens, events as maps with integer hashes, all on free
    /// loopback ports.
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            max_model_len: engine.max_model_len as u64,
            engine,
            model: "sim".to_owned(),
            root: None,
            adapters: Vec::new(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            events: Some("tcp://127.0.0.1:*".to_owned()),
            replay: Some("tcp://127.0.0.1:*".to_owned()),
            topic: String::new(),
            ranks: 1,
            version: EngineConfig::DEFAULT_VERSION.to_string(),
            hash_form: HashForm::Int,
            event_tokens: true,
            hash_algorithm: "sha256".to_owned(),
            buffer_steps: 10_000,
            report_cached_tokens: true,
            tokens: PseudoRandom::default(),
            kind: EngineKind::default(),
            pd: PdConfig::default(),
            faults: false,
            seed: 0,
        }
    }
}

/// A configuration that has been checked.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) engine: EngineConfig,
    pub(super) version: Version,
    pub(super) format: EventFormat,
    pub(super) events: Option<Base>,
    pub(super) replay: Option<Base>,
}

const MAX_RANKS: u32 = 64;

impl SimServerConfig {
    /// Checks the settings that need no socket and no file.
    pub(super) fn plan(&self) -> Result<Plan, SimServerError> {
        let bad = |name, why: String| SimServerError::Setting { name, why };
        let version: Version = self.version.parse().map_err(|e| bad("version", format!("{e}")))?;
        if !(1..=MAX_RANKS).contains(&self.ranks) {
            return Err(bad("ranks", format!("{} is not from 1 to {MAX_RANKS}", self.ranks)));
        }
        let names = || self.adapters.iter().map(|(name, _)| name).chain([&self.model]);
        if let Some(name) = names().find(|name| name.is_empty()) {
            return Err(bad("model", format!("{name:?} is no name")));
        }
        if let Some(name) = names().find(|name| names().filter(|n| n == name).count() > 1) {
            return Err(bad("adapters", format!("{name:?} is served twice")));
        }
        if self.replay.is_some() && self.events.is_none() {
            return Err(bad("replay", "there are no events to replay".to_owned()));
        }
        self.pd.check(self.kind).map_err(|why| bad("pd", why))?;
        let base = |name, text: &Option<String>| {
            let base = text.as_deref().map(|text| Base::parse(text, self.ranks)).transpose();
            base.map_err(|why| bad(name, why))
        };
        let (events, replay) = (base("events", &self.events)?, base("replay", &self.replay)?);
        let longest = usize::try_from(self.max_model_len).unwrap_or(usize::MAX);
        let engine = EngineConfig {
            version,
            enable_kv_cache_events: events.is_some(),
            max_model_len: self.engine.max_model_len.min(longest),
            ..self.engine.clone()
        };
        engine.validate()?;
        Ok(Plan {
            engine,
            version,
            format: match EventFormat::new(version, self.hash_form) {
                format if self.event_tokens => format,
                format => format.without_tokens(),
            },
            events,
            replay,
        })
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimServerError {
    /// The engine cannot be started so.
    #[error("engine: {0}")]
    Engine(ConfigError),
    /// A setting that cannot be used.
    #[error("{name}: {why}")]
    Setting {
        /// The field.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The tokenizer of `root` cannot be used.
    #[error("root: {0}")]
    Tokenizer(kvasir_prompt::LoadError),
    /// The HTTP address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// An event or replay socket cannot be bound.
    #[error("cannot bind {endpoint}: {error}")]
    Bind {
        /// The endpoint.
        endpoint: String,
        /// What libzmq said.
        error: zmq::Error,
    },
    /// No thread to be had.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl From<ConfigError> for SimServerError {
    fn from(error: ConfigError) -> Self {
        Self::Engine(error)
    }
}

impl From<kvasir_prompt::LoadError> for SimServerError {
    fn from(error: kvasir_prompt::LoadError) -> Self {
        Self::Tokenizer(error)
    }
}
