//! How much an endpoint was given to do lately.

use std::time::Duration;

use super::fades;
use crate::pair::Role;
use crate::view::Candidate;

/// What reading its context during an answer costs, in parts of computing it: about so much for
/// answers of some hundred tokens on today's accelerators.
pub(crate) const READING: f64 = 0.1;

/// Work given to an endpoint, in prompt tokens to be computed; that of answers is taken to be a tenth
/// of their prompts. Each token counts half after fifteen minutes. Moments are those of any steady
/// clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentWork {
    began: Duration,
    tokens: f64,
    at: Duration,
}

impl RecentWork {
    const HALF_LIFE: f64 = 900.0;

    /// Of an endpoint that can be given work from now on.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { began: now, tokens: 0.0, at: now }
    }

    /// A request of `prompt` tokens, `computed` of them not cached.
    pub fn add(&mut self, computed: u64, prompt: u64, now: Duration) {
        self.tokens = self.get(now) + Self::tokens(computed, prompt);
        self.at = self.at.max(now);
    }

    /// A request that was added at the moment `since` will not be computed.
    pub fn take_back(&mut self, computed: u64, prompt: u64, since: Duration, now: Duration) {
        let left =
            Self::tokens(computed, prompt) * fades(now.saturating_sub(since), Self::HALF_LIFE);
        self.tokens = (self.get(now) - left).max(0.0);
        self.at = self.at.max(now);
    }

    /// As it counts at this moment, in tokens.
    #[must_use]
    pub fn get(&self, now: Duration) -> f64 {
        self.tokens * fades(now.saturating_sub(self.at), Self::HALF_LIFE)
    }

    /// What [`get`](Self::get) lacks because it began only lately, in parts of a whole.
    #[must_use]
    pub fn missing(&self, now: Duration) -> f64 {
        fades(now.saturating_sub(self.began), Self::HALF_LIFE)
    }

    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn tokens(computed: u64, prompt: u64) -> f64 {
        computed as f64 + READING * prompt as f64
    }
}

/// Sets the candidates' recent work from [`RecentWork::get`] and [`RecentWork::missing`] of each, in
/// their order: whoever began later than the first is taken to have had the mean until then, so that
/// nobody has to catch up. All of that among candidates of one role: those of others are given other
/// work.
pub fn even_out(candidates: &mut [Candidate], recent: &[(f64, f64)]) {
    for role in Role::ALL {
        let side = candidates.iter().zip(recent).filter(|(candidate, _)| candidate.role == role);
        let of_role = || side.clone().map(|(_, recent)| *recent);
        let sums = |(w, k): (f64, f64), (work, missing): (f64, f64)| (w + work, k + 1.0 - missing);
        let (work, known) = of_role().fold((0.0, 0.0), sums);
        let mean = if known > 1e-6 { work / known } else { 0.0 };
        let least = of_role().map(|(_, missing)| missing).fold(1.0, f64::min);
        for (candidate, (work, missing)) in candidates.iter_mut().zip(recent) {
            if candidate.role == role {
                candidate.load.recent_work = work + mean * (missing - least);
            }
        }
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
        work.take_back(500, 1_000, minutes(16), minutes(31));
        close(31, 300.0, &work);
    }

    #[test]
    fn newcomers_have_had_the_mean() {
        let evened = |recent: &[(f64, f64)]| {
            let mut fleet = vec![Candidate::default(); recent.len()];
            even_out(&mut fleet, recent);
            fleet.iter().map(|candidate| candidate.load.recent_work).collect::<Vec<f64>>()
        };
        let found = evened(&[(900.0, 0.0), (1_100.0, 0.0), (0.0, 1.0), (100.0, 0.5)]);
        let mean = 2_100.0 / 2.5;
        let wanted = [900.0, 1_100.0, mean, 100.0 + mean / 2.0];
        assert!(found.iter().zip(wanted).all(|(found, w)| (found - w).abs() < 1e-9), "{found:?}");
        assert!(evened(&[(0.0, 1.0), (300.0, 1.0)])[0].abs() < 1e-9);
    }

    #[test]
    fn who_computes_prompts_is_no_mean_for_who_answers() {
        let mut fleet = [Role::Prefill, Role::Decode, Role::Prefill, Role::Decode]
            .map(|role| Candidate { role, ..Candidate::default() });
        even_out(&mut fleet, &[(900.0, 0.0), (70.0, 0.0), (0.0, 1.0), (0.0, 1.0)]);
        assert_eq!(fleet.map(|one| one.load.recent_work), [900.0, 70.0, 900.0, 70.0]);
    }
}
