//! Telling engines apart, and what their versions mean.

use http::StatusCode;
use kvasir_fleet::Origin;
use kvasir_fleet::{EngineClient, EngineKind, samples};
use kvasir_kv_hash::vllm::{Generation, Version};
use serde_json::Value;

use crate::facts::name_of;
use crate::report::{Leg, LegName};
use crate::shown::shown;

/// Which engine it is, and by what it was told.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) kind: EngineKind,
    pub(super) version: Option<String>,
    /// What told; for an unknown engine, what was looked for.
    told_by: &'static str,
    /// What SGLang says of its arguments.
    server_info: Option<Value>,
}

/// Tells an engine by its metric families, else by `owned_by` of its models, else by a path that
/// only it serves. `version` is what `GET /version` said.
pub(super) async fn identify(
    client: &EngineClient,
    origin: &Origin,
    page: &str,
    version: Option<String>,
) -> Identity {
    let ask = |path| json(client, origin, path);
    let mut told = by_families(page);
    if told.is_none() {
        told = ask("/v1/models").await.as_ref().and_then(by_owner);
    }
    let mut server_info = None;
    if matches!(told, None | Some((EngineKind::Sglang, _))) {
        server_info = match ask("/server_info").await.filter(is_sglang) {
            Some(info) => Some(info),
            None => ask("/get_server_info").await.filter(is_sglang),
        };
        if server_info.is_some() {
            told = told.or(Some((EngineKind::Sglang, "its /server_info")));
        }
    }
    let mut build = None;
    if matches!(told, None | Some((EngineKind::LlamaCpp, _))) {
        let props = ask("/props").await.filter(|p| p.get("default_generation_settings").is_some());
        if props.is_some() {
            told = told.or(Some((EngineKind::LlamaCpp, "its /props")));
        }
        build = props.as_ref().and_then(|props| text(props, "build_info"));
    }
    let (kind, told_by) = told.unwrap_or((EngineKind::Other, "nothing that was looked for"));
    let own = match kind {
        EngineKind::Sglang => server_info.as_ref().and_then(|info| text(info, "version")),
        EngineKind::LlamaCpp => build,
        _ => None,
    };
    Identity { kind, version: own.or(version), told_by, server_info }
}

fn by_families(page: &str) -> Option<(EngineKind, &'static str)> {
    let kind = samples(page).find_map(|sample| EngineKind::of_family(sample.name))?;
    let told_by = match kind {
        EngineKind::Vllm => "its vllm: metric families",
        EngineKind::Sglang => "its sglang: metric families",
        EngineKind::TrtLlm => "its trtllm_ metric families",
        EngineKind::LlamaCpp => "its llamacpp: metric families",
        EngineKind::Other => return None,
    };
    Some((kind, told_by))
}

fn by_owner(models: &Value) -> Option<(EngineKind, &'static str)> {
    let owner = models.get("data")?.get(0)?.get("owned_by")?.as_str()?;
    Some((EngineKind::of_owner(owner)?, "owned_by of its models"))
}

fn is_sglang(info: &Value) -> bool {
    ["disable_radix_cache", "page_size", "tokenizer_path"].iter().any(|key| info.get(key).is_some())
}

fn text(object: &Value, key: &str) -> Option<String> {
    object.get(key)?.as_str().map(str::to_owned)
}

async fn json(client: &EngineClient, origin: &Origin, path: &str) -> Option<Value> {
    match client.get(origin, path, None).await {
        Ok((StatusCode::OK, body)) => serde_json::from_slice(&body).ok(),
        _ => None,
    }
}

// === impl Identity ===

impl Identity {
    /// The version, where it is one of vLLM's.
    pub(super) fn vllm_version(&self) -> Option<Version> {
        if self.kind != EngineKind::Vllm {
            return None;
        }
        self.version.as_deref()?.parse().ok()
    }

    /// Tokens per page, where SGLang tells.
    pub(super) fn page_size(&self) -> Option<u32> {
        let size = self.server_info.as_ref()?.get("page_size")?.as_u64()?;
        u32::try_from(size).ok().filter(|size| *size > 0)
    }

    /// Whether SGLang caches no prefixes.
    pub(super) fn radix_cache_disabled(&self) -> Option<bool> {
        self.server_info.as_ref()?.get("disable_radix_cache")?.as_bool()
    }

    pub(super) fn leg(&self) -> Leg {
        let leg = LegName::Engine;
        let version = self.version.as_deref().map(shown);
        let told_by = self.told_by;
        match (self.kind, version) {
            (EngineKind::Vllm, Some(version)) => self.vllm_leg(&version),
            (EngineKind::Other, version) => {
                let version = version
                    .map_or_else(String::new, |version| format!("; GET /version says {version}"));
                Leg::unknown(
                    leg,
                    format!(
                        "told by {told_by}: an OpenAI-compatible server of unknown make{version}"
                    ),
                    "if it is vLLM, let GET /metrics through; engines told apart are vLLM, SGLang, \
                     TensorRT-LLM and llama.cpp",
                )
            }
            (kind, Some(version)) => {
                Leg::ok(leg, format!("{} {version}, told by {told_by}", name_of(kind)))
            }
            (kind, None) => Leg::unknown(
                leg,
                format!("{}, told by {told_by}, which does not tell its version", name_of(kind)),
                "let GET /version (SGLang: /server_info) through to the engine",
            ),
        }
    }

    fn vllm_leg(&self, version: &str) -> Leg {
        let leg = LegName::Engine;
        let told_by = self.told_by;
        let parsed = version.parse::<Version>().map_err(kvasir_kv_hash::vllm::ContractError::from);
        let known = parsed.and_then(Generation::of);
        match known {
            Ok(generation) => Leg::ok(
                leg,
                format!(
                    "vllm {version}, told by {told_by}; hash generation {generation:?} (since {})",
                    generation.first_release()
                ),
            ),
            Err(error) => Leg::unknown(
                leg,
                format!("vllm {version}, told by {told_by}; hash generation unknown: {error}"),
                format!(
                    "routing goes by tokens and needs no generation; to compute this engine's own \
                     hashes, run a release from {} to {}, or update Kvasir",
                    Generation::A.first_release(),
                    Generation::newest_release()
                ),
            ),
        }
    }
}
