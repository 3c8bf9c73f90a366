//! Which keys of pools and endpoints can be changed, and how a value gets there.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Patch;
use crate::bounds::Wrong;
use crate::endpoint::{EndpointConfig, EngineUrl};
use crate::model::Config;
use crate::pool::PoolConfig;

/// The keys of a pool that can be changed.
pub const POOL_KEYS: [&str; 7] =
    ["policy", "fallback", "slo_ttft_ms", "decision_headers", "sticky", "shadow", "disaggregation"];

/// Those of them whose value is an object of settings of their own: what a change leaves out stays.
const SECTIONS: [&str; 2] = ["sticky", "disaggregation"];

/// The keys of an endpoint that can be changed.
pub const ENDPOINT_KEYS: [&str; 4] = ["weight", "state", "role", "group"];

/// Those of them that an engine has once, whichever pools it is in.
pub(super) const ENGINE_KEYS: [&str; 3] = ["weight", "state", "role"];

/// Host and port as [`EngineUrl`] writes them; what is no engine's address stays as it is.
pub(super) fn authority(name: &str) -> String {
    let url: Result<EngineUrl, String> = format!("http://{name}").parse();
    url.map_or_else(|_| name.to_owned(), |url| url.authority().to_string())
}

/// Takes new values over into a patch; `null` takes a value out of it. Of sections likewise, key by key.
pub(super) fn merge(into: &mut Patch, new: &Patch) {
    for (key, value) in new {
        let value = match value {
            Value::Object(new) if is_section(key) => section(into.get(key), new),
            value => Some(value.clone()),
        };
        match value.filter(|value| !value.is_null()) {
            Some(value) => into.insert(key.clone(), value),
            None => into.remove(key),
        };
    }
}

/// A section's changes with new ones; nothing is left of one of which all was reset.
fn section(known: Option<&Value>, new: &Patch) -> Option<Value> {
    let mut all = known.and_then(Value::as_object).cloned().unwrap_or_default();
    merge(&mut all, new);
    (!all.is_empty() || new.is_empty()).then_some(Value::Object(all))
}

fn is_section(key: &str) -> bool {
    SECTIONS.contains(&key)
}

/// A section with what was changed of it on top.
fn on_top<T: Serialize + DeserializeOwned>(
    key: &str,
    section: Option<&T>,
    value: &Value,
) -> Result<Option<T>, Wrong> {
    let Value::Object(changed) = value else { return read(key, value) };
    let known = section.map(serde_json::to_value).transpose();
    let known = known.map_err(|error| (key.to_owned(), error.to_string()))?;
    let mut whole = match known {
        Some(Value::Object(known)) => known,
        _ => Patch::new(),
    };
    whole.extend(changed.clone());
    read(key, &whole.into())
}

/// Sets one key of a pool.
pub(super) fn set_pool(pool: &mut PoolConfig, key: &str, value: &Value) -> Result<(), Wrong> {
    match key {
        "policy" => pool.policy = read(key, value)?,
        "fallback" => pool.fallback = read(key, value)?,
        "slo_ttft_ms" => pool.slo_ttft_ms = read(key, value)?,
        "decision_headers" => pool.decision_headers = read(key, value)?,
        "sticky" => pool.sticky = on_top(key, pool.sticky.as_ref(), value)?,
        "shadow" => pool.shadow = read(key, value)?,
        "disaggregation" => {
            pool.disaggregation = on_top(key, pool.disaggregation.as_ref(), value)?;
        }
        _ => return Err(no_key(key, &POOL_KEYS)),
    }
    Ok(())
}

/// Sets one key of an endpoint that its pool says for itself.
pub(super) fn set_endpoint(
    endpoint: &mut EndpointConfig,
    key: &str,
    value: &Value,
) -> Result<(), Wrong> {
    match key {
        "group" => endpoint.group = read(key, value)?,
        _ => return Err(no_key(key, &ENDPOINT_KEYS)),
    }
    Ok(())
}

/// Sets one key that an engine has once, wherever the engine is mentioned.
pub(super) fn set_engine(
    config: &mut Config,
    engine: &str,
    key: &str,
    value: &Value,
) -> Result<(), Wrong> {
    let all = config.pools.iter_mut().flat_map(|pool| &mut pool.endpoints);
    let mut mentions = all.filter(|one| one.url.authority().as_str() == engine).peekable();
    if mentions.peek().is_none() {
        return Err((key.to_owned(), "no pool has this engine".to_owned()));
    }
    for mention in mentions {
        match key {
            "weight" => mention.weight = read(key, value)?,
            "state" => mention.state = read(key, value)?,
            "role" => mention.role = read(key, value)?,
            _ => return Err(no_key(key, &ENDPOINT_KEYS)),
        }
    }
    Ok(())
}

/// A pool as it was given.
pub(super) fn pool(value: &Value) -> Result<PoolConfig, Wrong> {
    // Whoever may make pools also says where they are: any variable and any file of this machine could
    // be sent there.
    let secret = ["api_key", "api_key_env", "api_key_file"];
    if let Some(key) = secret.into_iter().find(|key| value.get(*key).is_some()) {
        let why =
            "is not taken here: pools whose engines want a key stand in the configuration file";
        return Err((key.to_owned(), why.to_owned()));
    }
    if let Some(Value::Array(list)) = value.get("endpoints") {
        for (place, one) in list.iter().enumerate() {
            endpoint(one).map_err(|(key, why)| (format!("endpoints[{place}].{key}"), why))?;
        }
    }
    whole(value, &json!({"model": "m", "endpoints": []}))
}

/// An endpoint as it was given.
pub(super) fn endpoint(value: &Value) -> Result<EndpointConfig, Wrong> {
    whole(value, &json!({"url": "http://h:1"}))
}

/// Reads all of an object. Where that fails, the key that is to blame is the one that does not go with
/// what is `needed` alone.
fn whole<T: DeserializeOwned>(value: &Value, needed: &Value) -> Result<T, Wrong> {
    let Value::Object(map) = value else {
        return Err((String::new(), "must be a JSON object".to_owned()));
    };
    let error = match T::deserialize(value) {
        Ok(whole) => return Ok(whole),
        Err(error) => error,
    };
    for (key, value) in map {
        let mut alone = needed.clone();
        alone[key] = value.clone();
        if let Err(error) = T::deserialize(&alone) {
            return Err((key.clone(), error.to_string()));
        }
    }
    let missing = needed
        .as_object()
        .and_then(|needed| needed.keys().find(|key| !map.contains_key(*key)).map(String::to_owned));
    Err((missing.unwrap_or_default(), error.to_string()))
}

fn read<T: DeserializeOwned>(key: &str, value: &Value) -> Result<T, Wrong> {
    T::deserialize(value).map_err(|error| (key.to_owned(), error.to_string()))
}

pub(super) fn no_key(key: &str, known: &[&str]) -> Wrong {
    (key.to_owned(), format!("cannot be changed; what can: {}", known.join(", ")))
}
