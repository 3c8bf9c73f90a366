//! The HTTP paths whose bodies this crate understands.

/// One request shape, named after its path in vLLM's OpenAI-compatible server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages` (Anthropic's shape)
    Messages,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/rerank` and `/rerank`
    Rerank,
    /// `/v1/score` and `/score`
    Score,
    /// `/tokenize`
    Tokenize,
    /// `/detokenize`
    Detokenize,
}

impl Api {
    /// The shape behind a request path, without query string; `None` for every other path.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/completions" => Self::Completions,
            "/v1/chat/completions" => Self::Chat,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/v1/embeddings" => Self::Embeddings,
            "/v1/rerank" | "/rerank" => Self::Rerank,
            "/v1/score" | "/score" => Self::Score,
            "/tokenize" => Self::Tokenize,
            "/detokenize" => Self::Detokenize,
            _ => return None,
        })
    }

    /// Whether the engine decodes tokens for this request (and so keeps KV blocks of its prompt
    /// for later requests to reuse).
    #[must_use]
    pub fn is_generation(self) -> bool {
        matches!(self, Self::Completions | Self::Chat | Self::Responses | Self::Messages)
    }

    /// A short snake-case name, fit for a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Score => "score",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
        }
    }
}
