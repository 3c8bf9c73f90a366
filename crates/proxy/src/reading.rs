//! Long texts are read and made off the async threads.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kvasir_fleet::Stage;
use kvasir_prompt::{BodyError, Envelope, names_media};
use tokio::sync::Semaphore;

/// Reading this much takes a fraction of a millisecond: not worth a change of threads.
const INLINE_BYTES: usize = 256 << 10;

/// Does `work` on so many bytes: at once where they are few, else off the async threads. The permits
/// bound how much of it is done at one time; each takes milliseconds. `None` where it panicked.
pub(crate) async fn on<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= INLINE_BYTES {
        return Some(work());
    }
    let permit = Arc::clone(permits).acquire_owned().await;
    let work = tokio::task::spawn_blocking(move || {
        // It goes with the work: a client that leaves lets no thread run unaccounted.
        let _permit = permit;
        work()
    });
    work.await.ok()
}

/// Reads the envelope, and with `media` whether images or the like are named in the body.
pub(crate) async fn envelope(
    permits: &Arc<Semaphore>,
    body: &Bytes,
    media: bool,
) -> Result<(Envelope, bool), BodyError> {
    let (length, body) = (body.len(), body.clone());
    let read = move || {
        let start = Instant::now();
        let envelope = Envelope::parse(&body)?;
        Stage::Parse.since(start);
        Ok((envelope, media && names_media(&body)))
    };
    on(permits, length, read).await.unwrap_or_else(|| {
        let message = "The request body could not be read".to_owned();
        Err(BodyError { message, position: None })
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn what_is_long_is_not_read_on_the_async_threads() {
        let permits = Arc::new(Semaphore::new(1));
        let here = thread::current().id();
        let at = |bytes| on(&permits, bytes, || thread::current().id());
        assert_eq!(at(INLINE_BYTES).await, Some(here));
        assert_ne!(at(INLINE_BYTES + 1).await.unwrap(), here);
        assert_eq!(permits.available_permits(), 1);
        let panics = on(&permits, INLINE_BYTES + 1, || panic!("a test"));
        assert_eq!(panics.await, None::<()>);
        assert_eq!(permits.available_permits(), 1);
    }

    #[tokio::test]
    async fn no_more_is_read_at_one_time_than_is_allowed() {
        let permits = Arc::new(Semaphore::new(1));
        let held = Arc::clone(&permits).acquire_owned().await.unwrap();
        let waits = on(&permits, INLINE_BYTES + 1, || ());
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), waits);
        assert!(waits.await.is_err());
        // What is short does not wait for what is long.
        assert_eq!(on(&permits, 1, || 7).await, Some(7));
        drop(held);
        assert_eq!(on(&permits, INLINE_BYTES + 1, || 8).await, Some(8));
    }
}
