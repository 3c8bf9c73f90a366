//! What the server that decodes asks of the one that has computed the prompt:
//! `POST /sim/kv/pull`, answered when the transfer is over.

use std::time::Duration;

use serde_json::{Value, json};

use super::params::Source;

/// The path.
pub(super) const PATH: &str = "/sim/kv/pull";

/// The longest transfer, a guard against what nobody means.
const MAX_TIME: Duration = Duration::from_secs(600);

/// One transfer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pull {
    pub(super) source: Source,
    /// Tokens that need not be transferred.
    pub(super) have: usize,
    /// A number made of the prompt's tokens.
    pub(super) prompt: u64,
    /// What it takes whatever its size.
    pub(super) fixed: Duration,
    /// Tokens a second.
    pub(super) rate: f64,
    /// It is to fail.
    pub(super) fails: bool,
}

impl Pull {
    /// How long it takes for a prompt of so many tokens.
    pub(super) fn time(&self, tokens: usize) -> Duration {
        let moved = tokens.saturating_sub(self.have) as f64 / self.rate;
        let moved = Duration::try_from_secs_f64(moved).unwrap_or(MAX_TIME);
        self.fixed.saturating_add(moved).min(MAX_TIME)
    }

    pub(super) fn to_json(&self) -> Value {
        let mut body = json!({"have": self.have, "prompt": self.prompt.to_string(),
            "fixed_us": self.fixed.as_micros() as u64, "tokens_per_s": self.rate,
            "fails": self.fails});
        match &self.source {
            Source::Room(room) => body["room"] = json!(room),
            Source::Lease { name, engine } => {
                body["request"] = json!(name);
                body["engine"] = json!(engine);
            }
        }
        body
    }

    /// `None` for anything but what [`Pull::to_json`] gives.
    pub(super) fn read(body: &Value) -> Option<Self> {
        let source = match (body["room"].as_u64(), body["request"].as_str()) {
            (Some(room), None) => Source::Room(room),
            (None, Some(name)) => Source::Lease {
                name: name.to_owned(),
                engine: body["engine"].as_str().map(str::to_owned),
            },
            _ => return None,
        };
        let rate = body["tokens_per_s"].as_f64().filter(|rate| *rate > 0.0)?;
        Some(Self {
            source,
            have: usize::try_from(body["have"].as_u64()?).ok()?,
            prompt: body["prompt"].as_str()?.parse().ok()?,
            fixed: Duration::from_micros(body["fixed_us"].as_u64()?),
            rate,
            fails: body["fails"].as_bool()?,
        })
    }
}
