//! Waiting for a state with a deadline: the alternative to sleeping and hoping.

use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Time between two looks at a condition.
const STEP: Duration = Duration::from_millis(2);

/// Blocks the thread until `cond` holds; for tests without a runtime, or for
/// conditions that other threads bring about.
///
/// # Panics
///
/// When `deadline` passes first; the message names the caller's line.
#[track_caller]
pub fn eventually(deadline: Duration, mut cond: impl FnMut() -> bool) {
    let caller = Location::caller();
    let start = Instant::now();
    while !cond() {
        assert!(start.elapsed() < deadline, "{caller}: not true within {deadline:?}");
        std::thread::sleep(STEP);
    }
}

/// Like [`eventually`], but lets the runtime work in between, so it is right also
/// in a current-thread test.
///
/// # Panics
///
/// When `deadline` passes first; the message names the line that called it.
#[track_caller]
pub fn eventually_async<C>(deadline: Duration, mut cond: C) -> impl Future<Output = ()>
where
    C: FnMut() -> bool,
{
    let caller = Location::caller();
    async move {
        let start = Instant::now();
        while !cond() {
            assert!(start.elapsed() < deadline, "{caller}: not true within {deadline:?}");
            tokio::time::sleep(STEP).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn returns_when_the_condition_turns_true() {
        let looks = AtomicUsize::new(0);
        eventually(Duration::from_secs(5), || looks.fetch_add(1, Ordering::Relaxed) == 3);
        assert_eq!(looks.into_inner(), 4);
    }

    #[test]
    #[should_panic(expected = "not true within")]
    fn gives_up_at_the_deadline() {
        eventually(Duration::from_millis(10), || false);
    }

    #[tokio::test]
    async fn async_form_lets_other_tasks_run() {
        let done = std::sync::Arc::new(AtomicUsize::new(0));
        let seen = done.clone();
        tokio::spawn(async move { done.store(1, Ordering::Relaxed) });
        eventually_async(Duration::from_secs(5), || seen.load(Ordering::Relaxed) == 1).await;
    }

    #[tokio::test]
    #[should_panic(expected = "not true within")]
    async fn async_form_gives_up_at_the_deadline() {
        eventually_async(Duration::from_millis(10), || false).await;
    }
}
