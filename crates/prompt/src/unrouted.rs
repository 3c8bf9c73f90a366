//! Why a request's token ids are not known.

/// The reason a request cannot be routed by its tokens. It is still a valid request as far as
/// the gateway knows: it is forwarded, just without cache knowledge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unrouted {
    /// The model has no tokenizer here. Used by callers that have no [`crate::Renderer`].
    #[error("no tokenizer: {0}")]
    NoTokenizer(String),
    /// The model has a tokenizer but no chat template.
    #[error("the model has no chat template")]
    NoTemplate,
    /// The chat template does not compile, or failed on this conversation.
    #[error("chat template: {0}")]
    TemplateError(String),
    /// The conversation has image, audio, video or embedding parts.
    #[error("multimodal content part `{0}`")]
    Multimodal(String),
    /// No prompt can be derived from this kind of request.
    #[error("requests to `{0}` are not routed by tokens")]
    UnsupportedApi(&'static str),
    /// A field asks for something that cannot be reproduced here.
    #[error("{0}")]
    UnsupportedField(String),
    /// The body is malformed, or the engine would refuse it.
    #[error("{0}")]
    Body(String),
    /// The prompt is larger than [`crate::Limits`] allows: only its head is known.
    #[error("prompt of {bytes} bytes, of which the first {limit} at most are tokenized")]
    Head {
        /// Size of the prompt in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The prompt is larger than [`crate::Limits`] allows, and its head says nothing: it is to be cut
    /// at a place that only all of its tokens tell, or its tokenizer rearranges texts.
    #[error("prompt of {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// Size of the prompt in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The request has more prompts than [`crate::Limits`] allows.
    #[error("{prompts} prompts, the limit is {limit}")]
    TooMany {
        /// Prompts in the request.
        prompts: usize,
        /// The limit.
        limit: usize,
    },
    /// The conversation goes on from one that an engine has stored.
    #[error("the conversation is stored by the engine that answered it")]
    StoredResponse,
    /// Queries and documents: how they are put together depends on how the engine was started.
    #[error("how queries and documents are put together is the engine's matter")]
    Pairs,
    /// vLLM renders this model with code of its own, not with its template.
    #[error("vLLM renders `{0}` models with code of its own")]
    EngineRendered(String),
    /// The tokenizer failed on the text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}

impl Unrouted {
    /// The reason as a snake-case word for metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NoTokenizer(_) => "no_tokenizer",
            Self::NoTemplate => "no_template",
            Self::TemplateError(_) => "template_error",
            Self::Multimodal(_) => "multimodal",
            Self::UnsupportedApi(_) => "unsupported_api",
            Self::UnsupportedField(_) => "unsupported_field",
            Self::Body(_) => "body",
            Self::Head { .. } => "head",
            Self::TooLong { .. } => "too_long",
            Self::TooMany { .. } => "too_many",
            Self::StoredResponse => "stored_response",
            Self::Pairs => "pairs",
            Self::EngineRendered(_) => "engine_rendered",
            Self::Tokenizer(_) => "tokenizer",
        }
    }
}
