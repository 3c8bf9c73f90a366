//! How much an endpoint was given to do lately.

use std::time::Duration;

/// Prompt tokens sent to an endpoint to be computed, each counting half after fifteen minutes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentWork {
    tokens: f64,
    at: Duration,
}

impl RecentWork {
    const HALF_LIFE: f64 = 900.0;

    /// `tokens` more, at a moment of any steady clock.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn add(&mut self, tokens: u64, now: Duration) {
        self.tokens = self.left(now) + tokens as f64;
        self.at = self.at.max(now);
    }

    /// As it counts at this moment.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative")]
    pub fn get(&self, now: Duration) -> u64 {
        self.left(now) as u64
    }

    fn left(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.at).as_secs_f64();
        self.tokens * 0.5_f64.powf(age / Self::HALF_LIFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_left_after_fifteen_minutes() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let mut work = RecentWork::default();
        work.add(1_000, minutes(1));
        assert_eq!((work.get(minutes(1)), work.get(minutes(16))), (1_000, 500));
        work.add(700, minutes(16));
        assert_eq!((work.get(minutes(31)), work.get(minutes(0))), (600, 1_200));
    }
}
