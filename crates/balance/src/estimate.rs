//! What a gateway estimates of endpoints from what it has seen of them: the numbers of a
//! [`Candidate`](crate::Candidate) that nobody tells. Pure, so that a simulated gateway estimates
//! as the real one does.

use std::time::Duration;

/// Assumed until something was measured: tokens per second of prefill.
pub const DEFAULT_PREFILL_RATE: f64 = 8_000.0;
/// Assumed size of a waiting request nobody told us about, until prompts were seen.
pub const DEFAULT_PROMPT_TOKENS: u64 = 512;

/// Prompt tokens computed per second, learned from streamed answers.
#[derive(Clone, Debug, Default)]
pub struct PrefillRate {
    samples: u32,
    tokens_per_second: Option<f64>,
}

impl PrefillRate {
    /// Below this many tokens an answer's time says more about everything else.
    const LEAST_TOKENS: u64 = 128;
    /// A fresh engine's first answers are slow (compilation, warm-up) and say nothing.
    const DROPPED: u32 = 2;
    const SMOOTHING: f64 = 0.2;

    /// Tokens per second; `None` until enough was seen.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        self.tokens_per_second
    }

    /// A prefill of `tokens` tokens that waited for no other `took` so long.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn observe(&mut self, tokens: u64, took: Duration) {
        let seconds = took.as_secs_f64();
        if tokens < Self::LEAST_TOKENS || seconds <= 0.0 {
            return;
        }
        let sample = tokens as f64 / seconds;
        self.samples = self.samples.saturating_add(1);
        if self.samples > Self::DROPPED {
            let rate = self.tokens_per_second.unwrap_or(sample);
            self.tokens_per_second = Some(rate + Self::SMOOTHING * (sample - rate));
        }
    }
}

/// What an endpoint nobody has timed yet is taken to do: the median of those that were.
#[must_use]
pub fn median_rate(learned: impl Iterator<Item = f64>) -> f64 {
    let mut rates: Vec<f64> = learned.collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(DEFAULT_PREFILL_RATE)
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
    fn the_first_samples_and_short_prompts_do_not_count() {
        let mut rate = PrefillRate::default();
        rate.observe(1000, Duration::from_secs(100));
        rate.observe(1000, Duration::from_secs(100));
        rate.observe(10, Duration::from_secs(100));
        assert_eq!(rate.get(), None);
        rate.observe(1000, Duration::from_secs(1));
        assert_eq!(rate.get(), Some(1000.0));
        rate.observe(2000, Duration::from_secs(1));
        assert_eq!(rate.get(), Some(1200.0));
    }

    #[test]
    fn what_is_ours_is_not_foreign() {
        assert_eq!(foreign_waiting(Some(4.0), Some(3.0), 7), 0);
        assert_eq!(foreign_waiting(Some(4.0), Some(3.0), 5), 2);
        assert_eq!(foreign_waiting(Some(4.0), Some(3.0), 0), 3);
        assert_eq!(foreign_waiting(None, None, 9), 0);
    }

    #[test]
    fn medians_and_means() {
        assert!((median_rate([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!((median_rate(std::iter::empty()) - DEFAULT_PREFILL_RATE).abs() < 1e-9);
        assert_eq!(next_typical_prompt(512, 512), 512);
        assert_eq!(next_typical_prompt(0, 0), 1);
    }
}
