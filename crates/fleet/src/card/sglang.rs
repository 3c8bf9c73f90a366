//! What SGLang says of itself, and of its event publishers.

use serde::Deserialize;
use serde_json::Value;

use super::EventSource;

/// The most data-parallel ranks taken at an engine's word.
const MAX_RANKS: u64 = 4096;

/// What SGLang says at `/server_info` (`/get_server_info` in older releases).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) version: Option<String>,
    pub(crate) page_size: Option<u32>,
    pub(crate) prefix_caching: Option<bool>,
    pub(crate) ranks: Vec<u32>,
    /// `None` where no events are configured.
    pub(crate) sources: Option<Vec<EventSource>>,
}

#[derive(Deserialize)]
struct Info {
    // Every release has it, and no other engine.
    page_size: Value,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    dp_size: Option<u64>,
    #[serde(default)]
    disable_radix_cache: Value,
    #[serde(default)]
    kv_events_config: Value,
}

#[derive(Deserialize)]
struct EventsConfig {
    #[serde(default)]
    publisher: Option<String>,
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: Option<String>,
}

impl ServerInfo {
    /// `None` for a body that is not SGLang's.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let info: Info = serde_json::from_slice(body).ok()?;
        let page_size = info.page_size.as_u64().and_then(|size| u32::try_from(size).ok());
        let ranks = u32::try_from(info.dp_size.unwrap_or(1).clamp(1, MAX_RANKS)).unwrap_or(1);
        let config = match &info.kv_events_config {
            // It is a command-line argument: JSON within JSON.
            Value::String(text) => serde_json::from_str::<EventsConfig>(text).ok(),
            Value::Object(_) => serde_json::from_value(info.kv_events_config).ok(),
            _ => None,
        };
        let sources = config.filter(|config| config.publisher.as_deref() == Some("zmq"));
        Some(Self {
            version: info.version,
            page_size: page_size.filter(|size| *size > 0),
            prefix_caching: info.disable_radix_cache.as_bool().map(|disabled| !disabled),
            ranks: (0..ranks).collect(),
            sources: sources.map(|config| config.sources(ranks)),
        })
    }
}

impl EventsConfig {
    /// The ports of the ranks are consecutive.
    fn sources(&self, ranks: u32) -> Vec<EventSource> {
        let base = self.endpoint.as_deref().unwrap_or("tcp://*:5557");
        let at = |base: &str, rank| {
            let address = kvasir_kv_events::Address::parse(base).ok()?;
            Some(address.for_rank(rank).ok()?.to_string())
        };
        (0..ranks)
            .filter_map(|rank| {
                Some(EventSource {
                    rank,
                    publisher: at(base, rank)?,
                    replay: self.replay_endpoint.as_deref().and_then(|base| at(base, rank)),
                    topic: self.topic.clone().unwrap_or_default(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sglang_tells_its_pages_ranks_and_publishers() {
        let config = r#"{\"publisher\":\"zmq\",\"topic\":\"kv\",\"endpoint\":\"tcp://*:6000\",\"replay_endpoint\":\"tcp://*:7000\"}"#;
        let body = format!(
            r#"{{"version":"0.5.23","page_size":64,"dp_size":2,"kv_events_config":"{config}"}}"#
        );
        let info = ServerInfo::read(body.as_bytes()).unwrap();
        assert_eq!((info.version.as_deref(), info.page_size), (Some("0.5.23"), Some(64)));
        assert_eq!(info.ranks, [0, 1]);
        let second = EventSource {
            rank: 1,
            publisher: "tcp://*:6001".to_owned(),
            replay: Some("tcp://*:7001".to_owned()),
            topic: "kv".to_owned(),
        };
        assert_eq!(info.sources.unwrap()[1], second);
        let off = br#"{"page_size":1,"disable_radix_cache":true}"#;
        let off = ServerInfo::read(off).unwrap();
        assert_eq!((info.prefix_caching, off.prefix_caching), (None, Some(false)));
        let quiet = br#"{"page_size":1,"kv_events_config":null,"dp_size":18446744073709551615}"#;
        let quiet = ServerInfo::read(quiet).unwrap();
        assert_eq!((quiet.sources, quiet.ranks.len()), (None, 4096));
        let defaults = br#"{"page_size":1,"kv_events_config":{"publisher":"zmq"}}"#;
        let sources = ServerInfo::read(defaults).unwrap().sources.unwrap();
        assert_eq!((&*sources[0].publisher, sources[0].replay.as_ref()), ("tcp://*:5557", None));
        // vLLM has the path too, in its development mode.
        assert_eq!(ServerInfo::read(br#"{"vllm_config":{"cache_config":{}}}"#), None);
        assert_eq!(ServerInfo::read(b"[1"), None);
    }
}
