//! Ends connections whose client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail when one of them made no progress for a time. The timer is armed only
/// while a write is pending; a write that is taken at once costs a comparison.
#[derive(Debug)]
pub(super) struct WriteStall<S> {
    inner: S,
    limit: Duration,
    /// Made when a write is pending for the first time, and kept.
    timer: Option<Pin<Box<Sleep>>>,
    armed: bool,
}

impl<S> WriteStall<S> {
    pub(super) fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit, timer: None, armed: false }
    }

    /// What became of a write: counts the time of one that is pending.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.armed = false;
            return written;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !self.armed {
            timer.as_mut().reset(Instant::now() + limit);
            self.armed = true;
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.armed = false;
        metrics::counter!("kvasir_write_stalls_total", "level" => "connection").increment(1);
        tracing::info!(?limit, "a client reads nothing: its connection is ended");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteStall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteStall<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_write_fails_only_when_nothing_was_taken_for_the_whole_time() {
        let (near, mut far) = tokio::io::duplex(16);
        let limit = Duration::from_millis(1500);
        let mut near = WriteStall::new(near, limit);
        let began = Instant::now();
        let reading = tokio::spawn(async move {
            // Slow, but not dead: a little within every limit.
            let mut got = [0; 16];
            for _ in 0..4 {
                tokio::time::sleep(limit / 3).await;
                far.read_exact(&mut got).await.unwrap();
            }
            far
        });
        near.write_all(&[7; 80]).await.unwrap();
        let far = reading.await.unwrap();
        assert!(began.elapsed() > limit, "the pauses add up to more than the limit");
        let stalled = Instant::now();
        let error = near.write_all(&[7; 80]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(stalled.elapsed() >= limit, "{:?}", stalled.elapsed());
        drop(far);
    }
}
