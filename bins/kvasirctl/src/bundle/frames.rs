//! Event messages of every engine of a gateway, recorded from here for a while.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use kvasir_config::EngineUrl;
use kvasir_doctor::{Recording, record};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::gateway::view::{list, text};
use crate::{engine_origin, stop};

/// Engines that are recorded at most, and bytes of each.
const MOST_ENGINES: usize = 16;
const MOST_BYTES: usize = 32 << 20;
/// How long asking an engine may take beyond listening.
const ASKING: Duration = Duration::from_secs(30);

/// The file of an engine: its lines, or why there are none.
type Recorded = (String, Result<Vec<u8>, String>);

/// Records all engines of a gateway's configuration at once. None is sent a request, and no queue that
/// the gateway drains is touched.
pub(super) async fn record_all(config: &Value, listen: Duration) -> Vec<Recorded> {
    let engines = engines(config);
    let mut done = Vec::new();
    let mut tasks = JoinSet::new();
    for (place, (url, endpoint)) in engines.into_iter().enumerate() {
        let name = format!("frames/{}.jsonl", file_name(&url));
        if place >= MOST_ENGINES {
            done.push((name, Err(format!("only {MOST_ENGINES} engines are recorded"))));
            continue;
        }
        match recording(&url, &endpoint, listen) {
            Ok(recording) => {
                tasks.spawn(async move { (name, one(&recording, listen + ASKING).await) });
            }
            Err(why) => done.push((name, Err(why))),
        }
    }
    while let Some(ended) = tasks.join_next().await {
        done.extend(ended.ok());
    }
    done.sort_by(|a, b| a.0.cmp(&b.0));
    done
}

/// Every engine once, with what the configuration says of it.
fn engines(config: &Value) -> BTreeMap<String, Value> {
    let endpoints = list(config, "pools").iter().flat_map(|pool| list(pool, "endpoints"));
    endpoints.map(|one| (text(one, "url").to_owned(), one.clone())).collect()
}

fn file_name(url: &str) -> String {
    let bare = url.split_once("://").map_or(url, |(_, bare)| bare);
    bare.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect()
}

fn recording(url: &str, endpoint: &Value, listen: Duration) -> Result<Recording, String> {
    let url: EngineUrl = url.parse()?;
    let own = |key: &str| Some(text(endpoint, key).to_owned()).filter(|text| !text.is_empty());
    let events = own("events");
    if events.as_deref() == Some("poll") {
        return Err("its events have one consumer, which is the gateway".to_owned());
    }
    if endpoint["bind"] == true {
        return Err("it connects to the gateway, so that nobody else can listen".to_owned());
    }
    let origin = engine_origin::of_url(&url).map_err(|error| format!("{error:#}"))?;
    let replay = own("replay").filter(|_| events.is_some());
    let topic = own("topic").filter(|_| events.is_some()).unwrap_or_default();
    let (headers, prompts) = (HeaderMap::new(), Vec::new());
    Ok(Recording { origin, headers, events, replay, topic, prompts, listen: Some(listen) })
}

/// What was heard until the end, or until something went wrong.
async fn one(recording: &Recording, patience: Duration) -> Result<Vec<u8>, String> {
    let heard = Heard::default();
    let stopped = stop::requested().map_err(|error| format!("{error:#}"))?;
    let work = record(recording, heard.clone(), stopped);
    let ended = tokio::time::timeout(patience, work).await;
    let lines = heard.take();
    match ended {
        _ if !lines.is_empty() => Ok(lines),
        Ok(Ok(_)) => Err("nothing was recorded".to_owned()),
        Ok(Err(error)) => Err(format!("{:#}", anyhow::anyhow!(error))),
        Err(_) => Err(format!("no end within {} s", patience.as_secs())),
    }
}

/// Lines in memory, so many bytes at most.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() + bytes.len() > MOST_BYTES {
            return Err(io::Error::other("the recording is full"));
        }
        heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn engines_are_recorded_once_and_queues_of_one_consumer_not_at_all() {
        let config = json!({"pools": [
            {"endpoints": [{"url": "http://a:1"}, {"url": "http://b:1", "events": "poll"}]},
            {"endpoints": [{"url": "http://a:1"}, {"url": "http://c:1", "bind": true}]},
        ]});
        let all = engines(&config);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["http://a:1", "http://b:1", "http://c:1"]);
        let made = |url: &str| recording(url, &all[url], Duration::from_secs(1));
        assert!(made("http://a:1").is_ok());
        assert!(made("http://b:1").is_err() && made("http://c:1").is_err());
        assert_eq!(file_name("http://[::1]:80"), "___1__80");
    }
}
