//! `LoxiLB`'s variables, of those that have an equivalent here. Its process has one value for all rules:
//! here it is for all pools that have the key.

use kvasir_balance::{Blend, PolicySpec, PreciseOptions, Relief};

use super::{Effect, Variable, parsed, word};
use crate::bounds::HOUR_MS;
use crate::controller::ControllerConfig;
use crate::identity::{BlockIdentity, HashAlgorithm};
use crate::model::Config;

pub(super) const VARIABLES: [Variable; 19] = [
    Variable {
        name: "LOXILB_KV_LB_MODE",
        key: "pools[].policy.blend",
        set: |config, text| {
            let blends = [
                ("off", Blend::Off),
                ("hard", Blend::Hard),
                ("soft", Blend::Soft),
                ("adaptive", Blend::Adaptive),
                ("adaptive-soft", Blend::AdaptiveSoft),
            ];
            precise(config, word(text, &blends), |options| &mut options.blend)
        },
    },
    Variable {
        name: "LOXILB_KV_MEAN_LOAD_FACTOR",
        key: "pools[].policy.load_factor_percent",
        set: |config, text| {
            precise(config, parsed(text), |options| &mut options.load_factor_percent)
        },
    },
    Variable {
        name: "LOXILB_KV_LOAD_PENALTY",
        key: "pools[].policy.load_penalty",
        set: |config, text| precise(config, parsed(text), |options| &mut options.load_penalty),
    },
    Variable {
        name: "LOXILB_KV_CAP_SUM_MILLI",
        key: "pools[].policy.capacity_sum_milli",
        set: |config, text| {
            precise(config, parsed(text).map(Some), |options| &mut options.capacity_sum_milli)
        },
    },
    Variable {
        name: "LOXILB_KV_SPILL_RELIEF",
        key: "pools[].policy.relief",
        set: |config, text| {
            let reliefs = [("auto", Relief::Auto), ("on", Relief::On), ("off", Relief::Off)];
            precise(config, word(text, &reliefs), |options| &mut options.relief)
        },
    },
    Variable {
        name: "LOXILB_KV_COLDSTART_SEED_N",
        key: "pools[].policy.cold_seed_every",
        set: |config, text| precise(config, parsed(text), |options| &mut options.cold_seed_every),
    },
    Variable {
        name: "LOXILB_KV_COLDSTART_MIN_BLOCKS",
        key: "pools[].policy.cold_seed_blocks",
        set: |config, text| {
            // 0 is 1 there.
            let blocks = parsed(text).map(|blocks: u64| blocks.max(1));
            precise(config, blocks, |options| &mut options.cold_seed_blocks)
        },
    },
    Variable {
        name: "LOXILB_KV_ZERO_HIT_N",
        key: "pools[].policy.zero_hit_requests",
        set: |config, text| precise(config, parsed(text), |options| &mut options.zero_hit_requests),
    },
    Variable {
        name: "LLB_KV_MIN_MATCH_TOKENS",
        key: "pools[].policy.min_match_tokens",
        set: |config, text| precise(config, parsed(text), |options| &mut options.min_match_tokens),
    },
    Variable {
        name: "LLB_KV_NONE_HASH_SEED",
        key: "pools[].identity.engine.seed",
        set: |config, text| {
            let mut effect = Effect::Nothing("no pool has `identity: engine` with vLLM's hashes");
            for pool in &mut config.pools {
                if let BlockIdentity::Engine(hashing) = &mut pool.identity
                    && matches!(hashing.algorithm, HashAlgorithm::Vllm(_))
                {
                    hashing.seed = Some(text.to_owned());
                    effect = Effect::Set;
                }
            }
            Ok(effect)
        },
    },
    Variable {
        name: "LLB_PD_PREFILL_TIMEOUT_SEC",
        key: "pools[].disaggregation.prefill_timeout_ms",
        set: |config, text| {
            let ms = milliseconds(text, 1)?;
            splitting(config, |pool| {
                pool.disaggregation.get_or_insert_default().prefill_timeout_ms = ms;
            })
        },
    },
    Variable {
        name: "LLB_PD_MAX_INFLIGHT_PER_EP",
        key: "pools[].admission.endpoint.max_requests",
        set: |config, text| {
            let most = limit(text)?;
            splitting(config, |pool| pool.admission.endpoint.max_requests = most)
        },
    },
    Variable {
        name: "LLB_PD_MAX_TOTAL_INFLIGHT",
        key: "pools[].admission.max_requests",
        set: |config, text| {
            let most = limit(text)?;
            splitting(config, |pool| pool.admission.max_requests = most)
        },
    },
    Variable {
        name: "LLB_PD_ORIGIN_ERR_THRESHOLD",
        key: "health.failures",
        set: |config, text| match parsed(text)? {
            0 => Err("0 (breakers off) has no equivalent: set `health.failures` high".to_owned()),
            failures => {
                config.health.failures = failures;
                Ok(Effect::Set)
            }
        },
    },
    Variable {
        name: "LOXILB_AI_CTRL_ADDR",
        key: "controller.address",
        set: |config, text| {
            match &mut config.controller {
                Some(controller) => text.clone_into(&mut controller.address),
                none => *none = Some(ControllerConfig::at(text.to_owned())),
            }
            Ok(Effect::Set)
        },
    },
    Variable {
        name: "LOXILB_AI_CTRL_DECAY_WINDOW_SEC",
        key: "controller.decay_ms",
        set: |config, text| controlled(config, milliseconds(text, 1)?, |of| &mut of.decay_ms),
    },
    Variable {
        name: "LOXILB_AI_CTRL_HYSTERESIS_SEC",
        key: "controller.hysteresis_ms",
        set: |config, text| controlled(config, milliseconds(text, 0)?, |of| &mut of.hysteresis_ms),
    },
    Variable {
        name: "LOXILB_AI_CTRL_ACK_TIMEOUT_SEC",
        key: "controller.ack_timeout_ms",
        set: |config, text| controlled(config, milliseconds(text, 1)?, |of| &mut of.ack_timeout_ms),
    },
    Variable {
        name: "LOXILB_AI_CTRL_APPLY_JITTER_PCT",
        key: "controller.apply_jitter_percent",
        set: |config, text| controlled(config, parsed(text)?, |of| &mut of.apply_jitter_percent),
    },
];

/// Seconds as milliseconds, from `least` seconds to an hour.
fn milliseconds(text: &str, least: u64) -> Result<u64, String> {
    let seconds: u64 = parsed(text)?;
    let ms = seconds.checked_mul(1000).filter(|ms| (least * 1000..=HOUR_MS).contains(ms));
    ms.ok_or_else(|| format!("must be from {least} to {}", HOUR_MS / 1000))
}

/// For gateways that follow a controller.
fn controlled<T>(
    config: &mut Config,
    value: T,
    key: impl Fn(&mut ControllerConfig) -> &mut T,
) -> Result<Effect, String> {
    let Some(controller) = &mut config.controller else {
        return Ok(Effect::Nothing("there is no controller"));
    };
    *key(controller) = value;
    Ok(Effect::Set)
}

/// For pools whose policy is LoxiLB's.
fn precise<T: Clone>(
    config: &mut Config,
    value: Result<T, String>,
    key: impl Fn(&mut PreciseOptions) -> &mut T,
) -> Result<Effect, String> {
    let value = value?;
    let mut effect = Effect::Nothing("no pool has the policy `precise_cache_aware`");
    for pool in &mut config.pools {
        if let PolicySpec::PreciseCacheAware(options) = &mut pool.policy {
            key(options).clone_from(&value);
            effect = Effect::Set;
        }
    }
    Ok(effect)
}

/// For pools that split requests.
fn splitting(
    config: &mut Config,
    set: impl Fn(&mut crate::pool::PoolConfig),
) -> Result<Effect, String> {
    let mut effect = Effect::Nothing("no pool splits requests");
    for pool in config.pools.iter_mut().filter(|pool| pool.splits().is_some()) {
        set(pool);
        effect = Effect::Set;
    }
    Ok(effect)
}

/// 0 is none there.
fn limit(text: &str) -> Result<Option<u32>, String> {
    Ok(Some(parsed(text)?).filter(|most| *most > 0))
}
