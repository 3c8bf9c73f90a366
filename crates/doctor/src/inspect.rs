//! What an engine's HTTP server says of it: reachability, engine and version, models, cache.

mod engine;
mod reach;

use http::StatusCode;
use kvasir_fleet::{EngineCard, EngineClient, EngineKind, ProbeError, ServedModel, samples};

use self::engine::Identity;
use crate::facts::{CacheConfig, Facts};
use crate::report::{Leg, LegName};
use crate::shown::{list, shown};
use crate::target::Target;

/// Adds the legs `http`, `engine`, `models` and `prefix_caching`.
///
/// # Errors
/// The engine cannot be asked at all: the leg `http` says why.
pub(crate) async fn inspect(target: &Target, legs: &mut Vec<Leg>) -> Result<Facts, ProbeError> {
    let client = EngineClient::new(target.patience).with_headers(target.headers.clone());
    let origin = target.origin.clone();
    let mut card = match EngineCard::ask(&client, &origin, None, None).await {
        Ok(card) => card,
        Err(error) => {
            legs.push(reach::unreachable(&error));
            return Err(error);
        }
    };
    legs.push(Leg::ok(LegName::Http, "answers GET /v1/models"));
    let page = match client.get(&origin, "/metrics", None).await {
        Ok((StatusCode::OK, body)) => String::from_utf8_lossy(&body).into_owned(),
        _ => String::new(),
    };
    let identity = engine::identify(&client, &origin, &page, card.version.take()).await;
    legs.push(identity.leg());
    legs.push(models(target, &card));
    let cache = cache_config(&page);
    legs.push(prefix_caching(&identity, &cache));
    card.version.clone_from(&identity.version);
    card.block_size = card.block_size.or_else(|| identity.page_size());
    let says_no_events = card.event_sources.as_ref().is_some_and(Vec::is_empty);
    Ok(Facts {
        model: model_for_requests(target, &card),
        sources: card.event_sources.clone(),
        says_no_events,
        vllm_version: identity.vllm_version(),
        kind: identity.kind,
        version: identity.version.as_deref().map(shown),
        client,
        origin,
        card,
        cache,
        renderer: None,
    })
}

/// The base model to name in requests: the wanted one, or else the first.
fn model_for_requests(target: &Target, card: &EngineCard) -> String {
    let wanted = target.model.as_deref();
    let base = card.models.iter().find(|model| Some(model.id.as_str()) == wanted);
    let base = base.or_else(|| card.models.first()).map(|model| model.id.as_str());
    base.or(wanted).unwrap_or_default().to_owned()
}

fn models(target: &Target, card: &EngineCard) -> Leg {
    let leg = LegName::Models;
    let adapters = card.adapters.iter().map(|adapter| match &adapter.path {
        Some(path) => format!("{} ({path})", adapter.name),
        None => format!("{} (no path told)", adapter.name),
    });
    let adapters = list(adapters);
    let served = list(card.models.iter().map(described));
    let served = match (served.is_empty(), adapters.is_empty()) {
        (true, true) => "nothing".to_owned(),
        (true, false) => format!("adapters {adapters}"),
        (false, true) => served,
        (false, false) => format!("{served}; adapters {adapters}"),
    };
    match &target.model {
        Some(wanted) if !card.serves(wanted) => Leg::off(
            leg,
            format!("does not serve `{}`, but {served}", shown(wanted)),
            "ask for a name that is served, or start the engine with --served-model-name",
        ),
        _ if card.models.is_empty() => Leg::off(
            leg,
            format!("names no base model; it serves {served}"),
            "wait until the engine has loaded its model, then look at GET /v1/models",
        ),
        _ => Leg::ok(leg, format!("serves {served}")),
    }
}

fn described(model: &ServedModel) -> String {
    match model.max_model_len {
        Some(tokens) => format!("{} (max_model_len {tokens})", model.id),
        None => format!("{} (max_model_len not told)", model.id),
    }
}

/// The labels of `vllm:cache_config_info`; of several data-parallel ranks the last counts.
fn cache_config(page: &str) -> CacheConfig {
    let mut cache = CacheConfig::default();
    for sample in samples(page).filter(|sample| sample.name == "vllm:cache_config_info") {
        let size = |key| {
            let size: Option<u32> = sample.label(key).and_then(|text| text.parse().ok());
            size.filter(|size| *size > 0)
        };
        cache.block_size = size("block_size");
        cache.hash_block_size = size("hash_block_size");
        cache.prefix_caching = match sample.label("enable_prefix_caching") {
            Some("True" | "true") => Some(true),
            Some("False" | "false") => Some(false),
            _ => None,
        };
        cache.algorithm = sample.label("prefix_caching_hash_algo").map(str::to_owned);
    }
    cache
}

fn prefix_caching(identity: &Identity, cache: &CacheConfig) -> Leg {
    let leg = LegName::PrefixCaching;
    match identity.kind {
        EngineKind::Vllm => match cache.prefix_caching {
            Some(true) => {
                let algorithm = cache.algorithm.as_deref().map_or_else(String::new, |algorithm| {
                    format!(", prefix_caching_hash_algo {}", shown(algorithm))
                });
                Leg::ok(leg, format!("on{algorithm}"))
            }
            Some(false) => Leg::off(
                leg,
                "off: no request can reuse what another one computed",
                "start the engine with --enable-prefix-caching",
            ),
            None => Leg::unknown(
                leg,
                "/metrics has no vllm:cache_config_info with enable_prefix_caching",
                "see whether /metrics can be read and the engine runs without --disable-log-stats",
            ),
        },
        EngineKind::Sglang => match identity.radix_cache_disabled() {
            Some(false) => Leg::ok(leg, "on (disable_radix_cache is false)"),
            Some(true) => Leg::off(
                leg,
                "off: disable_radix_cache is true",
                "start the engine without --disable-radix-cache",
            ),
            None => Leg::unknown(
                leg,
                "neither /server_info nor /get_server_info tells disable_radix_cache",
                "see that the engine was not started with --disable-radix-cache",
            ),
        },
        EngineKind::TrtLlm => Leg::unknown(
            leg,
            "TensorRT-LLM does not tell over HTTP whether it reuses blocks",
            "see that kv_cache_config.enable_block_reuse is true",
        ),
        EngineKind::LlamaCpp => Leg::unknown(
            leg,
            "llama.cpp reuses prompts by slot, which it does not tell over HTTP",
            "see that the server was not started with --no-cache-prompt",
        ),
        EngineKind::Other => {
            Leg::unknown(leg, "an unknown engine: there is nothing to ask", "see leg `engine`")
        }
    }
}

#[cfg(test)]
mod tests;
