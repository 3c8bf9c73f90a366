//! Wires the libraries and runs them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kvasir_config::{Config, EngineUrl};
use kvasir_fleet::{DecisionLog, Fleet, FleetSpec};
use kvasir_inventory::Inventory;
use kvasir_kv_hash::KeySpace;
use kvasir_proxy::{App, ClientKeys, ListenError, Listener, serve};

use crate::{client_keys, spec, telemetry, url_mode};

/// How long what was cut off may take to say so in the log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves until SIGINT or SIGTERM: `fleet`, or what is found at `urls` where there are any.
pub(crate) fn run(
    config: Config,
    fleet: FleetSpec,
    keys: Option<Arc<ClientKeys>>,
    urls: Vec<EngineUrl>,
) -> Result<()> {
    let decision_log = fleet.decision_log.clone();
    let metrics = telemetry::start_metrics()?;
    let metrics_page = Arc::clone(&metrics.page);
    let space = KeySpace::new(spec::random()?);
    let inventory = Arc::new(Inventory::new(space, spec::limits(&config)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async move {
        let listener = Listener::bind(&spec::listen_settings(&config))?;
        tokio::spawn(metrics.keep_up());
        if let Some(watching) = listener.watch_tls() {
            tokio::spawn(watching);
        }
        if let Some(keys) = &keys {
            client_keys::watch(&config, keys);
        }
        let grace = config.shutdown_grace();
        let settings = spec::settings(&config, keys);
        let app = if urls.is_empty() {
            let fleet = Fleet::start(fleet, inventory)?;
            Arc::new(App::new(settings, fleet, metrics_page))
        } else {
            // Served from the first moment, so that probes see a process that is not ready yet
            // rather than none.
            let empty = Fleet::empty(Arc::clone(&inventory));
            let app = Arc::new(App::new(settings, empty, metrics_page));
            let log = fleet.decision_log;
            tokio::spawn(find_engines(Arc::clone(&app), config, urls, inventory, log));
            app
        };
        tracing::info!(address = %listener.local_addr()?, "listening");
        serve(app, listener, stop_signal(), grace).await?;
        Ok(())
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
    let config = url_mode::discover(config, &urls).await;
    let started = spec::fleet_spec(&config, log)
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

/// Resolves on SIGINT or SIGTERM.
async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be waited for");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = terminated => {}
        result = tokio::signal::ctrl_c() => {
            if let Err(error) = result {
                tracing::warn!(%error, "SIGINT cannot be waited for");
                std::future::pending::<()>().await;
            }
        }
    }
}
