//! What kind of engine answers at an address.

use serde_json::Value;

/// The kind of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    TrtLlm,
    /// llama.cpp: it publishes no events of its cache.
    LlamaCpp,
    /// Another, or one that does not say.
    #[default]
    Other,
}

impl EngineKind {
    /// The word used in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtLlm => "tensorrt_llm",
            Self::LlamaCpp => "llama_cpp",
            Self::Other => "unknown",
        }
    }

    /// By `owned_by` of `/v1/models`; `None` for words of nobody known.
    #[must_use]
    pub fn of_owner(owner: &str) -> Option<Self> {
        match owner.to_ascii_lowercase().as_str() {
            "vllm" => Some(Self::Vllm),
            "sglang" => Some(Self::Sglang),
            "tensorrt_llm" | "tensorrt-llm" | "trtllm" => Some(Self::TrtLlm),
            "llamacpp" | "llama.cpp" => Some(Self::LlamaCpp),
            _ => None,
        }
    }

    /// By the name of a metric family: engines begin theirs with a word of their own.
    #[must_use]
    pub fn of_family(name: &str) -> Option<Self> {
        // `sglang_router_…` and `vllm_router_…` are no engine's.
        match name.split_once(':') {
            Some(("vllm", _)) => Some(Self::Vllm),
            Some(("sglang", _)) => Some(Self::Sglang),
            Some(("llamacpp", _)) => Some(Self::LlamaCpp),
            _ => name.starts_with("trtllm_").then_some(Self::TrtLlm),
        }
    }
}

/// Whether a body of `/props` is llama.cpp's.
pub(crate) fn is_llama_cpp(props: &[u8]) -> bool {
    serde_json::from_slice::<Value>(props)
        .is_ok_and(|props| props.get("default_generation_settings").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_known_by_their_own_words() {
        assert_eq!(EngineKind::of_owner("vllm"), Some(EngineKind::Vllm));
        assert_eq!(EngineKind::of_owner("llamacpp"), Some(EngineKind::LlamaCpp));
        assert_eq!(EngineKind::of_owner("me"), None);
        assert_eq!(EngineKind::of_family("sglang:token_usage"), Some(EngineKind::Sglang));
        assert_eq!(EngineKind::of_family("process_start_time_seconds"), None);
        assert!(is_llama_cpp(br#"{"default_generation_settings":{},"total_slots":1}"#));
        assert!(!is_llama_cpp(b"{}") && !is_llama_cpp(b"[") && !is_llama_cpp(b"[]"));
    }
}
