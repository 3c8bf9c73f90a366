//! Something that happens once, which others look for or wait for.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::task::unconstrained;

/// A moment that comes once, and is never over.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    /// Of all branches.
    is_there: Arc<AtomicBool>,
    came: Arc<Notify>,
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

    /// The same moment, seen by whoever looks at once, but with a list of its own of those who wait:
    /// they go on when the branch is told that it [came](Self::come). So those who come and go do not
    /// meet at one lock.
    pub(crate) fn branch(&self) -> Self {
        Self { is_there: Arc::clone(&self.is_there), came: Arc::default() }
    }

    /// To be looked for in polls.
    pub(crate) fn awaited(&self) -> Awaited {
        Awaited {
            is_there: Arc::clone(&self.is_there),
            came: Arc::clone(&self.came),
            waiting: None,
        }
    }
}

/// A moment as it is looked for in a poll: one load where it is not there, and a place among those who
/// wait from the first poll on that has to.
pub(crate) struct Awaited {
    is_there: Arc<AtomicBool>,
    came: Arc<Notify>,
    /// Wakes the task; `None` until it was told which.
    waiting: Option<Pin<Box<OwnedNotified>>>,
}

impl Awaited {
    /// Whether it is there.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// Ready when it is there. The task that is woken is the first that asked: it has to stay the same.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiting.is_none() {
            let mut waiting = Box::pin(Arc::clone(&self.came).notified_owned());
            // A task that has used up its turn would not be registered. That it is before the flag is
            // read misses nothing in between.
            let _ = pin!(unconstrained(waiting.as_mut())).poll(cx);
            self.waiting = Some(waiting);
        }
        if self.is_there() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What comes of `work`, unless the moment is there before; then it goes no further.
    pub(crate) async fn unless_there<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if self.is_there() {
                return Poll::Ready(None);
            }
            match work.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending => self.poll(cx).map(|()| None),
            }
        })
        .await
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").field("is_there", &self.is_there()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn whoever_waits_goes_on_and_whoever_comes_later_does_not_wait() {
        let moment = Arc::new(Moment::default());
        let mut awaited = moment.awaited();
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
        let mut late = moment.awaited();
        poll_fn(|cx| late.poll(cx)).await;
        moment.wait().await;
        assert!(moment.is_there());
    }

    #[tokio::test]
    async fn a_branch_sees_it_at_once_and_wakes_its_own() {
        let moment = Moment::default();
        let branch = moment.branch();
        let mut awaited = branch.awaited();
        let waits = tokio::spawn(async move { awaited.unless_there(pending::<()>()).await });
        tokio::task::yield_now().await;
        moment.come();
        assert!(branch.is_there());
        tokio::task::yield_now().await;
        assert!(!waits.is_finished(), "it waits at its branch");
        branch.come();
        assert_eq!(waits.await.unwrap(), None);
    }

    #[tokio::test]
    async fn work_that_does_not_wait_takes_no_place_among_those_who_do() {
        let moment = Moment::default();
        let mut awaited = moment.awaited();
        assert_eq!(awaited.unless_there(ready(1)).await, Some(1));
        assert!(awaited.waiting.is_none());
        let twice = awaited.unless_there(async {
            tokio::task::yield_now().await;
            2
        });
        assert_eq!(twice.await, Some(2));
        assert!(awaited.waiting.is_some());
        moment.come();
        assert_eq!(awaited.unless_there(ready(3)).await, None, "nothing is begun any more");
    }
}
