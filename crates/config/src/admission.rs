//! What a pool takes at once, and who waits: the section `admission` of a pool in the file. What it does is
//! in `fleet::admission`.

use std::time::Duration;

use http::HeaderName;
use serde::{Deserialize, Serialize};

use crate::bounds::HOUR_MS;

/// Requests that wait are kept in memory.
const MOST_PLACES: usize = 100_000;
/// More than any fleet has in hand.
const MOST_REQUESTS: u32 = 1_000_000;
const MOST_TOKENS: u64 = 1_000_000_000_000;

/// What a pool takes at once, and who waits. Everything and nobody by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionConfig {
    /// Requests at all its endpoints together.
    pub max_requests: Option<u32>,
    /// Prompt tokens yet to be computed at all of them together.
    pub max_prefill_tokens: Option<u64>,
    /// The limits of each endpoint.
    pub endpoint: EndpointAdmission,
    /// Who waits where there is no room.
    pub queue: QueueConfig,
    /// How long requests wait where no endpoint is ready, in milliseconds. Default 0.
    pub hold_ms: u64,
    /// The header that names the tenant whose share a request is counted for.
    pub tenant_header: Option<String>,
    /// The header that says how soon a request comes.
    pub priority_header: Option<String>,
    /// The header that says how long the client waits, in seconds.
    pub timeout_header: Option<String>,
}

/// What one endpoint takes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointAdmission {
    /// Requests.
    pub max_requests: Option<u32>,
    /// Prompt tokens yet to be computed.
    pub max_prefill_tokens: Option<u64>,
    /// The used share of its KV cache at which it gets no more requests, up to 1.
    pub max_kv_usage: Option<f64>,
}

/// Who waits where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// How many. Default 0: nobody.
    pub places: usize,
    /// How long each, in milliseconds. Default 10000.
    pub max_wait_ms: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { places: 0, max_wait_ms: 10_000 }
    }
}

impl QueueConfig {
    /// How long each waits.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait_ms)
    }
}

impl AdmissionConfig {
    /// Whether anything can keep a request waiting or turn it away.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.has_limits() || self.hold_ms > 0
    }

    /// How long requests wait where no endpoint is ready.
    #[must_use]
    pub fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms)
    }

    fn has_limits(&self) -> bool {
        let EndpointAdmission { max_requests, max_prefill_tokens, max_kv_usage } = self.endpoint;
        self.max_requests.or(max_requests).is_some()
            || self.max_prefill_tokens.or(max_prefill_tokens).is_some()
            || max_kv_usage.is_some()
    }

    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        let fail = |key: &str, message: String| Err((key.to_owned(), message));
        for (key, value) in [
            ("max_requests", self.max_requests),
            ("endpoint.max_requests", self.endpoint.max_requests),
        ] {
            if value.is_some_and(|value| !(1..=MOST_REQUESTS).contains(&value)) {
                return fail(key, format!("must be from 1 to {MOST_REQUESTS}"));
            }
        }
        for (key, value) in [
            ("max_prefill_tokens", self.max_prefill_tokens),
            ("endpoint.max_prefill_tokens", self.endpoint.max_prefill_tokens),
        ] {
            if value.is_some_and(|value| !(1..=MOST_TOKENS).contains(&value)) {
                return fail(key, format!("must be from 1 to {MOST_TOKENS}"));
            }
        }
        if self.endpoint.max_kv_usage.is_some_and(|most| !(most > 0.0 && most <= 1.0)) {
            return fail("endpoint.max_kv_usage", "must be above 0 and at most 1".to_owned());
        }
        if self.queue.places > MOST_PLACES {
            return fail("queue.places", format!("must be from 0 to {MOST_PLACES}"));
        }
        if !(1..=HOUR_MS).contains(&self.queue.max_wait_ms) {
            return fail("queue.max_wait_ms", format!("must be from 1 to {HOUR_MS} (an hour)"));
        }
        if self.hold_ms > HOUR_MS {
            return fail("hold_ms", format!("must be from 0 to {HOUR_MS} (an hour)"));
        }
        if self.hold_ms > 0 && self.queue.places == 0 {
            return fail("hold_ms", "who is held waits in the queue: `queue.places`".to_owned());
        }
        if self.queue.places > 0 && !self.is_on() {
            let message = "nobody ever waits: there is no limit, nor `hold_ms`";
            return fail("queue.places", message.to_owned());
        }
        for (key, name) in [
            ("tenant_header", &self.tenant_header),
            ("priority_header", &self.priority_header),
            ("timeout_header", &self.timeout_header),
        ] {
            let Some(name) = name else { continue };
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                return fail(key, format!("`{name}` is no name of a header"));
            }
            if self.queue.places == 0 {
                return fail(key, "only those who wait are told apart: `queue.places`".to_owned());
            }
        }
        Ok(())
    }
}
