//! The engine's end of one connection: who was answered, how far, and what the
//! kernel really took.
//!
//! Handing a body to the HTTP library proves nothing about the wire, so a request
//! counts as completed only when the library has flushed after the last frame.

use super::record::{Fate, Kind, Ledger};
use super::reply::{RawEnd, RawStep};
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// How much of an answer has gone.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Stage {
    Nothing,
    Head,
    Whole,
}

#[derive(Debug)]
struct Exchange {
    id: u64,
    kind: Kind,
    handed: Stage,
    flushed: Stage,
}

/// The exchanges of one connection that have no fate yet. Dropping it while some
/// are left means that the engine was stopped.
#[derive(Debug)]
pub(super) struct Exchanges {
    ledger: Arc<Ledger>,
    open: Mutex<Vec<Exchange>>,
    takeover: Mutex<Option<(Vec<RawStep>, RawEnd)>>,
    taken: Notify,
}

impl Exchanges {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, open: Mutex::default(), takeover: Mutex::default(), taken: Notify::new() }
    }

    pub(super) fn begin(&self, id: u64, kind: Kind) {
        let fresh = Exchange { id, kind, handed: Stage::Nothing, flushed: Stage::Nothing };
        self.open.lock().push(fresh);
    }

    /// The HTTP library now holds the answer up to this stage.
    pub(super) fn handed(&self, id: u64, stage: Stage) {
        if let Some(exchange) = self.open.lock().iter_mut().find(|e| e.id == id) {
            exchange.handed = exchange.handed.max(stage);
        }
    }

    /// The kernel took some bytes: if an answer was handed over, its head is out.
    fn written(&self) {
        let mut open = self.open.lock();
        for e in open.iter_mut().filter(|e| e.handed >= Stage::Head) {
            e.flushed = e.flushed.max(Stage::Head);
        }
    }

    /// Part of a raw reply has been written.
    pub(super) fn head_written(&self) {
        self.open.lock().iter_mut().for_each(|e| e.flushed = e.flushed.max(Stage::Head));
    }

    /// The kernel took all that was handed over.
    pub(super) fn flushed(&self) {
        self.open.lock().retain_mut(|e| {
            e.flushed = e.handed;
            if e.flushed == Stage::Whole {
                self.ledger.close(e.id, e.kind, Fate::Completed);
            }
            e.flushed != Stage::Whole
        });
    }

    /// The peer is gone: what is still open is lost.
    pub(super) fn peer_gone(&self) {
        self.end(|e| match e.flushed {
            Stage::Nothing => Fate::ClientGoneBeforeHead,
            Stage::Head | Stage::Whole => Fate::ClientGoneMidBody,
        });
    }

    /// The engine broke off.
    pub(super) fn engine_ended(&self) {
        self.end(|_| Fate::EngineEnded);
    }

    fn end(&self, fate: impl Fn(&Exchange) -> Fate) {
        for exchange in self.open.lock().drain(..) {
            self.ledger.close(exchange.id, exchange.kind, fate(&exchange));
        }
    }

    /// Asks the connection's task to go on by hand.
    pub(super) fn take_over(&self, steps: Vec<RawStep>, end: RawEnd) {
        *self.takeover.lock() = Some((steps, end));
        self.taken.notify_one();
    }

    /// Waits for [`Exchanges::take_over`].
    pub(super) async fn taken_over(&self) -> (Vec<RawStep>, RawEnd) {
        loop {
            self.taken.notified().await;
            if let Some(script) = self.takeover.lock().take() {
                return script;
            }
        }
    }
}

impl Drop for Exchanges {
    fn drop(&mut self) {
        self.engine_ended();
    }
}

/// A TCP stream that tells the exchanges about flushes.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    pub(super) exchanges: Arc<Exchanges>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(1..)) = polled {
            self.exchanges.written();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = polled {
            self.exchanges.flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(1..)) = polled {
            self.exchanges.written();
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
