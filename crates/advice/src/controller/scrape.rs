//! Asking engines for their metrics, and the gateway for its endpoints: over sockets, with deadlines and
//! limits.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderValue, StatusCode};
use kvasir_fleet::{EngineClient, Origin};
use kvasir_upstream::bearer;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::advisor::Advisor;
use super::run::GatewaySource;
use super::telemetry::Reading;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(2);
/// Engines asked at one time.
const AT_ONCE: usize = 32;

/// Asks all engines every `interval`, for ever.
pub(super) async fn engines(advisor: Arc<Mutex<Advisor>>, interval: Duration, start: Instant) {
    let client = EngineClient::new(CONNECT);
    let mut every = tokio::time::interval(interval);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        every.tick().await;
        let engines = advisor.lock().to_ask();
        let mut asking = JoinSet::new();
        for (name, address) in engines {
            let (client, places, advisor) =
                (client.clone(), Arc::clone(&places), Arc::clone(&advisor));
            asking.spawn(async move {
                let Ok(_place) = places.acquire().await else { return };
                let page = page(&client, &address).await;
                advisor.lock().read(&name, page, start.elapsed());
            });
        }
        while asking.join_next().await.is_some() {}
    }
}

async fn page(client: &EngineClient, address: &str) -> Result<Reading, String> {
    let authority: Authority = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let origin = Origin::at(authority, false).map_err(|error| error.to_string())?;
    let text = text(client, &origin, "/metrics", None).await?;
    Reading::parse(&text)
}

async fn text(
    client: &EngineClient,
    origin: &Origin,
    path: &str,
    authorization: Option<&HeaderValue>,
) -> Result<String, String> {
    let answer = client.get(origin, path, authorization).await;
    let (status, body) = answer.map_err(|error| error.to_string())?;
    if status != StatusCode::OK {
        return Err(format!("{path} answered {status}"));
    }
    String::from_utf8(body.into()).map_err(|_| format!("{path} is not UTF-8"))
}

/// Looks hosts without an address up at the gateway every `interval`, for ever.
pub(super) async fn gateway(
    advisor: Arc<Mutex<Advisor>>,
    source: GatewaySource,
    interval: Duration,
) {
    let client = EngineClient::new(CONNECT);
    let mut failed = false;
    loop {
        if advisor.lock().needs_gateway() {
            match endpoints(&client, &source).await {
                Ok(endpoints) => {
                    failed = false;
                    advisor.lock().resolve(&endpoints);
                }
                Err(why) if !failed => {
                    failed = true;
                    tracing::warn!(
                        why,
                        state = "gateway_unread",
                        "the gateway's endpoints are not known"
                    );
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(interval).await;
    }
}

/// The engines of a pool, each once, in the gateway's order: `GET /api/v1/pools/{model}`.
async fn endpoints(client: &EngineClient, source: &GatewaySource) -> Result<Vec<String>, String> {
    let path = format!("/api/v1/pools/{}", percent(&source.pool));
    let token = source.token.as_deref().map(bearer);
    let token = token.transpose().map_err(|_| "the token cannot be sent in a header".to_owned())?;
    let text = text(client, &source.origin, &path, token.as_ref()).await?;
    let pool: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let listed =
        pool["endpoints"].as_array().ok_or_else(|| format!("{path}: it has no `endpoints`"))?;
    let mut engines: Vec<String> = Vec::new();
    for endpoint in listed {
        let url =
            endpoint["url"].as_str().ok_or_else(|| format!("{path}: an endpoint without `url`"))?;
        let Some(address) = url.strip_prefix("http://") else {
            return Err(format!("{path}: {url} is not reached in plain text"));
        };
        if !engines.iter().any(|known| known == address) {
            engines.push(address.to_owned());
        }
    }
    Ok(engines)
}

/// A segment of a path.
fn percent(segment: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let bytes = segment.bytes();
    bytes
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
