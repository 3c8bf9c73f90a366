//! How much an endpoint was given to do lately.

use std::time::Duration;

/// What reading its context during an answer costs, in parts of computing it: about so much for
/// answers of some hundred tokens on today's accelerators.
pub(crate) const READING: f64 = 0.1;

/// Work given to an endpoint, in prompt tokens to be computed; that of answers is taken to be a tenth
/// of their prompts. Each token counts half after fifteen minutes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentWork {
    tokens: f64,
    at: Duration,
}

impl RecentWork {
    const HALF_LIFE: f64 = 900.0;

    /// A request of `prompt` tokens, `computed` of them not cached, at a moment of any steady clock.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn add(&mut self, computed: u64, prompt: u64, now: Duration) {
        self.tokens = self.get(now) + computed as f64 + READING * prompt as f64;
        self.at = self.at.max(now);
    }

    /// As it counts at this moment, in tokens.
    #[must_use]
    pub fn get(&self, now: Duration) -> f64 {
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
        work.add(1_000, 2_000, minutes(1));
        let close = |at: u64, wanted: f64, work: &RecentWork| {
            assert!((work.get(minutes(at)) - wanted).abs() < 1e-6, "{}", work.get(minutes(at)));
        };
        close(1, 1_200.0, &work);
        close(16, 600.0, &work);
        work.add(500, 1_000, minutes(16));
        close(31, 600.0, &work);
        // A clock that jumps back changes nothing.
        close(0, 1_200.0, &work);
    }
}
