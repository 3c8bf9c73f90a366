//! What an engine says about itself: its models, adapters, version, block size and event sources.

mod sglang;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use kvasir_upstream::Origin;
use serde::Deserialize;

use self::sglang::ServerInfo;
use crate::engine_client::{EngineClient, ProbeError};
use crate::kind::{EngineKind, is_llama_cpp};
use crate::signals::Page;

/// A model name an engine answers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// The name in requests.
    pub id: String,
    /// Where it was loaded from: a path or a repository.
    pub root: Option<String>,
    /// The longest prompt and answer together, in tokens.
    pub max_model_len: Option<u64>,
}

/// A LoRA adapter an engine has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its name, used as `model` in requests.
    pub name: String,
    /// The path it was loaded from.
    pub path: Option<String>,
}

/// An event publisher of an engine, as `GET /kv_event_sources` (vLLM 0.32) describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSource {
    /// The data-parallel rank it publishes for.
    pub rank: u32,
    /// The publisher's address, as configured at the engine.
    pub publisher: String,
    /// The replay socket's address.
    pub replay: Option<String>,
    /// The topic it publishes under.
    pub topic: String,
}

/// An engine's answers, as last heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineCard {
    /// What kind of engine it is.
    pub kind: EngineKind,
    /// Base models, in the engine's order.
    pub models: Vec<ServedModel>,
    /// Adapters.
    pub adapters: Vec<Adapter>,
    /// The engine's version, where it tells.
    pub version: Option<String>,
    /// Tokens per block from `cache_config_info`, where it tells.
    pub block_size: Option<u32>,
    /// Blocks of one rank's cache (`num_gpu_blocks`), where it tells.
    pub blocks: Option<u64>,
    /// Whether it keeps prefixes for other requests, where it tells (vLLM: `enable_prefix_caching`
    /// of `cache_config_info`; SGLang: not `disable_radix_cache`).
    pub prefix_caching: Option<bool>,
    /// Its event publishers; `None` where it does not tell.
    pub event_sources: Option<Vec<EventSource>>,
    /// Its data-parallel ranks, as far as it tells: each has a cache and a stream of its own.
    pub ranks: Vec<u32>,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: String,
    #[serde(default)]
    root: Option<String>,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    max_model_len: Option<u64>,
    #[serde(default)]
    owned_by: Option<String>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Source {
    #[serde(default)]
    enable_kv_cache_events: bool,
    #[serde(default)]
    publisher: Option<String>,
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: String,
}

// === impl EngineCard ===

impl EngineCard {
    /// The longest prompt it takes for a model or adapter, in tokens, where it says so. An adapter's
    /// is that of its base model.
    #[must_use]
    pub fn longest_prompt(&self, model: &str) -> Option<u64> {
        let of = |name: &str| self.models.iter().find(|known| known.id == name)?.max_model_len;
        of(model).or_else(|| self.adapter(model).and_then(|_| of(self.base())))
    }

    /// Asks an engine for all of it. Only `/v1/models` must answer.
    ///
    /// `known` is what it said before: a question that goes unanswered (late, broken) leaves the
    /// old answer in place, since it says nothing; only a refusal (404) says that the engine does
    /// not tell.
    ///
    /// # Errors
    /// When `/v1/models` cannot be asked or understood.
    pub async fn ask(
        client: &EngineClient,
        origin: &Origin,
        authorization: Option<&HeaderValue>,
        known: Option<&Self>,
    ) -> Result<Self, ProbeError> {
        let path = "/v1/models";
        let (status, body) = client.get(origin, path, authorization).await?;
        if status != StatusCode::OK {
            return Err(ProbeError::Status { path, status });
        }
        let mut card = Self::from_models(&body)
            .map_err(|e| ProbeError::Content { path, why: e.to_string() })?;
        let unheard = Self::default();
        let mut questions = Questions {
            client,
            origin,
            authorization,
            known: known.unwrap_or(&unheard),
            unheard: false,
        };
        questions.version(&mut card).await;
        let on_the_page = questions.metrics(&mut card).await;
        questions.event_sources(&mut card).await;
        // The publishers' ranks have the right names; but none may be missing.
        if on_the_page.len() > card.ranks.len() {
            card.ranks.extend(on_the_page);
            card.ranks.sort_unstable();
            card.ranks.dedup();
        }
        if matches!(card.kind, EngineKind::Sglang | EngineKind::Other) {
            questions.sglang(&mut card).await;
        }
        if card.kind == EngineKind::Other {
            questions.llama_cpp(&mut card).await;
        }
        if card.kind == EngineKind::Other && questions.unheard {
            card.kind = questions.known.kind;
        }
        Ok(card)
    }

    /// The base model's identity: what it was loaded from, else its name.
    #[must_use]
    pub fn base(&self) -> &str {
        self.models.first().map_or("", |m| m.root.as_deref().unwrap_or(&m.id))
    }

    /// Whether the engine answers to `model`, as a base model or an adapter.
    #[must_use]
    pub fn serves(&self, model: &str) -> bool {
        self.models.iter().any(|m| m.id == model) || self.adapter(model).is_some()
    }

    /// The adapter of that name.
    #[must_use]
    pub fn adapter(&self, name: &str) -> Option<&Adapter> {
        self.adapters.iter().find(|adapter| adapter.name == name)
    }

    /// What an answer to `GET /v1/models` says of models and adapters.
    ///
    /// # Errors
    /// When it is no such answer.
    pub fn from_models(body: &[u8]) -> Result<Self, serde_json::Error> {
        let list: ModelList = serde_json::from_slice(body)?;
        let mut card = Self::default();
        for entry in list.data {
            let ModelEntry { id, root, parent, max_model_len, owned_by } = entry;
            let kind = owned_by.as_deref().and_then(EngineKind::of_owner);
            card.kind = kind.unwrap_or(card.kind);
            match parent {
                Some(_) => card.adapters.push(Adapter { name: id, path: root }),
                None => card.models.push(ServedModel { id, root, max_model_len }),
            }
        }
        Ok(card)
    }
}

/// The questions an engine need not answer, one after the other.
struct Questions<'a> {
    client: &'a EngineClient,
    origin: &'a Origin,
    authorization: Option<&'a HeaderValue>,
    /// What it said before.
    known: &'a EngineCard,
    /// Some question went unanswered.
    unheard: bool,
}

impl Questions<'_> {
    async fn ask(&mut self, path: &'static str) -> Told {
        let told = optional(self.client, self.origin, path, self.authorization).await;
        self.unheard |= matches!(told, Told::Unheard);
        told
    }

    async fn version(&mut self, card: &mut EngineCard) {
        card.version = match self.ask("/version").await {
            Told::Said(body) => serde_json::from_slice::<Version>(&body).ok().map(|v| v.version),
            Told::Nothing => None,
            Told::Unheard => self.known.version.clone(),
        };
    }

    /// The ranks the page speaks of.
    async fn metrics(&mut self, card: &mut EngineCard) -> Vec<u32> {
        match self.ask("/metrics").await {
            Told::Said(body) => {
                let page = Page::parse(&String::from_utf8_lossy(&body));
                (card.block_size, card.blocks) = (page.block_size, page.blocks);
                card.prefix_caching = page.prefix_caching;
                if card.kind == EngineKind::Other {
                    card.kind = page.kind.unwrap_or_default();
                }
                page.ranks()
            }
            Told::Nothing => Vec::new(),
            Told::Unheard => {
                (card.block_size, card.blocks) = (self.known.block_size, self.known.blocks);
                card.prefix_caching = self.known.prefix_caching;
                self.known.ranks.clone()
            }
        }
    }

    async fn event_sources(&mut self, card: &mut EngineCard) {
        (card.event_sources, card.ranks) = match self.ask("/kv_event_sources").await {
            Told::Said(body) => match event_sources(&body) {
                Some((sources, ranks)) => (Some(sources), ranks),
                None => (None, Vec::new()),
            },
            Told::Nothing => (None, Vec::new()),
            Told::Unheard => (self.known.event_sources.clone(), self.known.ranks.clone()),
        };
    }

    /// What SGLang says of itself, under its new or its old name.
    async fn sglang(&mut self, card: &mut EngineCard) {
        for path in ["/server_info", "/get_server_info"] {
            match self.ask(path).await {
                Told::Said(body) => {
                    let Some(info) = ServerInfo::read(&body) else { continue };
                    card.kind = EngineKind::Sglang;
                    card.version = info.version.or(card.version.take());
                    card.block_size = card.block_size.or(info.page_size);
                    card.prefix_caching = card.prefix_caching.or(info.prefix_caching);
                    if info.ranks.len() > card.ranks.len() {
                        card.ranks = info.ranks;
                    }
                    card.event_sources = card.event_sources.take().or(info.sources);
                    return;
                }
                Told::Nothing => {}
                Told::Unheard if self.known.kind == EngineKind::Sglang => {
                    card.kind = EngineKind::Sglang;
                    card.version.clone_from(&self.known.version);
                    card.block_size = self.known.block_size;
                    card.prefix_caching = self.known.prefix_caching;
                    card.ranks.clone_from(&self.known.ranks);
                    card.event_sources.clone_from(&self.known.event_sources);
                    return;
                }
                Told::Unheard => {}
            }
        }
    }

    async fn llama_cpp(&mut self, card: &mut EngineCard) {
        if let Told::Said(body) = self.ask("/props").await
            && is_llama_cpp(&body)
        {
            card.kind = EngineKind::LlamaCpp;
        }
    }
}

/// What an engine answers to an optional question.
enum Told {
    /// The body of a 200.
    Said(Bytes),
    /// There is no such path: it does not tell.
    Nothing,
    /// No answer, or one that means nothing.
    Unheard,
}

async fn optional(
    client: &EngineClient,
    origin: &Origin,
    path: &'static str,
    authorization: Option<&HeaderValue>,
) -> Told {
    match client.get(origin, path, authorization).await {
        Ok((StatusCode::OK, body)) => Told::Said(body),
        Ok((StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => Told::Nothing,
        Ok((status, _)) => {
            tracing::debug!(%origin, path, %status, "question not answered");
            Told::Unheard
        }
        Err(error) => {
            tracing::debug!(%origin, path, %error, "question not answered");
            Told::Unheard
        }
    }
}

/// The publishers that can be followed, and the ranks with and without one.
fn event_sources(body: &[u8]) -> Option<(Vec<EventSource>, Vec<u32>)> {
    let by_rank: BTreeMap<String, Source> = serde_json::from_slice(body).ok()?;
    let mut ranks: Vec<u32> = by_rank.keys().filter_map(|rank| rank.parse().ok()).collect();
    ranks.sort_unstable();
    let mut sources: Vec<EventSource> = by_rank
        .into_iter()
        .filter(|(_, source)| source.enable_kv_cache_events)
        .filter(|(_, source)| source.publisher.as_deref().is_none_or(|p| p == "zmq"))
        .filter_map(|(rank, source)| {
            Some(EventSource {
                rank: rank.parse().ok()?,
                publisher: source.endpoint?,
                replay: source.replay_endpoint,
                topic: source.topic,
            })
        })
        .collect();
    sources.sort_by_key(|source| source.rank);
    Some((sources, ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_adapters_are_told_apart() {
        let body = br#"{"object":"list","data":[
            {"id":"tiny","root":"/srv/tiny","parent":null,"max_model_len":2048,"x":1},
            {"id":"lora","root":"/srv/lora","parent":"tiny","max_model_len":null}]}"#;
        let card = EngineCard::from_models(body).unwrap();
        assert_eq!(card.base(), "/srv/tiny");
        assert!(card.serves("tiny") && card.serves("lora") && !card.serves("tin"));
        assert_eq!(card.adapter("lora").unwrap().path.as_deref(), Some("/srv/lora"));
        assert_eq!(card.models[0].max_model_len, Some(2048));
    }

    #[test]
    fn event_sources_by_rank_and_only_the_live_ones() {
        let body =
            br#"{"10":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5567"},
            "2":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5559",
                 "replay_endpoint":"tcp://*:6000","topic":"t"},
            "3":{"enable_kv_cache_events":false,"endpoint":"tcp://*:1"},
            "4":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:1"}}"#;
        let (sources, ranks) = event_sources(body).unwrap();
        assert_eq!(ranks, [2, 3, 4, 10], "ranks without a publisher count too");
        assert_eq!(sources.iter().map(|s| s.rank).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(sources[0].replay.as_deref(), Some("tcp://*:6000"));
        assert_eq!(sources[0].topic, "t");
        assert_eq!(event_sources(b"[]"), None);
        assert_eq!(event_sources(b"{}"), Some((Vec::new(), Vec::new())));
    }
}
