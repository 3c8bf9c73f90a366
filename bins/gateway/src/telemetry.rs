//! Logs and metrics of the process.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use anyhow::{Result, anyhow};
use kvasir_config::{LogConfig, LogFormat};
use kvasir_metrics::{Family, Kind};
use kvasir_proxy::MetricsPage;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::runtime::Handle;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::bad_key::bad_key;

/// How often recorded samples are folded.
const UPKEEP: Duration = Duration::from_secs(5);

/// Starts logging to standard error. `RUST_LOG` wins over the configuration.
pub(crate) fn start_logging(config: &LogConfig) -> Result<()> {
    let filter = filter(config)?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr);
    match config.format {
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
        LogFormat::Text => subscriber.try_init(),
    }
    .map_err(|error| anyhow!("logging: {error}"))
}

/// What is logged. `RUST_LOG` wins over the configuration.
pub(crate) fn filter(config: &LogConfig) -> Result<EnvFilter> {
    let level = config.level.as_deref().unwrap_or("info");
    match std::env::var("RUST_LOG") {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| anyhow!("RUST_LOG: {}", no_filter(&text, &error))),
        Err(_) => EnvFilter::try_new(level)
            .map_err(|error| bad_key("log.level", no_filter(level, &error))),
    }
}

/// The library says the same sentence twice.
fn no_filter(text: &str, error: &ParseError) -> String {
    let why = error.to_string();
    let why = why.trim_start_matches("error parsing level filter: ");
    format!("`{text}` is no filter such as `info` or `info,kvasir_fleet=debug`: {why}")
}

/// Installs the recorder of the process-wide metric families and returns it.
pub(crate) fn start_metrics() -> Result<Metrics> {
    let mut builder = PrometheusBuilder::new();
    for family in kvasir_metrics::all() {
        if let Kind::Histogram(buckets) = family.kind {
            builder =
                builder.set_buckets_for_metric(Matcher::Full(family.name.to_owned()), buckets)?;
        }
    }
    let handle = builder.install_recorder()?;
    for family in kvasir_metrics::all() {
        describe(family);
    }
    let rendered = handle.clone();
    Ok(Metrics { page: std::sync::Arc::new(move || rendered.render()), handle })
}

/// Says what it means, to the recorder that is installed.
fn describe(family: &Family) {
    match family.kind {
        Kind::Counter => metrics::describe_counter!(family.name, family.help()),
        Kind::Gauge => metrics::describe_gauge!(family.name, family.help()),
        Kind::Histogram(_) => metrics::describe_histogram!(family.name, family.help()),
    }
}

/// The same page, with how many tasks a runtime has.
pub(crate) fn with_tasks(page: MetricsPage, runtime: &Handle) -> MetricsPage {
    let runtime = runtime.metrics();
    std::sync::Arc::new(move || {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics::gauge!("kvasir_runtime_tasks").set(runtime.num_alive_tasks() as f64);
        page()
    })
}

/// The process-wide metric families.
pub(crate) struct Metrics {
    /// Renders them.
    pub(crate) page: MetricsPage,
    handle: PrometheusHandle,
}

impl Metrics {
    /// Folds what was recorded, for ever: without it samples pile up between two scrapes.
    pub(crate) async fn keep_up(self) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.handle.run_upkeep();
        }
    }
}
