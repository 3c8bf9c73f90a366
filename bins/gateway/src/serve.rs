//! Wires the libraries and runs them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kvasir_admin::AdminError;
use kvasir_config::{Config, EngineUrl};
use kvasir_fleet::Fleet;
use kvasir_inventory::Inventory;
use kvasir_kv_hash::KeySpace;
use kvasir_proxy::{App, ListenError, Listener, Spans, serve};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use crate::admin::{Gateway, Notes, Order};
use crate::lifecycle::{End, StopTimes, until_stopped};
use crate::reload::Reloader;
use crate::signals::{Hangups, Stops};
use crate::start::Start;
use crate::{admin, controller, spec, telemetry, url_mode};

/// How long what was cut off may take to say so in the log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the last spans may take to reach their collector.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// `serve` bounds a stop by itself; the times of the configuration, which may change, are kept here.
const NO_BOUND: Duration = Duration::from_secs(u32::MAX as u64);

/// What everything runs on.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Serves until SIGINT or SIGTERM: the pools of the configuration, or what is found at the URLs where
/// there are any.
pub(crate) fn run(runtime: Runtime, hangups: Hangups, start: Start) -> Result<End> {
    let decision_log = start.fleet.decision_log.clone();
    let kept = start.store.clone().zip(start.recent.clone());
    let metrics = telemetry::start_metrics()?;
    let span_settings = spec::spans(&start.config)?;
    let space = KeySpace::new(spec::random()?);
    let inventory = Arc::new(Inventory::new(space, spec::limits(&start.config)));
    let metrics_page = telemetry::with_tasks(Arc::clone(&metrics.page), runtime.handle());
    let ended = runtime.block_on(async move {
        // Before anybody can connect: from the first connection on there is something to be ended in
        // good order.
        let stops = Stops::wait();
        let listener = Listener::bind(&spec::listen_settings(&start.config))?;
        tokio::spawn(metrics.keep_up());
        if let Some(watching) = listener.watch_tls() {
            tokio::spawn(watching);
        }
        let settings = spec::settings(&start.config, start.keys.clone());
        let spans = span_settings.map(Spans::start);
        let fleet = if start.args.urls.is_empty() {
            Fleet::start(start.fleet.clone(), inventory)?
        } else {
            // Served from the first moment, so that probes see a process that is not ready yet
            // rather than none.
            Fleet::empty(inventory)
        };
        let observer = start.recent.clone().map(|recent| Arc::new(Notes(recent)) as Arc<_>);
        let app = App::new(settings, fleet, metrics_page).with_spans(spans);
        let app = Arc::new(app.with_observer(observer));
        let times = control(&app, start, hangups)?;
        tracing::info!(address = %listener.local_addr()?, "listening");
        let serving = |closed: oneshot::Receiver<()>| {
            let stop = async move {
                // A sender that is gone means the same.
                let _ = closed.await;
            };
            serve(Arc::clone(&app), listener, stop, NO_BOUND)
        };
        let end = until_stopped(&app, stops, times, serving).await?;
        if end == End::Clean {
            app.flush_spans(LAST_SPANS).await;
        }
        Ok(end)
    });
    // A prompt that is being tokenised for nobody would otherwise be waited for.
    runtime.shutdown_timeout(LAST_WORDS);
    if let Some((store, recent)) = kept
        && let Err(error) = store.keep_stats(recent.stats())
    {
        let error = anyhow::Error::from(error);
        tracing::error!(error = format!("{error:#}"), "the last counts are not kept");
    }
    if decision_log.is_some_and(|log| !log.close()) {
        tracing::error!("the end of the decision log is not written: the disk does not answer");
    }
    ended
}

/// Starts what changes a running gateway: reloads, the admin API, and the look for what engines serve.
/// How long a stop may take is told by what comes back.
fn control(
    app: &Arc<App>,
    start: Start,
    hangups: Hangups,
) -> Result<impl Fn() -> StopTimes + use<>> {
    let (sender, receiver) = admin::orders();
    let (urls, base) = (start.args.urls.clone(), start.base.clone());
    if !urls.is_empty() {
        tokio::spawn(find_engines(base.clone(), urls, sender.clone()));
    }
    let (store, recent) = (start.store.clone(), start.recent.clone());
    if let (Some(store), Some(recent)) = (store, recent.clone()) {
        tokio::spawn(admin::keep_counts(store, recent));
    }
    let watch = start.watch.clone().map(|settings| controller::watch(settings, app));
    let mut reloader = Reloader::new(Arc::clone(app), start, receiver);
    if let (Some(config), Some(recent)) = (&base.admin, recent) {
        let (app, state) = (Arc::clone(app), reloader.state());
        let gateway = Gateway { app, state, orders: sender.clone(), recent, watch };
        reloader.follow_tokens(admin::serve(config, gateway)?);
    }
    let times = reloader.stop_times();
    tokio::spawn(reloader.run(hangups, sender));
    Ok(times)
}

/// Whether the gateway does not start for what its configuration refers to.
pub(crate) fn is_bad_config(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ListenError::Tls(_)))
        || matches!(error.downcast_ref(), Some(AdminError::Tls(_) | AdminError::Audit { .. }))
}

async fn find_engines(config: Config, urls: Vec<EngineUrl>, orders: mpsc::Sender<Order>) {
    match url_mode::discover(config, &urls).await {
        // Nobody takes it where the gateway is stopping.
        Ok(found) => drop(orders.send(Order::Found(Box::new(found))).await),
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::error!(error = format!("{error:#}"), "no pools");
        }
    }
}
