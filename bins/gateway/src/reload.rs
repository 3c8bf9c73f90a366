//! A running gateway takes up another configuration: on SIGHUP, when the file changes, and when the
//! admin API is asked for a change. All of it goes through one task.

use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use http::StatusCode;
use kvasir_admin::{ApiError, Applied, State, Store, Tokens};
use kvasir_config::{Change, Config, Overlay, differences};
use kvasir_fleet::{Changes, DecisionLog, FleetSpec};
use kvasir_proxy::App;
use tokio::sync::mpsc;

use crate::admin::Order;
use crate::args::{ServeArgs, Told};
use crate::client_keys::{Keyring, Keys};
use crate::lifecycle::StopTimes;
use crate::signals::Hangups;
use crate::start::{Start, laid_over};
use crate::{admin, client_keys, forwarded, spec};

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
    /// What file, environment and flags say; `None` while nobody knows what the engines serve.
    base: Option<Config>,
    /// What it runs with, and the changes in that.
    state: Arc<ArcSwap<State>>,
    store: Option<Arc<Store>>,
    decision_log: Option<Arc<DecisionLog>>,
    /// Follows the clients' keys.
    keyring: Keyring,
    /// The admin API's tokens, where there is one.
    tokens: Option<Tokens>,
    orders: mpsc::Receiver<Order>,
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

/// A configuration that was read from the file, with the changes on top.
struct Read {
    text: String,
    base: Config,
    /// Keys that wait for a restart.
    held: Vec<&'static str>,
    next: Next,
}

/// A configuration that can be put into effect, and everything it refers to.
struct Next {
    config: Config,
    overlay: Overlay,
    fleet: FleetSpec,
    keys: Keys,
    /// The admin API's tokens for reading and for changes.
    tokens: (Option<String>, Option<String>),
}

impl Reloader {
    /// Of a gateway that was started with this.
    pub(crate) fn new(app: Arc<App>, start: Start, orders: mpsc::Receiver<Order>) -> Self {
        let Start { args, text, base, overlay, config, store, recent: _, fleet, keys, watch: _ } =
            start;
        let keyring = Keyring::new(&config, keys);
        let state = State { config: Arc::new(config), overlay: Arc::new(overlay) };
        let state = Arc::new(ArcSwap::from_pointee(state));
        count_from_zero();
        note_loaded();
        let (started, known) = (base.clone(), args.urls.is_empty().then_some(base));
        Self {
            app,
            args,
            started,
            base: known,
            state,
            store,
            decision_log: fleet.decision_log,
            keyring,
            tokens: None,
            orders,
            text,
            seen: None,
        }
    }

    /// What the gateway runs with.
    pub(crate) fn state(&self) -> Arc<ArcSwap<State>> {
        Arc::clone(&self.state)
    }

    /// Tells the admin API of tokens that change.
    pub(crate) fn follow_tokens(&mut self, tokens: Tokens) {
        self.tokens = Some(tokens);
    }

    /// How long a stop may take, by what the gateway runs with then.
    pub(crate) fn stop_times(&self) -> impl Fn() -> StopTimes + use<> {
        let state = Arc::clone(&self.state);
        move || {
            let config = &state.load().config;
            StopTimes { delay: config.shutdown_delay(), grace: config.shutdown_grace() }
        }
    }

    /// Takes up changes for ever. `_open` keeps the way for orders open where nobody else does.
    pub(crate) async fn run(mut self, mut hangups: Hangups, _open: mpsc::Sender<Order>) {
        let path = self.args.file().map(Path::to_owned);
        if let Some(path) = &path {
            // A change since the file was read at the start is one as well.
            self.seen = Stamp::at(path).await;
            let _ = self.reload(path, false).await;
        }
        loop {
            let asked = tokio::select! {
                () = hangups.next() => true,
                () = tokio::time::sleep(LOOK), if path.is_some() => false,
                Some(order) = self.orders.recv() => {
                    self.obey(order, path.as_deref()).await;
                    continue;
                }
            };
            let Some(path) = &path else {
                tracing::warn!("SIGHUP: there is no configuration file to be read anew");
                continue;
            };
            let stamp = Stamp::at(path).await;
            // A file that is being replaced may be missing for a moment.
            if asked || (stamp.is_some() && stamp != self.seen) {
                self.seen = stamp;
                let _ = self.reload(path, asked).await;
            }
        }
    }

    async fn obey(&mut self, order: Order, path: Option<&Path>) {
        match order {
            Order::Found(config) => {
                if let Err(error) = self.found(*config).await {
                    tracing::error!(error = format!("{error:#}"), "no pools");
                }
            }
            // Whoever does not wait any more has still asked for it.
            Order::Change(change, asker) => drop(asker.send(self.change(change).await)),
            Order::Reload(asker) => {
                let reloaded = match path {
                    Some(path) => {
                        self.seen = Stamp::at(path).await;
                        self.reload(path, true).await.map_err(|error| refused_change(&error))
                    }
                    None => {
                        let why = "there is no configuration file to be read anew";
                        Err(ApiError::new(StatusCode::CONFLICT, "no_file", why))
                    }
                };
                let persisted = self.store.is_some();
                let applied = reloaded.map(|changes| Applied { changes, persisted });
                drop(asker.send(applied));
            }
        }
    }

    /// Reads the file anew and puts it into effect; what changed, in words. A bad one is refused, said
    /// so in the log and counted.
    async fn reload(&mut self, path: &Path, asked: bool) -> Result<String> {
        let began = Instant::now();
        match self.take_up(path, asked, began).await {
            Ok(changes) => Ok(changes.map(|changes| changes.to_string()).unwrap_or_default()),
            Err(error) => {
                refused(path, &error);
                Err(error)
            }
        }
    }

    async fn take_up(
        &mut self,
        path: &Path,
        asked: bool,
        began: Instant,
    ) -> Result<Option<Changes>> {
        let (args, started, log) =
            (self.args.clone(), self.started.clone(), self.decision_log.clone());
        let overlay = Overlay::clone(&self.state.load().overlay);
        let read = tokio::task::spawn_blocking(move || read(&args, &started, overlay, log));
        let read = read.await.context("reading the configuration")??;
        if read.text == self.text && !asked {
            return Ok(None);
        }
        let Read { text, base, held, next } = read;
        let settings = next.config.changed_since(&self.state.load().config);
        let mut changes = self.put_into_effect(next)?;
        changes.settings = settings.into_iter().map(str::to_owned).collect();
        forwarded::warn_of_administrative(&base);
        for difference in differences(&self.text, &text).iter().take(MOST_NAMED) {
            tracing::info!("configuration: {difference}");
        }
        for key in held {
            tracing::warn!(key, "needs a restart; the rest of the configuration is in effect");
        }
        let took_ms = began.elapsed().as_millis();
        tracing::info!(file = %path.display(), %changes, took_ms, "configuration is in effect");
        (self.base, self.text) = (Some(base), text);
        count("applied");
        note_loaded();
        Ok(Some(changes))
    }

    /// The engines that were given by URL alone were found.
    async fn found(&mut self, base: Config) -> Result<()> {
        let kept = Overlay::clone(&self.state.load().overlay);
        let log = self.decision_log.clone();
        let laid = base.clone();
        let next = tokio::task::spawn_blocking(move || {
            let (overlay, config) = laid_over(&laid, kept)?;
            Next::of(config, overlay, log)
        });
        let next = next.await.context("setting up the pools")??;
        self.put_into_effect(next)?;
        self.base = Some(base);
        let fleet = self.app.fleet();
        let models: Vec<&str> = fleet.pools().iter().map(|pool| pool.model()).collect();
        tracing::info!(?models, "pools are up");
        Ok(())
    }

    /// Makes a change: checked, kept, and in effect; or none of it.
    async fn change(&mut self, change: Change) -> Result<Applied, ApiError> {
        let Some(base) = &self.base else {
            let why = "it is not known yet what the engines serve";
            return Err(ApiError::new(StatusCode::CONFLICT, "not_ready", why));
        };
        let before = Arc::clone(&self.state.load().overlay);
        let (overlay, config) = before.with(base, &change)?;
        let (log, store) = (self.decision_log.clone(), self.store.clone());
        let next = tokio::task::spawn_blocking(move || {
            let next = Next::of(config, overlay, log).map_err(|error| refused_change(&error))?;
            keep(store.as_deref(), &next.overlay)?;
            Ok::<_, ApiError>(next)
        });
        let next = next.await.map_err(|error| broken(&error.to_string()))??;
        let changes = match self.put_into_effect(next) {
            Ok(changes) => changes,
            Err(error) => {
                let store = self.store.clone();
                // What is not in effect is not to come back with a restart.
                let back = tokio::task::spawn_blocking(move || keep(store.as_deref(), &before));
                back.await.map_err(|error| broken(&error.to_string()))??;
                return Err(refused_change(&error));
            }
        };
        tracing::info!(%changes, "a change through the admin API is in effect");
        Ok(Applied { changes: changes.to_string(), persisted: self.store.is_some() })
    }

    /// Routes by this from now on; or by nothing of it.
    fn put_into_effect(&mut self, next: Next) -> Result<Changes> {
        let Next { config, overlay, fleet, keys, tokens } = next;
        let (fleet, changes) = self.app.fleet().reload(fleet)?;
        self.app.reload(spec::settings(&config, keys.clone()), fleet);
        self.keyring = Keyring::new(&config, keys);
        if let Some(known) = &self.tokens {
            known.set(tokens.0.as_deref(), tokens.1.as_deref());
        }
        let state = State { config: Arc::new(config), overlay: Arc::new(overlay) };
        self.state.store(Arc::new(state));
        Ok(changes)
    }
}

impl Next {
    /// Off the async threads: it reads files.
    fn of(config: Config, overlay: Overlay, log: Option<Arc<DecisionLog>>) -> Result<Self> {
        let fleet = spec::fleet_spec(&config, log)?;
        let keys = client_keys::load(&config)?;
        let tokens = config.admin.as_ref().map(admin::tokens).transpose()?.unwrap_or_default();
        Ok(Self { config, overlay, fleet, keys, tokens })
    }
}

/// Off the async threads: it reads files.
fn read(
    args: &ServeArgs,
    started: &Config,
    overlay: Overlay,
    log: Option<Arc<DecisionLog>>,
) -> Result<Read> {
    let Told { config: mut base, text, .. } = args.config()?;
    let held = base.hold_fixed(started);
    let (overlay, config) = laid_over(&base, overlay)?;
    let next = Next::of(config, overlay, log)?;
    Ok(Read { text, base, held, next })
}

fn keep(store: Option<&Store>, overlay: &Overlay) -> Result<(), ApiError> {
    let Some(store) = store else { return Ok(()) };
    store.keep_overlay(overlay).map_err(|error| {
        let error = anyhow::Error::from(error);
        broken(&format!("the change cannot be kept: {error:#}"))
    })
}

fn broken(why: &str) -> ApiError {
    tracing::error!(why, "a change through the admin API was not made");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why)
}

fn refused_change(error: &anyhow::Error) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", format!("{error:#}"))
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
