//! The listener: accepts connections, and ends them in good order.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

use crate::app::{App, KEEPALIVE, KEEPALIVE_INTERVAL, KEEPALIVE_RETRIES};
use crate::handle::handle;

/// How long a client may take to send its next request's head, idle time included. Above the 60 s
/// for which load balancers commonly keep idle connections, so that they close them first.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Pause after a failed accept: out of file descriptors is the usual cause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` resolves, then lets the requests in flight finish for at most `grace`.
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => serve_connection(&app, stream, &graceful),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = &mut stop => break,
        }
    }
    drop(listener);
    tracing::info!(open = graceful.count(), "stopping: requests in flight may finish");
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("stopped with requests in flight");
    }
}

fn serve_connection(app: &Arc<App>, stream: TcpStream, graceful: &GracefulShutdown) {
    // Without it the first token of a stream may wait for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY not set");
    }
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "TCP keep-alive not set");
    }
    let app = Arc::clone(app);
    // hyper takes no less.
    let head_bytes = app.now().settings.max_head_bytes.max(8_192);
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(handle(app, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(head_bytes)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
}
