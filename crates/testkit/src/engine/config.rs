//! What a fake engine is: its models, its version and its cache.

use super::cache::Stored;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Receives the blocks that a request stored, before the request is answered.
pub type StoredSink = Box<dyn Fn(Stored) + Send + Sync>;

/// Turns a parsed request body into the engine's prompt token ids; `None` when it
/// cannot.
pub type Tokenize = Arc<dyn Fn(&Value) -> Option<Vec<u32>> + Send + Sync>;

/// One entry of `/v1/models`.
#[derive(Clone, Debug)]
pub struct Model {
    /// The served name.
    pub id: String,
    /// The path of the weights.
    pub root: String,
    /// The base model, for a `LoRA` adapter.
    pub parent: Option<String>,
    /// Longest sequence in tokens; vLLM says `null` for adapters.
    pub max_model_len: Option<u64>,
}

impl Model {
    /// A base model.
    pub fn base(id: impl Into<String>) -> Self {
        let id = id.into();
        Self { root: format!("/models/{id}"), id, parent: None, max_model_len: Some(2048) }
    }

    /// A `LoRA` adapter on a base model.
    pub fn adapter(id: impl Into<String>, parent: impl Into<String>) -> Self {
        let id = id.into();
        let root = format!("/adapters/{id}");
        Self { id, root, parent: Some(parent.into()), max_model_len: None }
    }
}

/// The configuration of a [`FakeEngine`](super::FakeEngine).
pub struct EngineConfig {
    /// Served models, the first is the default.
    pub models: Vec<Model>,
    /// What `/version` says.
    pub version: String,
    /// The body of `/kv_event_sources`; 404 when `None` (older engines).
    pub kv_event_sources: Option<Value>,
    /// Tokens per cache block.
    pub block_size: usize,
    /// Cache capacity in blocks; full means that nothing more is cached.
    pub gpu_blocks: usize,
    /// Whether `usage` carries `prompt_tokens_details.cached_tokens`; vLLM does so
    /// only with a flag, and says `null` without.
    pub report_cached_tokens: bool,
    /// Completion tokens when the request sets no `max_tokens`.
    pub completion_tokens: usize,
    /// Prompt token ids of a request; by default a `prompt` that is an array of
    /// integers. Without ids the prompt's words are counted and nothing is cached.
    pub tokenize: Option<Tokenize>,
    /// Told about stored blocks.
    pub sink: Option<StoredSink>,
    /// How many requests are remembered, the newest.
    pub max_recorded: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            models: vec![Model::base("tiny")],
            version: "0.32.0".to_owned(),
            kv_event_sources: None,
            block_size: 16,
            gpu_blocks: 4096,
            report_cached_tokens: true,
            completion_tokens: 4,
            tokenize: None,
            sink: None,
            max_recorded: 65_536,
        }
    }
}

impl fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineConfig")
            .field("models", &self.models)
            .field("version", &self.version)
            .field("block_size", &self.block_size)
            .field("gpu_blocks", &self.gpu_blocks)
            .finish_non_exhaustive()
    }
}
