//! A running gateway takes up another configuration: on SIGHUP, and when the file changes.

use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use kvasir_config::{Config, differences};
use kvasir_fleet::DecisionLog;
use kvasir_proxy::App;

use crate::args::ServeArgs;
use crate::client_keys::{Keyring, Keys};
use crate::lifecycle::StopTimes;
use crate::signals::Hangups;
use crate::{client_keys, spec};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// More differences are counted, not named.
const MOST_NAMED: usize = 100;

/// The configuration a gateway runs with, and what it takes to change it.
pub(crate) struct Reloader {
    app: Arc<App>,
    args: ServeArgs,
    /// What it was started with: what cannot change stays so.
    started: Config,
    running: Arc<ArcSwap<Config>>,
    decision_log: Option<Arc<DecisionLog>>,
    /// Follows the clients' keys.
    keyring: Keyring,
    /// The text of the file, as last taken up.
    text: String,
    /// The file as last looked at, whatever came of it.
    seen: Option<Stamp>,
}

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() }
    }

    async fn at(path: &Path) -> Option<Self> {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || std::fs::metadata(path));
        Some(Self::of(&read.await.ok()?.ok()?))
    }
}

/// A configuration that was read, and everything it refers to.
struct Read {
    text: String,
    config: Config,
    /// Keys that wait for a restart.
    held: Vec<&'static str>,
    fleet: kvasir_fleet::FleetSpec,
    keys: Keys,
}

impl Reloader {
    /// `text` is what `started` was read from, in the state `seen`.
    pub(crate) fn new(
        app: Arc<App>,
        args: ServeArgs,
        started: Config,
        text: String,
        decision_log: Option<Arc<DecisionLog>>,
        keyring: Keyring,
    ) -> Self {
        let running = Arc::new(ArcSwap::from_pointee(started.clone()));
        count_from_zero();
        note_loaded();
        Self { app, args, started, running, decision_log, keyring, text, seen: None }
    }

    /// How long a stop may take, by what the gateway runs with then.
    pub(crate) fn stop_times(&self) -> impl Fn() -> StopTimes + use<> {
        let running = Arc::clone(&self.running);
        move || {
            let config = running.load();
            StopTimes { delay: config.shutdown_delay(), grace: config.shutdown_grace() }
        }
    }

    /// Takes up changes for ever.
    pub(crate) async fn run(mut self, mut hangups: Hangups) {
        let Some(path) = self.args.file().map(Path::to_owned) else {
            loop {
                hangups.next().await;
                tracing::warn!("SIGHUP: there is no configuration file to be read anew");
            }
        };
        // A change since the file was read at the start is one as well.
        self.seen = Stamp::at(&path).await;
        self.reload(&path, false).await;
        loop {
            let asked = tokio::select! {
                () = hangups.next() => true,
                () = tokio::time::sleep(LOOK) => false,
            };
            let stamp = Stamp::at(&path).await;
            // A file that is being replaced may be missing for a moment.
            if asked || (stamp.is_some() && stamp != self.seen) {
                self.seen = stamp;
                self.reload(&path, asked).await;
            }
        }
    }

    async fn reload(&mut self, path: &Path, asked: bool) {
        let began = Instant::now();
        let (args, started, log) =
            (self.args.clone(), self.started.clone(), self.decision_log.clone());
        let read = tokio::task::spawn_blocking(move || read(&args, &started, log));
        let read = match read.await.context("reading the configuration").and_then(|read| read) {
            Ok(read) if read.text == self.text && !asked => return,
            Ok(read) => read,
            Err(error) => return refused(path, &error),
        };
        let Read { text, config, held, fleet, keys } = read;
        let reloaded = match self.app.fleet().reload(fleet) {
            Ok(reloaded) => reloaded,
            Err(error) => return refused(path, &error.into()),
        };
        let (fleet, mut changes) = reloaded;
        let settings = config.changed_since(&self.running.load());
        changes.settings = settings.into_iter().map(str::to_owned).collect();
        self.app.reload(spec::settings(&config, keys.clone()), fleet);
        self.keyring = Keyring::new(&config, keys);
        for difference in differences(&self.text, &text).iter().take(MOST_NAMED) {
            tracing::info!("configuration: {difference}");
        }
        for key in held {
            tracing::warn!(key, "needs a restart; the rest of the configuration is in effect");
        }
        let took_ms = began.elapsed().as_millis();
        tracing::info!(file = %path.display(), %changes, took_ms, "configuration is in effect");
        self.running.store(Arc::new(config));
        self.text = text;
        count("applied");
        note_loaded();
    }
}

/// Off the async threads: it reads files.
fn read(args: &ServeArgs, started: &Config, log: Option<Arc<DecisionLog>>) -> Result<Read> {
    let (mut config, text) = args.config()?;
    let held = config.hold_fixed(started);
    let fleet = spec::fleet_spec(&config, log)?;
    let keys = client_keys::load(&config)?;
    Ok(Read { text, config, held, fleet, keys })
}

fn refused(path: &Path, error: &anyhow::Error) {
    let (file, error) = (path.display(), format!("{error:#}"));
    tracing::error!(%file, error, "the new configuration cannot be used: the old one stays");
    count("rejected");
}

fn count(result: &'static str) {
    counter(result).increment(1);
}

fn counter(result: &'static str) -> metrics::Counter {
    metrics::counter!("kvasir_config_reloads_total", "result" => result)
}

/// An alert on the first rejection needs to have seen that there was none.
fn count_from_zero() {
    ["applied", "rejected"].into_iter().for_each(|result| counter(result).increment(0));
}

fn note_loaded() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    metrics::gauge!("kvasir_config_loaded_timestamp_seconds").set(now.as_secs_f64());
}
