//! How a policy is written, as for `kvasirctl replay --policy`, and what it is called in reports.

use std::fmt;
use std::str::FromStr;

use kvasir_balance::PolicySpec;
use serde_json::Value;

use super::SimPolicy;

/// What names no policy, or options that one has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownSimPolicy {
    /// A name that no policy has.
    Name(String),
    /// A JSON object that is no policy of Kvasir's own, and why not.
    Options(String),
}

impl SimPolicy {
    /// Its name, with those of its options that are not the defaults: `latency`,
    /// `precise_cache_aware(blend=soft load_penalty=8)`. There are no commas or quotes in it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Own(spec) => named(spec),
            Self::Peer(peer) => peer.name().to_owned(),
        }
    }
}

fn named(spec: &PolicySpec) -> String {
    let defaults = options(&PolicySpec::from(spec.kind()));
    let told: Vec<String> =
        options(spec).into_iter().filter(|option| !defaults.contains(option)).collect();
    match told.is_empty() {
        true => spec.name().to_owned(),
        false => format!("{}({})", spec.name(), told.join(" ")),
    }
}

/// Every option and its value, those inside others with dots between the names.
fn options(spec: &PolicySpec) -> Vec<String> {
    let mut found = Vec::new();
    // A policy of plain options always makes a value; without options it is its name.
    let value = serde_json::to_value(spec).unwrap_or(Value::Null);
    let members = value.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(name, _)| *name != "name") {
        flatten(name, value, &mut found);
    }
    found
}

fn flatten(name: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(inner, v)| flatten(&format!("{name}.{inner}"), v, found));
        }
        Value::String(text) => found.push(format!("{name}={text}")),
        other => found.push(format!("{name}={other}")),
    }
}

impl FromStr for SimPolicy {
    type Err = UnknownSimPolicy;

    /// A name, or a JSON object of `name` and the options of a policy of Kvasir's own.
    fn from_str(text: &str) -> Result<Self, UnknownSimPolicy> {
        if text.trim_start().starts_with('{') {
            let spec = serde_json::from_str(text);
            return spec.map(Self::Own).map_err(|e| UnknownSimPolicy::Options(e.to_string()));
        }
        Self::all()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| UnknownSimPolicy::Name(text.to_owned()))
    }
}

impl fmt::Display for UnknownSimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Name(name) => name,
            Self::Options(why) => {
                return write!(f, "no policy of Kvasir's own with its options: {why}");
            }
        };
        write!(f, "unknown policy `{name}`, expected one of ")?;
        for (place, policy) in SimPolicy::all().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}`{}`", policy.name())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownSimPolicy {}
