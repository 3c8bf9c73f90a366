//! Wires the libraries and runs them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kvasir_config::{Config, EngineUrl};
use kvasir_fleet::{DecisionLog, Fleet, FleetSpec};
use kvasir_inventory::Inventory;
use kvasir_kv_hash::KeySpace;
use kvasir_proxy::{App, ListenError, Listener, Spans, serve};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::args::ServeArgs;
use crate::client_keys::{Keyring, Keys};
use crate::lifecycle::{End, until_stopped};
use crate::reload::Reloader;
use crate::signals::{Hangups, Stops};
use crate::{spec, telemetry, url_mode};

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

/// Serves until SIGINT or SIGTERM: `fleet`, or what is found at the URLs where there are any. `text` is
/// that of the configuration file.
pub(crate) fn run(
    runtime: Runtime,
    hangups: Hangups,
    config: Config,
    text: String,
    fleet: FleetSpec,
    keys: Keys,
    args: ServeArgs,
) -> Result<End> {
    let decision_log = fleet.decision_log.clone();
    let metrics = telemetry::start_metrics()?;
    let span_settings = spec::spans(&config)?;
    let space = KeySpace::new(spec::random()?);
    let inventory = Arc::new(Inventory::new(space, spec::limits(&config)));
    let metrics_page = telemetry::with_tasks(Arc::clone(&metrics.page), runtime.handle());
    let ended = runtime.block_on(async move {
        // Before anybody can connect: from the first connection on there is something to be ended in
        // good order.
        let stops = Stops::wait();
        let listener = Listener::bind(&spec::listen_settings(&config))?;
        tokio::spawn(metrics.keep_up());
        if let Some(watching) = listener.watch_tls() {
            tokio::spawn(watching);
        }
        let settings = spec::settings(&config, keys.clone());
        let spans = span_settings.map(Spans::start);
        let keys = Keyring::new(&config, keys);
        let (started, log) = (config.clone(), fleet.decision_log.clone());
        let app = if args.urls.is_empty() {
            let fleet = Fleet::start(fleet, inventory)?;
            Arc::new(App::new(settings, fleet, metrics_page).with_spans(spans))
        } else {
            // Served from the first moment, so that probes see a process that is not ready yet
            // rather than none.
            let empty = Fleet::empty(Arc::clone(&inventory));
            let app = Arc::new(App::new(settings, empty, metrics_page).with_spans(spans));
            let (log, urls) = (fleet.decision_log, args.urls.clone());
            tokio::spawn(find_engines(Arc::clone(&app), config, urls, inventory, log));
            app
        };
        let reloader = Reloader::new(Arc::clone(&app), args, started, text, log, keys);
        let times = reloader.stop_times();
        tokio::spawn(reloader.run(hangups));
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
    if decision_log.is_some_and(|log| !log.close()) {
        tracing::error!("the end of the decision log is not written: the disk does not answer");
    }
    ended
}

/// Whether the gateway does not start for what its configuration refers to.
pub(crate) fn is_bad_config(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ListenError::Tls(_)))
}

async fn find_engines(
    app: Arc<App>,
    config: Config,
    urls: Vec<EngineUrl>,
    inventory: Arc<Inventory>,
    log: Option<Arc<DecisionLog>>,
) {
    let found = url_mode::discover(config, &urls).await.map_err(anyhow::Error::from);
    let started = found
        .and_then(|config| spec::fleet_spec(&config, log))
        .and_then(|spec| Fleet::start(spec, inventory).map_err(anyhow::Error::from));
    match started {
        Ok(fleet) => {
            let models: Vec<&str> = fleet.pools().iter().map(|pool| pool.model()).collect();
            tracing::info!(?models, "pools are up");
            app.replace_fleet(fleet);
        }
        Err(error) => tracing::error!(error = format!("{error:#}"), "no pools"),
    }
}
