//! How fast a queue moves.

use std::time::Duration;

/// How far back it is looked at.
const PACE_WINDOW: Duration = Duration::from_secs(10);

/// How many a second are served, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    since: Duration,
    served: u64,
    /// Requests a second in the window before.
    before: f64,
}

impl Pace {
    pub(super) fn count(&mut self, now: Duration) {
        let lasted = now.saturating_sub(self.since);
        if lasted >= PACE_WINDOW {
            self.before = self.served as f64 / lasted.as_secs_f64();
            self.since = now;
            self.served = 0;
        }
        self.served += 1;
    }

    /// Requests a second.
    pub(super) fn get(&self, now: Duration) -> f64 {
        let lasted = now.saturating_sub(self.since).as_secs_f64();
        let share = (lasted / PACE_WINDOW.as_secs_f64()).min(1.0);
        let pace = if lasted > 0.0 { self.served as f64 / lasted } else { 0.0 };
        pace * share + self.before * (1.0 - share)
    }
}
