//! What every TCP connection of the gateway has, to engines and to clients.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// After this long without a sign of life a peer is asked for one, and given up after
/// [`KEEPALIVE_RETRIES`] unanswered ones: a machine that lost its power closes no connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// Sets `TCP_NODELAY` and keep-alive. A connection goes on where it cannot be: the log says so.
pub fn prepare(stream: &TcpStream) {
    // Without it the end of a request, or the first token of a stream, may wait for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY not set");
    }
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "TCP keep-alive not set");
    }
}
