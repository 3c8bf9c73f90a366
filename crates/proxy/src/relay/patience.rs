//! How long an answer is waited for: between two of its pieces, and as a whole.
//!
//! One timer an answer, set when there is something to wait for and set anew only when it goes off
//! too early: pieces that come in time cost it nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::ending::Break;

/// Two limits and the timer for both.
#[derive(Debug)]
pub(super) struct Patience {
    idle: Duration,
    /// `None` where that is farther away than time goes.
    deadline: Option<Instant>,
    /// When the wait for the piece that is due began; `None` while none is. Time that a client takes
    /// to read is none that the engine takes.
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(super) fn new(idle: Duration, deadline: Option<std::time::Instant>) -> Self {
        let deadline = deadline.map(Instant::from_std);
        Self { idle, deadline, waiting_since: None, timer: None }
    }

    /// A piece came.
    pub(super) fn came(&mut self) {
        self.waiting_since = None;
    }

    /// Whether the time for the whole answer is up.
    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Nothing is there now. Ready with the limit that is reached; otherwise the task is woken when
    /// one may be.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Break> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let idle_until = since.checked_add(self.idle);
        let (at, why) = match (idle_until, self.deadline) {
            (Some(idle), Some(deadline)) if deadline < idle => (deadline, Break::Deadline),
            (Some(idle), _) => (idle, Break::Idle),
            (None, Some(deadline)) => (deadline, Break::Deadline),
            (None, None) => return Poll::Pending,
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= at {
                return Poll::Ready(why);
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const IDLE: Duration = Duration::from_millis(60);

    // The clock stands still but for what is waited for: how busy the machine is makes no difference.
    #[tokio::test(start_paused = true)]
    async fn a_pause_is_counted_from_the_moment_of_waiting_and_pieces_begin_it_anew() {
        let mut patience = Patience::new(IDLE, None);
        for _ in 0..3 {
            // A piece comes in two thirds of the time.
            let wait = poll_fn(|cx| patience.poll(cx));
            assert!(tokio::time::timeout(IDLE * 2 / 3, wait).await.is_err());
            patience.came();
        }
        // Nobody waits: a client that reads slowly.
        tokio::time::advance(IDLE * 2).await;
        let since = Instant::now();
        assert_eq!(poll_fn(|cx| patience.poll(cx)).await, Break::Idle);
        let took = since.elapsed();
        assert!((IDLE..IDLE + Duration::from_millis(2)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_comes_whatever_came() {
        let began = Instant::now();
        let deadline = began + IDLE * 2;
        let mut patience = Patience::new(IDLE, Some(deadline.into_std()));
        assert!(!patience.is_over() && !Patience::new(IDLE, None).is_over());
        loop {
            let wait = poll_fn(|cx| patience.poll(cx));
            if let Ok(why) = tokio::time::timeout(IDLE / 2, wait).await {
                assert_eq!(why, Break::Deadline);
                break;
            }
            patience.came();
            assert!(Instant::now() < deadline + IDLE, "it does not come");
        }
        assert!(Instant::now() >= deadline && patience.is_over());
    }
}
