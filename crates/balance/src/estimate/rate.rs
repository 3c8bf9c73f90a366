//! How fast an endpoint computes prompts, and how fast it fetches them from slower tiers.
//!
//! One answer says little: other requests share the engine, steps have a fixed cost, attention makes
//! long prompts slower. A rate that followed single answers would send requests away from endpoints
//! that are just as good. So samples are weighed by their tokens, and a difference from the other
//! endpoints counts as far as it is larger than such noise.

use std::time::Duration;

use super::fades;

/// Assumed until something was measured: tokens per second of prefill.
pub(crate) const DEFAULT_PREFILL_RATE: f64 = 8_000.0;
/// Fetching a token from a slower tier is taken to be so much quicker than computing it, until it
/// was measured.
const FETCHED_OVER_COMPUTED: f64 = 8.0;

/// Tokens per second, learned from streamed answers. Moments are those of any steady clock.
#[derive(Clone, Debug, Default)]
pub struct PrefillRate {
    samples: u32,
    tokens: f64,
    seconds: f64,
    at: Duration,
}

impl PrefillRate {
    /// Below this many tokens an answer's time says more about everything else.
    const LEAST_TOKENS: u64 = 128;
    /// A fresh engine's first answers are slow (compilation, warm-up) and say nothing.
    const DROPPED: u32 = 2;
    /// Samples weigh less as so many tokens came after them.
    const WINDOW: f64 = 300_000.0;
    /// And half after so many seconds: who was slow once and is avoided is tried again.
    const HALF_LIFE: f64 = 300.0;
    /// An answer that took so many times as long as expected was held up by something else, or the
    /// engine has become slow: then more of them follow.
    const SLOWEST: f64 = 4.0;
    /// What the other endpoints are known to do counts as much as so many tokens seen here.
    const PRIOR: f64 = 60_000.0;
    /// A difference (of logarithms) from the others of which half is believed; of smaller ones less,
    /// of larger ones more.
    const NOISE: f64 = 0.3;

    /// Tokens per second, as seen; `None` until enough was seen.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.tokens / self.seconds)
    }

    /// Tokens per second, where the other endpoints make one expect `expected`: that until something
    /// was seen, and what was seen as far as it differs by more than chance.
    #[must_use]
    pub fn against(&self, expected: f64, now: Duration) -> f64 {
        let (expected, kept) = (expected.max(1.0), self.kept(now));
        let (tokens, seconds) = (self.tokens * kept, self.seconds.max(0.0) * kept);
        let seen = (tokens + Self::PRIOR) / (seconds + Self::PRIOR / expected);
        let off = (seen / expected).ln();
        let sure = off.powi(4) / (off.powi(4) + Self::NOISE.powi(4));
        expected * (off * sure).exp()
    }

    /// `tokens` tokens that waited for no others took so many seconds; of what is left when a known
    /// part is taken away, the seconds can be negative by chance.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn observe(&mut self, tokens: u64, seconds: f64, now: Duration) {
        if tokens < Self::LEAST_TOKENS || !seconds.is_finite() {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        if self.samples <= Self::DROPPED {
            return;
        }
        let tokens = tokens as f64;
        let slowest = self.get().map_or(f64::INFINITY, |rate| Self::SLOWEST * tokens / rate);
        let kept = self.kept(now) * (-tokens / Self::WINDOW).exp();
        self.tokens = self.tokens * kept + tokens;
        self.seconds = self.seconds * kept + seconds.min(slowest);
        self.at = self.at.max(now);
    }

    /// How much of what was seen still counts.
    fn kept(&self, now: Duration) -> f64 {
        fades(now.saturating_sub(self.at), Self::HALF_LIFE)
    }
}

/// What a full endpoint does, from those that were timed: the median of their rates, each over its
/// capacity weight (100 is a full one).
#[must_use]
pub fn median_rate(learned: impl Iterator<Item = (f64, u32)>) -> f64 {
    let mut rates: Vec<f64> =
        learned.map(|(rate, weight)| rate * 100.0 / f64::from(weight.max(1))).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(DEFAULT_PREFILL_RATE)
}

/// What an endpoint of this capacity weight is expected to do where a full one does `median`.
#[must_use]
pub fn expected_rate(median: f64, weight: u32) -> f64 {
    (median * f64::from(weight.max(1)) / 100.0).max(1.0)
}

/// Tokens per second fetched from slower tiers of the cache, as far as `learned`, by an endpoint that
/// computes `prefill_rate`.
#[must_use]
pub fn fetch_rate(learned: &PrefillRate, prefill_rate: f64, now: Duration) -> f64 {
    learned.against(prefill_rate * FETCHED_OVER_COMPUTED, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn seen(samples: &[(u64, f64)]) -> PrefillRate {
        let mut rate = PrefillRate::default();
        for _ in 0..PrefillRate::DROPPED {
            rate.observe(1_000, 100.0, NOW);
        }
        for (tokens, seconds) in samples {
            rate.observe(*tokens, *seconds, NOW);
        }
        rate
    }

    #[test]
    fn the_first_samples_and_short_prompts_do_not_count() {
        assert_eq!(seen(&[]).get(), None);
        assert_eq!(seen(&[(10, 100.0), (1_000, 1.0)]).get(), Some(1_000.0));
        assert!((seen(&[]).against(5_000.0, NOW) - 5_000.0).abs() < 1e-6);
    }

    #[test]
    fn samples_weigh_by_their_tokens() {
        // 31,000 tokens in 3.3 s, not the mean of 10,000 and 3,333 tokens a second.
        let rate = seen(&[(30_000, 3.0), (1_000, 0.3)]).get().unwrap();
        assert!((rate - 9_394.0).abs() < 20.0, "{rate}");
    }

    #[test]
    fn one_answer_held_up_does_not_decide() {
        let mut samples = vec![(2_000, 0.2); 20];
        samples.push((2_000, 60.0));
        let rate = seen(&samples).get().unwrap();
        assert!(rate > 8_000.0, "{rate}");
    }

    #[test]
    fn chance_is_no_difference_and_a_slow_engine_is_one() {
        let usual = seen(&[(3_000, 0.32); 40]).against(10_000.0, NOW);
        assert!((usual / 10_000.0 - 1.0).abs() < 0.02, "{usual}");
        let slow = seen(&[(3_000, 0.9); 200]).against(10_000.0, NOW);
        assert!((slow / 3_333.0 - 1.0).abs() < 0.2, "{slow}");
        let fast = seen(&[(3_000, 0.1); 200]).against(10_000.0, NOW);
        assert!((fast / 30_000.0 - 1.0).abs() < 0.4, "{fast}");
    }

    #[test]
    fn an_engine_that_becomes_slow_is_noticed_and_forgiven() {
        let mut samples = vec![(3_000, 0.3); 200];
        samples.extend([(3_000, 0.9); 120]);
        let rate = seen(&samples);
        let at = |minutes: u64| rate.against(10_000.0, NOW + Duration::from_secs(60 * minutes));
        assert!(at(0) < 5_500.0, "{}", at(0));
        assert!(at(30) > 9_000.0, "{}", at(30));
    }

    #[test]
    fn medians_go_by_full_endpoints() {
        let median = median_rate([(3.0, 100), (1.0, 50), (1.0, 100)].into_iter());
        assert!((median - 2.0).abs() < 1e-9);
        assert!((expected_rate(median, 50) - 1.0).abs() < 1e-9);
        assert!((median_rate(std::iter::empty()) - DEFAULT_PREFILL_RATE).abs() < 1e-9);
    }

    #[test]
    fn fetching_is_quicker_than_computing_until_measured() {
        let fetched = |samples: &[(u64, f64)]| fetch_rate(&seen(samples), 1_000.0, NOW);
        assert!((fetched(&[]) - 8_000.0).abs() < 1e-6);
        // One that was held up says little.
        assert!(fetched(&[(1_000, 30.0)]) > 1_000.0, "{}", fetched(&[(1_000, 30.0)]));
        let slow = fetched(&[(1_000, 0.5); 300]);
        assert!((slow / 2_000.0 - 1.0).abs() < 0.3, "{slow}");
        // Noise on both sides of nothing is nothing, not half of it.
        let quick = [(1_000, 0.02), (1_000, -0.02)].repeat(150);
        assert!(fetched(&quick) > 30_000.0, "{}", fetched(&quick));
    }
}
