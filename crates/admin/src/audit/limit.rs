//! How many refused requests are written down, and how many were not.

use std::time::Duration;

use tokio::time::Instant;

/// Of the requests of this time
const WINDOW: Duration = Duration::from_secs(10);
/// so many are written.
const MOST: u64 = 50;

/// One window.
#[derive(Debug)]
pub(super) struct Limit {
    began: Instant,
    written: u64,
    left_out: u64,
}

impl Limit {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), written: 0, left_out: 0 }
    }

    /// Whether one more is written.
    pub(super) fn takes(&mut self) -> bool {
        if self.began.elapsed() >= WINDOW && self.left_out == 0 {
            *self = Self::new();
        }
        let takes = self.written < MOST;
        if takes {
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        takes
    }

    /// When it is to be said how many were left out; `None` for no need.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.left_out > 0).then(|| self.began + WINDOW)
    }

    /// How many were left out, once, when that is due.
    pub(super) fn told(&mut self) -> Option<u64> {
        let due = self.due().is_some_and(|due| due <= Instant::now());
        due.then(|| std::mem::replace(self, Self::new()).left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_left_out_is_told_once_a_window() {
        let mut limit = Limit::new();
        let taken = (0..MOST + 7).filter(|_| limit.takes()).count() as u64;
        assert_eq!((taken, limit.told()), (MOST, None));
        tokio::time::sleep_until(limit.due().unwrap()).await;
        assert_eq!((limit.told(), limit.told(), limit.due()), (Some(7), None, None));
        assert!(limit.takes());
        tokio::time::sleep(WINDOW).await;
        assert_eq!((0..MOST).filter(|_| limit.takes()).count() as u64, MOST);
    }
}
