//! What a recording says of the engine: its first line, and who publishes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use kvasir_fleet::{EngineCard, EngineClient, ProbeError, samples};
use kvasir_kv_events::{Address, SubscriberConfig};
use serde_json::{Map, Value, json};

use super::{RecordError, Recording};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A request may wait behind others.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Families whose values end a recording.
const FAMILIES: [&str; 5] = [
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
];

/// An engine that answered.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) client: EngineClient,
    recording: Recording,
    /// The recording's first line.
    pub(super) meta: Value,
    /// The model to name in requests that name none.
    pub(super) model: String,
    pub(super) publishers: Vec<Publisher>,
}

/// One publisher to listen to.
#[derive(Debug)]
pub(super) struct Publisher {
    /// Names it on its lines; `None` where it is the only one.
    pub(super) label: Option<(String, u32)>,
    pub(super) config: SubscriberConfig,
}

/// An HTTP answer, as recordings have it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// JSON, or text where it is none.
    pub(super) body: Value,
}

impl Engine {
    /// Asks what the engine is. Only `/v1/models` must answer.
    pub(super) async fn ask(recording: &Recording) -> Result<Self, RecordError> {
        let client = EngineClient::new(CONNECT_TIMEOUT).with_headers(recording.headers.clone());
        let origin = &recording.origin;
        let path = "/v1/models";
        let answered = client.get(origin, path, None).await;
        let (status, body) = answered.map_err(|error| RecordError::Engine { path, error })?;
        let wrong = |error| RecordError::Engine { path, error };
        if status != StatusCode::OK {
            return Err(wrong(ProbeError::Status { path, status }));
        }
        let card = EngineCard::from_models(&body)
            .map_err(|e| wrong(ProbeError::Content { path, why: e.to_string() }))?;
        let version = client.get(origin, "/version", None).await;
        let sources = client.get(origin, "/kv_event_sources", None).await;
        let told = sources.as_ref().ok().filter(|(status, _)| *status == StatusCode::OK);
        let told = told.map(|(_, body)| parsed(body)).unwrap_or_default();
        let publishers = publishers(recording, &told)?;
        let first = publishers.first().map(|publisher| &publisher.config);
        let cache = cache_config(&client, recording).await;
        let version = version.map_or(Value::Null, |(_, body)| parsed(&body));
        let meta = json!({
            "kind": "meta",
            "recorder": concat!("kvasirctl ", env!("CARGO_PKG_VERSION")),
            "version": version["version"],
            "block_size": cache.as_ref().and_then(|cache| cache.get("block_size")),
            "base": origin.url(),
            "endpoint": first.map(|config| config.address.to_string()),
            "replay": first.and_then(|config| config.replay.as_ref()).map(ToString::to_string),
            "started": seconds(SystemTime::now()),
            "server_version": version,
            "models": parsed(&body),
            "cache_config_info": cache,
            "kv_event_sources":
                sources.map_or(Value::Null, |(status, body)| json!([status.as_u16(), parsed(&body)])),
        });
        let model = card.models.first().map(|model| model.id.clone()).unwrap_or_default();
        Ok(Self { client, recording: recording.clone(), meta, model, publishers })
    }

    /// Posts JSON and waits long for the answer.
    pub(super) async fn post(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &Value,
    ) -> Result<Answer, ProbeError> {
        let mut all = self.recording.headers.clone();
        all.extend(headers.clone());
        let client = self.client.clone().with_headers(all);
        let body = Bytes::from(body.to_string());
        let origin = &self.recording.origin;
        let (status, body) = client.post_json(origin, path, body, ANSWER_TIMEOUT).await?;
        Ok(Answer { status: status.as_u16(), body: parsed(&body) })
    }

    /// The values of a few series; empty where there are none.
    pub(super) async fn metrics(&self) -> Value {
        let asked = self.client.get(&self.recording.origin, "/metrics", None).await;
        let page = asked.map(|(_, body)| String::from_utf8_lossy(&body).into_owned());
        let page = page.unwrap_or_default();
        let values = samples(&page).filter(|sample| FAMILIES.contains(&sample.name));
        let values = values.map(|sample| (sample.name.to_owned(), sample.value.to_string().into()));
        Value::Object(values.collect::<Map<_, Value>>())
    }
}

/// Seconds since the epoch.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The given publisher, or those the engine names.
fn publishers(recording: &Recording, told: &Value) -> Result<Vec<Publisher>, RecordError> {
    if let Some(events) = &recording.events {
        let config = config(recording, events, recording.replay.as_deref(), &recording.topic)?;
        return Ok(vec![Publisher { label: None, config }]);
    }
    let by_rank = told.as_object().into_iter().flatten();
    let mut named: Vec<(u32, &Value)> = by_rank
        .filter(|(_, source)| source["enable_kv_cache_events"] == true)
        .filter(|(_, source)| matches!(source["publisher"].as_str(), None | Some("zmq")))
        .filter_map(|(rank, source)| Some((rank.parse().ok()?, source)))
        .collect();
    named.sort_by_key(|(rank, _)| *rank);
    let several = named.len() > 1;
    let publisher = |(rank, source): (u32, &Value)| {
        let events = source["endpoint"].as_str().ok_or(RecordError::NoPublisher)?;
        let topic = source["topic"].as_str().unwrap_or_default();
        let config = config(recording, events, source["replay_endpoint"].as_str(), topic)?;
        let label = several.then(|| (config.address.to_string(), rank));
        Ok(Publisher { label, config })
    };
    let publishers = named.into_iter().map(publisher).collect::<Result<Vec<_>, RecordError>>()?;
    if publishers.is_empty() { Err(RecordError::NoPublisher) } else { Ok(publishers) }
}

fn config(
    recording: &Recording,
    events: &str,
    replay: Option<&str>,
    topic: &str,
) -> Result<SubscriberConfig, RecordError> {
    let host = recording.origin.authority().host();
    let resolve = |what, address: &str| {
        Address::resolve(address, host).map_err(|error| RecordError::Address {
            what,
            address: address.to_owned(),
            error,
        })
    };
    let mut config = SubscriberConfig::new(resolve("event publisher", events)?);
    config.replay = replay.map(|replay| resolve("replay socket", replay)).transpose()?;
    topic.clone_into(&mut config.topic);
    config.queue = 10_000;
    Ok(config)
}

/// The labels of `vllm:cache_config_info`.
async fn cache_config(client: &EngineClient, recording: &Recording) -> Option<Map<String, Value>> {
    let (_, body) = client.get(&recording.origin, "/metrics", None).await.ok()?;
    let page = String::from_utf8_lossy(&body);
    let sample = samples(&page).find(|sample| sample.name == "vllm:cache_config_info")?;
    Some(sample.labels().map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// JSON, or text where it is none.
fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into())
}
