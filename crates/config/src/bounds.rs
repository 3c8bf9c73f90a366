//! How large and how long anything may be. No number of the configuration is without a limit: a slip
//! of the hand is to be found at once, and no sum of two of them overflows.

use kvasir_balance::{CacheAwareOptions, PolicySpec, SelectionSpec, StickyOptions};

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
    Err((key.to_owned(), format!("must be {least} to {most}")))
}

/// The numbers of how an endpoint is selected, by the keys of a pool.
pub(crate) fn check_selection(selection: &SelectionSpec) -> Result<(), Wrong> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    if let Some(slo) = &selection.slo_ttft_ms {
        within("slo_ttft_ms", slo, &0.001, &(DAY_MS as f64))?;
    }
    if let Some(sticky) = selection.sticky {
        check_sticky("sticky", sticky)?;
    }
    let shadow = selection.shadow.iter().map(|policy| ("shadow", policy));
    for (key, policy) in
        [("policy", &selection.policy), ("fallback", &selection.fallback)].into_iter().chain(shadow)
    {
        match policy {
            PolicySpec::Session(options) => check_sticky(key, *options)?,
            PolicySpec::CacheAware(CacheAwareOptions { threshold, bytes, .. }) => {
                within(&format!("{key}.threshold"), threshold, &0.0, &1.0)?;
                within(&format!("{key}.bytes"), bytes, &0, &MOST_MEMORY_BYTES)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_sticky(key: &str, options: StickyOptions) -> Result<(), Wrong> {
    let StickyOptions { idle_s, capacity } = options;
    within(&format!("{key}.idle_s"), &idle_s, &0, &MONTH_S)?;
    within(&format!("{key}.capacity"), &capacity, &0, &MOST_CONVERSATIONS)
}
