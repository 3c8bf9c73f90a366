//! Something that happens once, which others look for or wait for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;

/// A moment that comes once, and is never over.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    is_there: AtomicBool,
    came: Notify,
}

impl Moment {
    /// It is there: whoever waits for it goes on.
    pub(crate) fn come(&self) {
        self.is_there.store(true, Ordering::Release);
        self.came.notify_waiters();
    }

    /// Whether it is there.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// Resolves when it is there.
    pub(crate) async fn wait(&self) {
        let came = self.came.notified();
        tokio::pin!(came);
        // Registered before the flag is read: nothing is missed in between.
        came.as_mut().enable();
        if !self.is_there() {
            came.await;
        }
    }
}

/// A moment as it is looked for in a poll: one load where it is not there.
pub(crate) struct Awaited {
    moment: Arc<Moment>,
    /// Wakes the task; `None` until it was told which.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Awaited {
    pub(crate) fn new(moment: Arc<Moment>) -> Self {
        Self { moment, waiting: None }
    }

    /// Whether it is there.
    pub(crate) fn is_there(&self) -> bool {
        self.moment.is_there()
    }

    /// Ready when it is there. The task that is woken is the first that asked: it has to stay the same.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiting.is_none() {
            let moment = Arc::clone(&self.moment);
            let mut waiting: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async move { moment.wait().await });
            let polled = waiting.as_mut().poll(cx);
            self.waiting = Some(waiting);
            return polled;
        }
        if self.is_there() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").field("is_there", &self.is_there()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_goes_on_and_whoever_comes_later_does_not_wait() {
        let moment = Arc::new(Moment::default());
        let mut awaited = Awaited::new(Arc::clone(&moment));
        assert!(!awaited.is_there());
        let waits = tokio::spawn(async move { poll_fn(|cx| awaited.poll(cx)).await });
        let also = tokio::spawn({
            let moment = Arc::clone(&moment);
            async move { moment.wait().await }
        });
        tokio::task::yield_now().await;
        moment.come();
        waits.await.unwrap();
        also.await.unwrap();
        let mut late = Awaited::new(Arc::clone(&moment));
        poll_fn(|cx| late.poll(cx)).await;
        moment.wait().await;
        assert!(moment.is_there());
    }
}
