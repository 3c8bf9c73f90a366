//! What two texts of a configuration say differently, key by key.
//!
//! It reads the texts without their types, so that it knows every key there will ever be. Pools are
//! named by their models and endpoints by their URLs, not by their places.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::hidden::{hide_in_url, hide_secrets, is_secret_key};
use crate::secret::MASK;

/// Longer values are cut.
const MAX_VALUE_CHARS: usize = 120;

/// One key with another value. Secrets show that they changed, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key, as a path such as `pools[llama].endpoints[http://a:8000].weight`.
    pub key: String,
    /// What it was; `None` where it was not there.
    pub before: Option<String>,
    /// What it is.
    pub after: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, before, after } = self;
        match (before, after) {
            (Some(before), Some(after)) => write!(f, "{key}: {before} -> {after}"),
            (None, Some(after)) => write!(f, "{key}: added, {after}"),
            (Some(before), None) => write!(f, "{key}: removed, was {before}"),
            (None, None) => f.write_str(key),
        }
    }
}

/// What `after` says otherwise than `before`, in the order of keys. A text that is no YAML says
/// nothing.
#[must_use]
pub fn differences(before: &str, after: &str) -> Vec<Difference> {
    let read = |text: &str| {
        let mut leaves = BTreeMap::new();
        if let Ok(tree) = serde_saphyr::from_str::<Value>(text) {
            flatten(String::new(), &tree, false, &mut leaves);
        }
        leaves
    };
    let (before, mut after) = (read(before), read(after));
    let mut found = Vec::new();
    for (key, was) in before {
        let is = after.remove(&key);
        if is.as_ref() != Some(&was) {
            found.push(Difference {
                key,
                before: Some(was.shown()),
                after: is.as_ref().map(Leaf::shown),
            });
        }
    }
    let added =
        |(key, is): (String, Leaf)| Difference { key, before: None, after: Some(is.shown()) };
    found.extend(after.into_iter().map(added));
    found.sort_by(|one, other| one.key.cmp(&other.key));
    found
}

/// A value that is compared as a whole.
#[derive(PartialEq)]
struct Leaf {
    value: Value,
    secret: bool,
}

impl Leaf {
    fn shown(&self) -> String {
        if self.secret {
            return MASK.to_owned();
        }
        let mut value = self.value.clone();
        hide_secrets(&mut value);
        let text = value.to_string();
        match text.char_indices().nth(MAX_VALUE_CHARS) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        }
    }
}

fn flatten(key: String, value: &Value, secret: bool, leaves: &mut BTreeMap<String, Leaf>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(below, value, secret || is_secret_key(name), leaves);
            }
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            for (place, value) in list.iter().enumerate() {
                let named = ["model", "url"].into_iter().find_map(|name| value.get(name)?.as_str());
                let name =
                    named.map_or_else(|| place.to_string(), |name| hide_in_url(name).into_owned());
                flatten(format!("{key}[{name}]"), value, secret, leaves);
            }
        }
        _ => {
            leaves.insert(key, Leaf { value: value.clone(), secret });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        differences(before, after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn keys_are_named_by_models_and_urls_whatever_their_order() {
        let before = "
listen: 1.2.3.4:5
forward_paths: [/a]
pools:
  - {model: a, policy: latency, endpoints: [{url: 'http://x:1', weight: 50}, {url: 'http://y:1'}]}
  - {model: b, endpoints: [{url: 'http://x:1'}]}
";
        let after = "
listen: 1.2.3.4:5
forward_paths: [/a, /b]
pools:
  - {model: b, endpoints: [{url: 'http://x:1'}]}
  - model: a
    policy: {name: cache_aware, balance_abs_threshold: 3}
    endpoints: [{url: 'http://z:1'}, {url: 'http://x:1', weight: 60}]
";
        assert_eq!(
            shown(before, after),
            [
                "forward_paths: [\"/a\"] -> [\"/a\",\"/b\"]",
                "pools[a].endpoints[http://x:1].weight: 50 -> 60",
                "pools[a].endpoints[http://y:1].url: removed, was \"http://y:1\"",
                "pools[a].endpoints[http://z:1].url: added, \"http://z:1\"",
                "pools[a].policy: removed, was \"latency\"",
                "pools[a].policy.balance_abs_threshold: added, 3",
                "pools[a].policy.name: added, \"cache_aware\"",
            ]
        );
        assert!(differences(before, before).is_empty());
    }

    #[test]
    fn secrets_are_never_shown() {
        let before = "
api_keys: [one, two]
pools:
  - {model: a, api_key: hush, identity: {engine: {algorithm: sha256, seed: whisper}}}
";
        let after = "
api_keys: [three]
api_keys_file: /keys
pools:
  - {model: a, api_key: murmur, identity: {engine: {algorithm: sha256, seed: mutter}}}
";
        assert_eq!(
            shown(before, after),
            [
                "api_keys: *** -> ***",
                "api_keys_file: added, \"/keys\"",
                "pools[a].api_key: *** -> ***",
                "pools[a].identity.engine.seed: *** -> ***",
            ]
        );
        assert_eq!(shown(before, "[: no yaml").len(), 5, "all of it is gone");
    }

    #[test]
    fn long_values_are_cut() {
        let after = format!("log: {{level: {}}}", "ü".repeat(500));
        let [difference] = &differences("log: {level: info}", &after)[..] else { panic!() };
        assert_eq!(difference.after.as_ref().unwrap().chars().count(), MAX_VALUE_CHARS + 1);
    }
}
