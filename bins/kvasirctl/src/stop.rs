//! The signals that end a command.

use std::future::Future;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// A future that resolves on the first SIGINT or SIGTERM from now on.
///
/// # Errors
/// When the system does not let us wait for them.
pub(crate) fn requested() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be waited for")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be waited for")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
