//! How a gateway ends: the order of a stop, and what it ends with.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kvasir_proxy::App;

use crate::signals::Stops;

/// What is left for telling clients that their answers are cut off.
const WRITING_OUT: Duration = Duration::from_secs(1);

/// How a gateway ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing was under way any more.
    Clean,
    /// Requests were cut off.
    Cut,
}

/// How long a stop may take: `delay` while connections are still accepted and `/readyz` says 503,
/// then `grace` for what is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopTimes {
    pub(crate) delay: Duration,
    pub(crate) grace: Duration,
}

/// Runs what `serve` makes of a future that resolves when no connection is to be accepted any more.
/// The first signal begins a stop in good order, with the times of that moment; a second one ends it at
/// once.
pub(crate) async fn until_stopped<S: Future<Output = io::Result<()>>>(
    app: &Arc<App>,
    mut stops: Stops,
    times: impl Fn() -> StopTimes,
    serve: impl FnOnce(tokio::sync::oneshot::Receiver<()>) -> S,
) -> Result<End> {
    let (close, closed) = tokio::sync::oneshot::channel();
    let serving = serve(closed);
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended.map(|()| End::Clean)?),
        () = stops.next() => {}
    }
    let StopTimes { delay, grace } = times();
    app.announce_stop();
    tracing::info!(?delay, ?grace, "stop asked for");
    let in_order = async {
        if !delay.is_zero() {
            tokio::select! {
                ended = &mut serving => return ended.map(|()| End::Clean),
                () = tokio::time::sleep(delay) => {}
            }
        }
        drop(close);
        match tokio::time::timeout(grace, &mut serving).await {
            Ok(ended) => ended.map(|()| End::Clean),
            Err(_) => Ok(End::Cut),
        }
    };
    let end = tokio::select! {
        end = in_order => end?,
        () = stops.next() => {
            tracing::warn!("asked to stop again: ending at once");
            End::Cut
        }
    };
    if end == End::Cut {
        let in_flight = app.fleet().in_flight();
        tracing::warn!(in_flight, "stopped with requests in flight");
        app.cut_off();
        // Clients that take nothing do not learn of it.
        if let Ok(ended) = tokio::time::timeout(WRITING_OUT, serving).await {
            ended?;
        }
    }
    Ok(end)
}
