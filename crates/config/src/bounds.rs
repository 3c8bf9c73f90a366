//! How large and how long anything may be. No number of the configuration is without a limit: a slip
//! of the hand is to be found at once, and no sum of two of them overflows.

use kvasir_balance::{
    CacheAwareOptions, Chwbl, ConsistentHash, Guard, LeastLoad, PolicySpec, PreciseOptions,
    SelectionSpec, StickyOptions,
};

/// An hour.
pub(crate) const HOUR_MS: u64 = 3_600_000;
/// A day: longer than anything is waited for.
pub(crate) const DAY_MS: u64 = 86_400_000;
/// The same.
pub(crate) const DAY_S: u64 = 86_400;
/// More than a body or a prompt of any request: 16 GiB.
pub(crate) const MOST_BODY_BYTES: usize = 16 << 30;
/// More memory than any machine of a gateway has: 16 TiB.
pub(crate) const MOST_MEMORY_BYTES: usize = 16 << 40;
/// More than any log's file: 1 TiB.
pub(crate) const MOST_FILE_BYTES: u64 = 1 << 40;
/// Conversations that are remembered take memory.
const MOST_CONVERSATIONS: usize = 10_000_000;
/// Requests or tokens that anything counts to.
const MOST_REQUESTS: u32 = 1_000_000_000;
/// Ten times the mean load.
const MOST_PERCENT: u32 = 1000;
/// Blocks, or thousandths of a weight, of all engines together.
const MOST_CAPACITY: u64 = 1_000_000_000_000;
/// A month.
const MONTH_S: u64 = 30 * DAY_S;

/// A key and what is wrong with it.
pub(crate) type Wrong = (String, String);

/// Whether a number is within its bounds, both included. What is not a number is not.
pub(crate) fn within<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: &T,
    least: &T,
    most: &T,
) -> Result<(), Wrong> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err((key.to_owned(), format!("must be from {least} to {most}")))
}

/// The numbers of how an endpoint is selected, by the keys of a pool.
pub(crate) fn check_selection(selection: &SelectionSpec) -> Result<(), Wrong> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    if let Some(slo) = &selection.slo_ttft_ms {
        within("slo_ttft_ms", slo, &0.001, &(DAY_MS as f64))?;
    }
    if let Some(sticky) = selection.sticky {
        check_sticky(|option| format!("sticky.{option}"), sticky)?;
    }
    let shadow = selection.shadow.iter().map(|policy| ("shadow", policy));
    for (key, policy) in
        [("policy", &selection.policy), ("fallback", &selection.fallback)].into_iter().chain(shadow)
    {
        check_policy(key, policy)?;
    }
    Ok(())
}

fn check_policy(key: &str, policy: &PolicySpec) -> Result<(), Wrong> {
    let key = |option: &str| format!("{key}.{option}");
    match policy {
        PolicySpec::Session(options) => check_sticky(key, *options),
        PolicySpec::CacheAware(CacheAwareOptions { threshold, guard, bytes }) => {
            within(&key("threshold"), threshold, &0.0, &1.0)?;
            within(&key("bytes"), bytes, &0, &MOST_MEMORY_BYTES)?;
            match guard {
                Guard::Bound { load_factor_percent } => {
                    let key = key("guard.bound.load_factor_percent");
                    within(&key, load_factor_percent, &100, &MOST_PERCENT)
                }
                Guard::Imbalance { absolute, relative } => {
                    within(&key("guard.imbalance.absolute"), absolute, &0, &MOST_REQUESTS)?;
                    within(&key("guard.imbalance.relative"), relative, &0.0, &1e6)
                }
            }
        }
        PolicySpec::PreciseCacheAware(options) => check_precise(key, options),
        PolicySpec::Chwbl(Chwbl { key: _, load_factor_percent }) => {
            within(&key("load_factor_percent"), load_factor_percent, &0, &MOST_PERCENT)
        }
        PolicySpec::Latency
        | PolicySpec::Ttft
        | PolicySpec::PrecisePipeline
        | PolicySpec::LmcacheAware
        | PolicySpec::LeastLoad(LeastLoad { score: _ })
        | PolicySpec::PowerOfTwo
        | PolicySpec::RoundRobin
        | PolicySpec::Weighted
        | PolicySpec::Random
        | PolicySpec::ConsistentHash(ConsistentHash { key: _ }) => Ok(()),
    }
}

fn check_precise(key: impl Fn(&str) -> String, options: &PreciseOptions) -> Result<(), Wrong> {
    let PreciseOptions {
        blend: _,
        load_factor_percent,
        load_penalty,
        capacity_sum_milli,
        relief: _,
        cold_seed_every,
        cold_seed_blocks,
        min_match_tokens,
        zero_hit_requests,
        capacity: _,
    } = options;
    within(&key("load_factor_percent"), load_factor_percent, &100, &MOST_PERCENT)?;
    within(&key("load_penalty"), load_penalty, &1, &100_000)?;
    if let Some(sum) = capacity_sum_milli {
        within(&key("capacity_sum_milli"), sum, &1, &MOST_CAPACITY)?;
    }
    within(&key("cold_seed_every"), cold_seed_every, &0, &MOST_REQUESTS)?;
    within(&key("cold_seed_blocks"), cold_seed_blocks, &0, &MOST_CAPACITY)?;
    within(&key("min_match_tokens"), min_match_tokens, &0, &MOST_REQUESTS)?;
    within(&key("zero_hit_requests"), zero_hit_requests, &0, &MOST_REQUESTS)
}

fn check_sticky(key: impl Fn(&str) -> String, options: StickyOptions) -> Result<(), Wrong> {
    let StickyOptions { idle_s, capacity } = options;
    within(&key("idle_s"), &idle_s, &1, &MONTH_S)?;
    within(&key("capacity"), &capacity, &1, &MOST_CONVERSATIONS)
}
