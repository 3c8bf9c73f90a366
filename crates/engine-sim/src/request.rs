//! What a client asks of an engine, and why an engine refuses it.

use kvasir_kv_hash::vllm::{ContractError, Lora, MmItem};

/// The caller's number of a request; unique among the unfinished ones of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// One prompt to complete. A client's request of several prompts is several of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's number.
    pub id: RequestId,
    /// The prompt's token ids, at least one.
    pub prompt: Vec<u32>,
    /// Most tokens to generate, at least one. The context length also ends a request.
    pub max_tokens: usize,
    /// Whether an end-of-sequence token is a token like any other.
    pub ignore_eos: bool,
    /// The LoRA adapter. Its `int_id` is published as `lora_id`.
    pub lora: Option<Lora>,
    /// The `cache_salt`; an empty string is none.
    pub cache_salt: Option<String>,
    /// Images, audio and the like, in prompt order and not overlapping.
    pub items: Vec<MmItem>,
    /// The client's session (vLLM 0.30 publishes it).
    pub session_id: Option<String>,
    /// Whether to compute the whole prompt, as vLLM does for `prompt_logprobs`.
    pub skip_cache_read: bool,
    /// The keys and values of the prompt have come from another engine: those the cache does not
    /// hold are stored and count as external hits, and nothing but the last token is computed.
    pub remote_prefill: bool,
    /// Keep the prompt's blocks when the request ends by itself, until
    /// [`Engine::release_held`](crate::Engine::release_held) (`do_remote_decode`).
    pub hold: bool,
}

impl Request {
    /// A plain text request that ends at `max_tokens` or at an end-of-sequence token.
    #[must_use]
    pub fn new(id: RequestId, prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self {
            id,
            prompt,
            max_tokens,
            ignore_eos: false,
            lora: None,
            cache_salt: None,
            items: Vec::new(),
            session_id: None,
            skip_cache_read: false,
            remote_prefill: false,
            hold: false,
        }
    }
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// An end-of-sequence or stop token.
    Stop,
    /// `max_tokens` or the context length.
    Length,
}

impl FinishReason {
    /// The API's word for it: `stop` or `length`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// Why an engine refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A prompt of no tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// `max_tokens` is 0.
    #[error("max_tokens must be at least 1")]
    NoOutput,
    /// No room for even one generated token.
    #[error("the prompt has {tokens} tokens; the context length is {max_model_len}")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// The engine's context length.
        max_model_len: usize,
    },
    /// An unfinished request has this number.
    #[error("request {} is not finished yet", .0.0)]
    DuplicateId(RequestId),
    /// `max_waiting` requests wait already.
    #[error("{waiting} requests are waiting already")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// The engine's hash contract cannot hash the request's adapter or items.
    #[error(transparent)]
    Unhashable(#[from] ContractError),
}
