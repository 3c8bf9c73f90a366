//! Routing settings of a model, by the words of `ExaMLOps` E4: how requests are spread, the latency
//! that is kept, and whether prompts are computed by engines of their own.

use kvasir_balance::{Blend, LeastLoad, LoadScore, PolicySpec, PreciseOptions, Relief};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Patch;
use crate::bounds::Wrong;
use crate::disaggregation::{DisaggregationConfig, EndpointRole};
use crate::pool::PoolConfig;

/// How requests are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutingMode {
    /// Each endpoint in turn.
    #[default]
    RoundRobin,
    /// Where the most of the prompt is held, whatever the load; where nobody holds any, by E4's load
    /// score.
    CacheAware,
}

/// Settings of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// How requests are spread.
    pub mode: RoutingMode,
    /// The time to first token above which an endpoint is avoided, in milliseconds.
    pub slo_latency_ms: Option<f64>,
    /// Whether prompts are computed by engines of their own; `None` leaves it as configured.
    pub disaggregate: Option<bool>,
    /// The group of endpoints that compute prompts.
    pub prefill_pool: Option<String>,
    /// The group of endpoints that answer.
    pub decode_pool: Option<String>,
    /// When it was last changed: RFC 3339, UTC.
    pub updated_at: String,
}

impl RoutingMode {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::CacheAware => "cache_aware",
        }
    }
}

impl Routing {
    /// The same with new values; `null` resets one.
    pub(super) fn patched(&self, patch: &Patch) -> Result<Self, Wrong> {
        let mut new = self.clone();
        for (key, value) in patch {
            let wrong = |error: serde_json::Error| (key.clone(), error.to_string());
            match key.as_str() {
                "mode" if value.is_null() => new.mode = RoutingMode::default(),
                "mode" => new.mode = Deserialize::deserialize(value).map_err(wrong)?,
                "slo_latency_ms" => {
                    new.slo_latency_ms = Deserialize::deserialize(value).map_err(wrong)?;
                }
                "disaggregate" => {
                    new.disaggregate = Deserialize::deserialize(value).map_err(wrong)?;
                }
                "prefill_pool" => new.prefill_pool = name(key, value)?,
                "decode_pool" => new.decode_pool = name(key, value)?,
                _ => {
                    let known = "mode, slo_latency_ms, disaggregate, prefill_pool, decode_pool";
                    return Err((
                        key.clone(),
                        format!("is no routing setting; there are: {known}"),
                    ));
                }
            }
        }
        if let Some(slo) = new.slo_latency_ms
            && !(slo.is_finite() && slo > 0.0)
        {
            return Err(("slo_latency_ms".to_owned(), "must be above 0".to_owned()));
        }
        Ok(new)
    }

    /// Whether it says itself what a key of the pool says.
    pub(super) fn wins_over(&self, key: &str) -> bool {
        match key {
            "policy" => true,
            "fallback" => self.mode == RoutingMode::CacheAware,
            "slo_ttft_ms" => self.slo_latency_ms.is_some(),
            _ => false,
        }
    }

    /// Whether it says itself which roles the pool's endpoints have.
    pub(super) fn gives_roles(&self) -> bool {
        self.disaggregate == Some(true) && self.prefill_pool.is_some()
    }

    /// Puts it into effect.
    pub(super) fn lay_over(&self, pool: &mut PoolConfig) -> Result<(), Wrong> {
        pool.slo_ttft_ms = self.slo_latency_ms.or(pool.slo_ttft_ms);
        match self.mode {
            RoutingMode::RoundRobin => pool.policy = PolicySpec::RoundRobin,
            RoutingMode::CacheAware => {
                pool.policy = PolicySpec::PreciseCacheAware(PreciseOptions {
                    blend: Blend::Off,
                    relief: Relief::Off,
                    cold_seed_every: 0,
                    min_match_tokens: 0,
                    ..PreciseOptions::default()
                });
                pool.fallback = PolicySpec::LeastLoad(LeastLoad { score: LoadScore::E4 });
            }
        }
        match self.disaggregate {
            None => Ok(()),
            Some(false) => {
                pool.disaggregation.get_or_insert_with(DisaggregationConfig::default).enabled =
                    false;
                Ok(())
            }
            Some(true) => self.split(pool),
        }
    }

    fn split(&self, pool: &mut PoolConfig) -> Result<(), Wrong> {
        let fail = |key: &str, why: String| Err((key.to_owned(), why));
        match (&self.prefill_pool, &self.decode_pool) {
            (None, None) => {
                for (key, role) in
                    [("prefill_pool", EndpointRole::Prefill), ("decode_pool", EndpointRole::Decode)]
                {
                    if !pool.endpoints.iter().any(|endpoint| endpoint.role == role) {
                        let why = "names no group, and no endpoint of the pool has that role";
                        return fail(key, why.to_owned());
                    }
                }
            }
            (Some(_), None) => {
                return fail("decode_pool", "is needed beside `prefill_pool`".into());
            }
            (None, Some(_)) => {
                return fail("prefill_pool", "is needed beside `decode_pool`".into());
            }
            (Some(one), Some(other)) if one == other => {
                return fail("decode_pool", "is the group of `prefill_pool`".into());
            }
            (Some(prefill), Some(decode)) => {
                for (key, group) in [("prefill_pool", prefill), ("decode_pool", decode)] {
                    let is_in = |group: &str| {
                        pool.endpoints.iter().any(|one| one.group.as_deref() == Some(group))
                    };
                    if !is_in(group) {
                        return fail(key, format!("no endpoint of the pool is in group `{group}`"));
                    }
                }
                for endpoint in &mut pool.endpoints {
                    endpoint.role = match endpoint.group.as_deref() {
                        Some(group) if group == prefill => EndpointRole::Prefill,
                        Some(group) if group == decode => EndpointRole::Decode,
                        _ => EndpointRole::Unified,
                    };
                }
            }
        }
        pool.disaggregation.get_or_insert_with(DisaggregationConfig::default).enabled = true;
        Ok(())
    }
}

fn name(key: &str, value: &Value) -> Result<Option<String>, Wrong> {
    match value {
        Value::Null => Ok(None),
        Value::String(name) if !name.is_empty() => Ok(Some(name.clone())),
        _ => Err((key.to_owned(), "must be the name of a group".to_owned())),
    }
}
