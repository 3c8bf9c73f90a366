//! The connections of the admin port: how many there may be, and which of them goes for a new one.
//!
//! Whoever can reach the port can open connections; only who has a token is to be served in any case. So
//! where there is no more room a new connection takes the place of one that has shown no token yet, or
//! else of one on which nothing is asked: the one of which that has been so the longest.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// Where nobody can be sent away, how often that is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// All that are open.
pub(crate) struct Connections {
    room: Arc<Semaphore>,
    open: Arc<Mutex<HashMap<u64, Arc<Conversation>>>>,
    next: AtomicU64,
}

/// What one connection is at.
#[derive(Debug)]
pub(crate) struct Conversation {
    at: Mutex<At>,
    leave: Notify,
}

#[derive(Clone, Copy, Debug)]
struct At {
    /// A token was shown on it.
    trusted: bool,
    /// A request is being answered.
    asked: bool,
    since: Instant,
}

/// A connection's place, until it is dropped.
pub(crate) struct Place {
    number: u64,
    conversation: Arc<Conversation>,
    open: Arc<Mutex<HashMap<u64, Arc<Conversation>>>>,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    /// At most so many.
    pub(crate) fn new(most: usize) -> Self {
        let (room, open) = (Arc::new(Semaphore::new(most)), Arc::default());
        Self { room, open, next: AtomicU64::new(0) }
    }

    /// A place for one more. Another goes for it where there is none; where all are asked by somebody
    /// with a token, it waits.
    pub(crate) async fn enter(&self) -> Place {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
                break permit;
            }
            self.send_one_away();
            if let Ok(Ok(permit)) = timeout(LOOK, Arc::clone(&self.room).acquire_owned()).await {
                break permit;
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let at = At { trusted: false, asked: false, since: Instant::now() };
        let conversation = Arc::new(Conversation { at: Mutex::new(at), leave: Notify::new() });
        self.open.lock().insert(number, Arc::clone(&conversation));
        Place { number, conversation, open: Arc::clone(&self.open), _permit: permit }
    }

    fn send_one_away(&self) {
        let mut open = self.open.lock();
        let all = open.iter().map(|(number, one)| (*number, *one.at.lock()));
        let can_go = all.filter(|(_, at)| !(at.trusted && at.asked));
        let goes = can_go.min_by_key(|(_, at)| (at.trusted, at.asked, at.since));
        if let Some(conversation) = goes.and_then(|(number, _)| open.remove(&number)) {
            conversation.leave.notify_one();
        }
    }
}

impl Place {
    pub(crate) fn conversation(&self) -> Arc<Conversation> {
        Arc::clone(&self.conversation)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().remove(&self.number);
    }
}

impl Conversation {
    /// A request is being answered.
    pub(crate) fn begin(&self) {
        let mut at = self.at.lock();
        (at.asked, at.since) = (true, Instant::now());
    }

    /// It is answered.
    pub(crate) fn end(&self) {
        let mut at = self.at.lock();
        (at.asked, at.since) = (false, Instant::now());
    }

    /// It shows a token that is known.
    pub(crate) fn trust(&self) {
        self.at.lock().trusted = true;
    }

    /// Returns when the connection is to be closed: its place is needed, or nothing was asked on it for
    /// so long.
    pub(crate) async fn is_over(&self, idle: Duration) {
        let unused = async {
            loop {
                let At { asked, since, .. } = *self.at.lock();
                let left = idle.saturating_sub(since.elapsed());
                match (asked, left.is_zero()) {
                    (false, true) => return,
                    (false, false) => sleep(left).await,
                    (true, _) => sleep(idle).await,
                }
            }
        };
        tokio::select! {
            () = self.leave.notified() => {}
            () = unused => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    async fn is_sent_away(place: &Place) -> bool {
        timeout(Duration::from_millis(1), place.conversation.is_over(IDLE)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_showed_no_token_goes_first_and_who_asks_with_one_never() {
        let all = Connections::new(3);
        let (busy, idle, stranger) = (all.enter().await, all.enter().await, all.enter().await);
        for known in [&busy, &idle] {
            known.conversation.trust();
        }
        busy.conversation.begin();
        stranger.conversation.begin();
        let entering = tokio::spawn(async move { (all.enter().await, all) });
        assert!(is_sent_away(&stranger).await);
        assert!(!is_sent_away(&idle).await);
        drop(stranger);
        let (newcomer, all) = entering.await.unwrap();
        newcomer.conversation.trust();
        newcomer.conversation.begin();
        let entering = tokio::spawn(async move { (all.enter().await, all) });
        assert!(is_sent_away(&idle).await);
        drop(idle);
        let (last, all) = entering.await.unwrap();
        last.conversation.trust();
        last.conversation.begin();
        // All are asked by somebody with a token: the next one waits.
        let entering = tokio::spawn(async move { (all.enter().await, all) });
        for place in [&busy, &newcomer, &last] {
            assert!(!is_sent_away(place).await);
        }
        assert!(!entering.is_finished());
        last.conversation.end();
        tokio::time::sleep(LOOK * 2).await;
        assert!(is_sent_away(&last).await);
        drop(last);
        entering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_on_is_closed() {
        let all = Connections::new(1);
        let place = all.enter().await;
        place.conversation.begin();
        let over = place.conversation();
        let over = tokio::spawn(async move { over.is_over(IDLE).await });
        sleep(IDLE * 3).await;
        assert!(!over.is_finished());
        place.conversation.end();
        sleep(IDLE * 2).await;
        assert!(over.is_finished());
    }
}
