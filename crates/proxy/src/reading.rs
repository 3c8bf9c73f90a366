//! A body's envelope, read off the async threads where that takes long.

use std::sync::Arc;

use bytes::Bytes;
use kvasir_prompt::{BodyError, Envelope, names_media};
use tokio::sync::Semaphore;

/// Reading this much takes a fraction of a millisecond: not worth a change of threads.
const INLINE_BYTES: usize = 256 << 10;

/// Reads the envelope, and with `media` whether images or the like are named in the body. The
/// permits bound how many long bodies are read at one time; each takes milliseconds.
pub(crate) async fn envelope(
    permits: &Arc<Semaphore>,
    body: &Bytes,
    media: bool,
) -> Result<(Envelope, bool), BodyError> {
    let read = move |body: &[u8]| {
        let envelope = Envelope::parse(body)?;
        Ok((envelope, media && names_media(body)))
    };
    if body.len() <= INLINE_BYTES {
        return read(body);
    }
    let permit = Arc::clone(permits).acquire_owned().await;
    let body = body.clone();
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read(&body)
    });
    work.await.unwrap_or_else(|_| {
        let message = "The request body could not be read".to_owned();
        Err(BodyError { message, position: None })
    })
}
