//! Paths that a configuration forwards, and what they open that is meant for operators.

use kvasir_config::Config;
use kvasir_proxy::forwards;

/// Paths of vLLM, `SGLang` and TensorRT-LLM servers that change an engine for everybody, stop it, or take
/// its events away.
const ADMINISTRATIVE: &[&str] = &[
    "/sleep",
    "/wake_up",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/flush_cache",
    "/collective_rpc",
    "/pause",
    "/resume",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/update_weights_from_disk",
    "/update_weights",
    "/pause_generation",
    "/continue_generation",
    "/abort_request",
    "/start_profile",
    "/stop_profile",
    "/set_internal_state",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/kv_cache_events",
];

/// So many of them are named.
const NAMED: usize = 3;

/// Says in the log which of the configured paths open any of them to clients.
pub(crate) fn warn_of_administrative(config: &Config) {
    for path in &config.forward_paths {
        let opened = opened_by(path);
        if !opened.is_empty() {
            let named: Vec<&str> = opened.iter().take(NAMED).copied().collect();
            tracing::warn!(
                forward_paths = path,
                opened = named.join(", "),
                count = opened.len(),
                "clients may call administrative paths of the engines"
            );
        }
    }
}

fn opened_by(path: &str) -> Vec<&'static str> {
    ADMINISTRATIVE.iter().copied().filter(|known| forwards(path, known)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_opens() {
        assert_eq!(opened_by("/*"), ADMINISTRATIVE);
        assert_eq!(opened_by("/v1/*"), ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"]);
        assert_eq!(opened_by("/sleep"), ["/sleep"]);
        for harmless in ["/v1/audio/*", "/v1/audio/speech", "/sleep/well"] {
            assert!(opened_by(harmless).is_empty(), "{harmless}");
        }
    }
}
