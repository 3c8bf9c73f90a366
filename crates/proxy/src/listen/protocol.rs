//! HTTP/1.1 and HTTP/2 as they are spoken to clients, with every bound on them.
//!
//! Memory of one connection, beside the request bodies that are read (`max_body_bytes` each):
//!
//! - HTTP/1.1: twice `max_head_bytes`, for what was read and for what waits to be written.
//! - HTTP/2: [`CONNECTION_WINDOW`] of bodies that nobody read yet; of each stream a head
//!   (`max_head_bytes`) and [`SEND_BUFFER`] of its answer.

use std::time::Duration;

use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto::Builder;

use super::settings::ListenSettings;
use super::streams::StreamExecutor;

/// Header lines of one request: with those that are added there are no more than 100, which is what
/// many servers take.
pub(crate) const MAX_HEADERS: usize = 100 - crate::headers::ADDED;
/// What a client may send of one body before it is read.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same of all bodies of a connection together.
const CONNECTION_WINDOW: u32 = 2 << 20;
/// What waits to be sent of one stream.
const SEND_BUFFER: usize = 64 << 10;
/// How often an HTTP/2 client is asked whether it is still there, and how long it may take to say.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(20);
/// Streams that a client reset before they were taken up; beyond, the connection is ended
/// (CVE-2023-44487).
const PENDING_RESETS: usize = 64;
/// Streams that had to be reset for errors of the client; likewise.
const ERROR_RESETS: usize = 256;

/// Which of the two a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// What it begins with.
    Either,
    /// Agreed on, or the only one there is.
    Http1,
    /// Agreed on.
    Http2,
}

/// What serves connections.
pub(super) fn builder(
    settings: &ListenSettings,
    max_head_bytes: usize,
    spoken: Spoken,
) -> Builder<StreamExecutor> {
    // hyper takes no less.
    let head_bytes = max_head_bytes.max(8_192);
    let mut builder = Builder::new(StreamExecutor { limit: settings.write_stall });
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.idle_timeout)
        .max_buf_size(head_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    match spoken {
        Spoken::Either => builder,
        Spoken::Http1 => builder.http1_only(),
        Spoken::Http2 => builder.http2_only(),
    }
}
