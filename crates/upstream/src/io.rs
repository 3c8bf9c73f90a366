//! The socket of a connection, and what was seen of it since the last request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A TCP stream, or TLS over one.
#[derive(Debug)]
pub(crate) enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What was seen since the last request was sent.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Something came.
    read: AtomicBool,
    /// Something could not be written.
    unwritten: AtomicBool,
}

/// A wire that keeps [`Seen`] current.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) wire: Wire,
    pub(crate) seen: Arc<Seen>,
}

// === impl Seen ===

impl Seen {
    /// A request is about to be sent.
    pub(crate) fn begin(&self) {
        self.read.store(false, Ordering::Relaxed);
    }

    pub(crate) fn anything_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    pub(crate) fn write_failed(&self) -> bool {
        self.unwritten.load(Ordering::Relaxed)
    }

    fn wrote<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = polled {
            self.unwritten.store(true, Ordering::Relaxed);
        }
        polled
    }
}

// === impl Io ===

impl Io {
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, seen: Arc::default() }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        if buf.filled().len() > before {
            self.seen.read.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.seen.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.seen.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.wire {
            Wire::Plain(stream) => stream.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.seen.wrote(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
