//! The accept loop, and the end of everything that came through it.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kvasir_upstream::prepare;
use tokio::net::{TcpListener, TcpStream};

use super::connection::Connections;
use super::hub::Hub;
use super::socket::Listener;
use crate::app::App;

/// Pause after a failed accept: out of file descriptors is the usual cause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often it is said that accepting fails.
const REMINDER: Duration = Duration::from_secs(10);

/// Serves until `stop` resolves, here or in another loop of the same listener, then lets the
/// requests in flight finish for at most `grace`.
///
/// # Errors
/// When the runtime cannot take the socket.
pub async fn serve(
    app: Arc<App>,
    listener: Listener,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> io::Result<()> {
    let Listener { socket, settings, hub, tls } = listener;
    let socket = TcpListener::from_std(socket)?;
    let connections = Connections::new(app, &settings, Arc::clone(&hub), tls);
    let accepting = async {
        let mut last_said: Option<tokio::time::Instant> = None;
        loop {
            hub.room().await;
            match socket.accept().await {
                Ok((stream, peer)) => {
                    let Some(place) = hub.place().await else { return };
                    prepare(&stream);
                    connections.serve(stream, peer.ip(), place);
                }
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    hub.accept_failed();
                    if last_said.is_none_or(|at| at.elapsed() > REMINDER) {
                        last_said = Some(tokio::time::Instant::now());
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = hub.stopped() => {}
        () = stop => hub.stop(),
    }
    // Closed before the end is waited for: whoever connects now is refused, or served by another
    // process on the same port.
    serve_waiting(&connections, &hub, &socket.into_std()?);
    tracing::info!(open = hub.open(), "stopping: requests in flight may finish");
    if tokio::time::timeout(grace, hub.ended()).await.is_err() {
        tracing::warn!("stopped with requests in flight");
    }
    Ok(())
}

/// Serves those who are connected already and wait to be accepted: closing the socket would reset
/// them.
fn serve_waiting(connections: &Connections, hub: &Arc<Hub>, socket: &std::net::TcpListener) {
    while let Some(place) = hub.try_place() {
        let Ok((stream, peer)) = socket.accept() else { return };
        let accepted = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
        let Ok(stream) = accepted else { continue };
        prepare(&stream);
        connections.serve(stream, peer.ip(), place);
    }
}

/// A connection that ended before it was accepted says nothing about the listener.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
