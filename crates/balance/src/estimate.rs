//! What a gateway estimates of endpoints from what it has seen of them: the numbers of a
//! [`Candidate`](crate::Candidate) that nobody tells. Pure, so that a simulated gateway estimates
//! as the real one does.

mod rate;
mod recent;

use std::time::Duration;

pub(crate) use self::rate::DEFAULT_PREFILL_RATE;
pub use self::rate::{PrefillRate, expected_rate, fetch_rate, median_rate};
pub(crate) use self::recent::READING;
pub use self::recent::{RecentWork, even_out};

/// Assumed size of a waiting request nobody told us about, until prompts were seen.
pub const DEFAULT_PROMPT_TOKENS: u64 = 512;

/// How much of something counts after `age` that counts half after `half_life` seconds.
fn fades(age: Duration, half_life: f64) -> f64 {
    0.5_f64.powf(age.as_secs_f64() / half_life)
}

/// The moving mean of prompt lengths after one more prompt of `tokens`.
#[must_use]
pub fn next_typical_prompt(mean: u64, tokens: u64) -> u64 {
    (mean.saturating_mul(31).saturating_add(tokens) / 32).max(1)
}

/// Waiting requests at an engine that are not ours, from its own count of `running` and `waiting`
/// ones and how many we had there.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub fn foreign_waiting(running: Option<f64>, waiting: Option<f64>, own_in_flight: u32) -> u32 {
    let waiting = waiting.unwrap_or(0.0);
    let foreign = waiting + running.unwrap_or(0.0) - f64::from(own_in_flight);
    foreign.min(waiting).clamp(0.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_not_foreign() {
        assert_eq!(foreign_waiting(Some(4.0), Some(3.0), 7), 0);
        assert_eq!(foreign_waiting(Some(4.0), Some(3.0), 5), 2);
        assert_eq!(foreign_waiting(Some(4.0), Some(3.0), 0), 3);
        assert_eq!(foreign_waiting(None, None, 9), 0);
    }

    #[test]
    fn means_of_prompts_are_above_zero() {
        assert_eq!(next_typical_prompt(512, 512), 512);
        assert_eq!(next_typical_prompt(0, 0), 1);
    }
}
