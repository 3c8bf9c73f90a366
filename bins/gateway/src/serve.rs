//! Wires the libraries and runs them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use kvasir_config::{Config, EngineUrl};
use kvasir_fleet::Fleet;
use kvasir_inventory::Inventory;
use kvasir_kv_hash::KeySpace;
use kvasir_proxy::{App, Listener, MetricsPage, Spans, serve};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, oneshot};

use crate::admin::{Gateway, Notes, Order, Serving};
use crate::lifecycle::{End, StopTimes, until_stopped};
use crate::reload::Reloader;
use crate::signals::{Hangups, Stops};
use crate::start::Start;
use crate::{admin, controller, loxilb, spec, telemetry, url_mode};

/// How long what was cut off may take to say so in the log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the last spans may take to reach their collector.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// `serve` bounds a stop by itself; the times of the configuration, which may change, are kept here.
pub(crate) const NO_BOUND: Duration = Duration::from_secs(u32::MAX as u64);

/// What everything runs on.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Serves until SIGINT or SIGTERM: the pools of the configuration, or what is found at the URLs where
/// there are any.
pub(crate) fn run(runtime: Runtime, hangups: Hangups, start: Start) -> Result<End> {
    let decision_log = start.next.fleet.decision_log.clone();
    let kept = start.store.clone().zip(start.recent.clone());
    let ended = runtime.block_on(served(hangups, start));
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

/// All of it that needs a runtime.
async fn served(hangups: Hangups, start: Start) -> Result<End> {
    let metrics = telemetry::start_metrics()?;
    let metrics_page = telemetry::with_tasks(Arc::clone(&metrics.page), &Handle::current());
    // Before anybody can connect: from the first connection on there is something to be ended in
    // good order.
    let stops = Stops::wait();
    let listener = Listener::bind(&spec::listen_settings(&start.next.config)?);
    let listener = listener.map_err(spec::unusable_listener)?;
    tokio::spawn(metrics.keep_up());
    if let Some(watching) = listener.watch_tls() {
        tokio::spawn(watching);
    }
    let app = app(&start, metrics_page)?;
    let ports = loxilb::start(&start).await?;
    let stopping = Arc::new(AtomicBool::new(false));
    let (times, admin) = control(&app, start, hangups, ports.clone(), &stopping)?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    let serving = |closed: oneshot::Receiver<()>| {
        let (begun, closing) = oneshot::channel::<()>();
        let stop = async move {
            // A sender that is gone means the same.
            let _ = closed.await;
            drop(begun);
        };
        let serving = serve(Arc::clone(&app), listener, stop, NO_BOUND);
        let ports_end = async move {
            let _ = closing.await;
            if let Some(ports) = ports {
                ports.close().await;
            }
        };
        async { tokio::join!(serving, ports_end).0 }
    };
    let ended = until_stopped(&app, stops, times, &stopping, serving).await;
    if let Some(admin) = admin {
        admin.end().await;
    }
    let end = ended?;
    if end == End::Clean {
        app.flush_spans(LAST_SPANS).await;
    }
    Ok(end)
}

/// The data plane.
fn app(start: &Start, metrics_page: MetricsPage) -> Result<Arc<App>> {
    let spans = spec::spans(&start.next.config)?.map(Spans::start);
    let space = KeySpace::new(spec::random()?);
    let inventory = Arc::new(Inventory::new(space, spec::limits(&start.next.config)));
    let settings = spec::settings(&start.next.config, start.next.secrets.keys.clone());
    let fleet = if start.args.urls.is_empty() {
        Fleet::start(start.next.fleet.clone(), inventory)?
    } else {
        // Served from the first moment, so that probes see a process that is not ready yet
        // rather than none.
        Fleet::empty(inventory)
    };
    let observer = start.recent.clone().map(|recent| Arc::new(Notes(recent)) as Arc<_>);
    let app = App::new(settings, fleet, metrics_page).with_spans(spans);
    Ok(Arc::new(app.with_observer(observer)))
}

/// Starts what changes a running gateway: reloads, the admin API, and the look for what engines serve.
/// How long a stop may take is told by what comes back, beside the API.
fn control(
    app: &Arc<App>,
    start: Start,
    hangups: Hangups,
    ports: Option<Arc<loxilb::Ports>>,
    stopping: &Arc<AtomicBool>,
) -> Result<(impl Fn() -> StopTimes + use<>, Option<Serving>)> {
    let (sender, receiver) = admin::orders();
    let (urls, base) = (start.args.urls.clone(), start.base.clone());
    let admin_tokens = start.next.secrets.tokens.clone();
    if !urls.is_empty() {
        tokio::spawn(find_engines(base.clone(), urls, sender.clone()));
    }
    let (store, recent) = (start.store.clone(), start.recent.clone());
    if let (Some(store), Some(recent)) = (store, recent.clone()) {
        tokio::spawn(admin::keep_counts(store, recent));
    }
    let watch = start.watch.clone().map(|settings| controller::watch(settings, app));
    let mut reloader = Reloader::new(Arc::clone(app), start, receiver);
    let mut serving = None;
    if let (Some(config), Some(recent)) = (&base.admin, recent) {
        let (app, state, stopping) = (Arc::clone(app), reloader.state(), Arc::clone(stopping));
        let gateway = Gateway { app, state, orders: sender.clone(), recent, stopping, watch };
        let (tokens, admin) = admin::serve(config, admin_tokens, gateway)?;
        reloader.follow_tokens(tokens);
        serving = Some(admin);
    }
    if let Some(ports) = ports {
        reloader.follow_ports(ports);
    }
    let times = reloader.stop_times();
    tokio::spawn(reloader.run(hangups, sender));
    Ok((times, serving))
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
