//! The signals a gateway is told things by. Each is waited for before it can mean anything, so that
//! none ends the process in the default way while it starts.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM.
pub(crate) struct Stops {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

/// SIGHUP.
pub(crate) struct Hangups(Option<Signal>);

impl Hangups {
    /// From now on. Must be called within a tokio runtime.
    pub(crate) fn wait() -> Self {
        Self(waited_for(SignalKind::hangup(), "SIGHUP"))
    }

    /// The next one; those that came before count as one.
    pub(crate) async fn next(&mut self) {
        next(&mut self.0).await;
    }
}

impl Stops {
    /// From now on. Must be called within a tokio runtime.
    pub(crate) fn wait() -> Self {
        Self {
            terminate: waited_for(SignalKind::terminate(), "SIGTERM"),
            interrupt: waited_for(SignalKind::interrupt(), "SIGINT"),
        }
    }

    /// The next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            () = next(&mut self.terminate) => {}
            () = next(&mut self.interrupt) => {}
        }
    }
}

fn waited_for(kind: SignalKind, name: &str) -> Option<Signal> {
    signal(kind).map_err(|error| tracing::warn!(%error, name, "a signal cannot be waited for")).ok()
}

async fn next(signal: &mut Option<Signal>) {
    let came = match signal {
        Some(signal) => signal.recv().await.is_some(),
        None => false,
    };
    if !came {
        pending::<()>().await;
    }
}
