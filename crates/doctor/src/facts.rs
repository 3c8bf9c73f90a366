//! What is known of an engine once its HTTP server was asked: the ground of all other legs.

use std::sync::Arc;

use kvasir_fleet::Origin;
use kvasir_fleet::{EngineCard, EngineClient, EngineKind, EventSource};
use kvasir_kv_hash::vllm;
use kvasir_prompt::Renderer;

/// What an engine is called in reports.
pub(crate) fn name_of(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Vllm => "vllm",
        EngineKind::Sglang => "sglang",
        EngineKind::TrtLlm => "trtllm",
        EngineKind::LlamaCpp => "llama.cpp",
        EngineKind::Other => "unknown engine",
    }
}

/// An engine that answered.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) client: EngineClient,
    pub(crate) origin: Origin,
    pub(crate) kind: EngineKind,
    /// The version as the engine writes it.
    pub(crate) version: Option<String>,
    /// The same, where it is one of vLLM's.
    pub(crate) vllm_version: Option<vllm::Version>,
    pub(crate) card: EngineCard,
    /// The base model's name for requests.
    pub(crate) model: String,
    /// Labels of `vllm:cache_config_info`.
    pub(crate) cache: CacheConfig,
    /// What the engine says of its publishers; `None` where it does not tell.
    pub(crate) sources: Option<Vec<EventSource>>,
    /// Whether the engine says outright that it publishes no events.
    pub(crate) says_no_events: bool,
    /// The model's tokenizer, once the token legs found it.
    pub(crate) renderer: Option<Arc<Renderer>>,
}

/// What `vllm:cache_config_info` says; fields are `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheConfig {
    pub(crate) block_size: Option<u32>,
    pub(crate) hash_block_size: Option<u32>,
    pub(crate) prefix_caching: Option<bool>,
    pub(crate) algorithm: Option<String>,
}

// === impl Facts ===

impl Facts {
    /// The longest prompt the engine takes, in tokens, as far as it tells.
    pub(crate) fn longest_prompt(&self) -> u64 {
        let model = self.card.models.iter().find(|model| model.id == self.model);
        model.and_then(|model| model.max_model_len).unwrap_or(u64::MAX)
    }

    /// Its name and version, such as `vllm 0.32.0`.
    pub(crate) fn engine(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", name_of(self.kind)),
            None => name_of(self.kind).to_owned(),
        }
    }
}

/// A vLLM that answers nobody, for tests that need no socket.
#[cfg(test)]
pub(crate) fn plain() -> Facts {
    Facts {
        client: EngineClient::new(std::time::Duration::from_secs(1)),
        origin: http::uri::Authority::from_static("engine-1:8000").into(),
        kind: EngineKind::Vllm,
        version: Some("0.32.0".to_owned()),
        vllm_version: Some(vllm::Version::release(0, 32, 0)),
        card: EngineCard::default(),
        model: "tiny".to_owned(),
        cache: CacheConfig::default(),
        sources: None,
        says_no_events: false,
        renderer: None,
    }
}
