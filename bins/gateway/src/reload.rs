//! A running gateway takes up another configuration: on SIGHUP, when the file changes, and when the
//! admin API is asked for a change. All of it goes through one task.

mod refused;
mod stamp;
mod told;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use http::StatusCode;
use kvasir_admin::{ApiError, Applied, Aside, LeftOut, State, Store, Tokens};
use kvasir_config::{Change, Config, Overlay, differences};
use kvasir_fleet::{Changes, DecisionLog};
use kvasir_proxy::App;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use self::stamp::Stamp;
use crate::admin::Order;
use crate::args::{ServeArgs, Told};
use crate::client_keys::Keyring;
use crate::lifecycle::StopTimes;
use crate::loxilb::Ports;
use crate::next::{Next, Secrets};
use crate::signals::Hangups;
use crate::start::Start;
use crate::{forwarded, spec};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// So many looks in a row without the file, and it is said to be gone.
const GONE: u8 = 3;
/// More differences are counted, not named.
const MOST_NAMED: usize = 100;

/// The configuration a gateway runs with, and what it takes to change it.
pub(crate) struct Reloader {
    app: Arc<App>,
    args: ServeArgs,
    /// What it was started with: what cannot change stays so.
    started: Config,
    /// What file, environment and flags say; `None` while nobody knows what the engines serve.
    base: Option<Arc<Config>>,
    /// What it runs with, and the changes in that.
    state: Arc<ArcSwap<State>>,
    store: Option<Arc<Store>>,
    decision_log: Option<Arc<DecisionLog>>,
    /// Keys and tokens, as last read.
    secrets: Secrets,
    /// Follows the clients' keys.
    keyring: Keyring,
    /// The admin API's tokens, where there is one.
    tokens: Option<Tokens>,
    /// Ports of rules, where there may be some.
    ports: Option<Arc<Ports>>,
    orders: mpsc::Receiver<Order>,
    /// The text of the file, as last taken up.
    text: String,
    /// How often in a row the file was not there when it was looked at.
    missing: u8,
    /// The file as last looked at, whatever came of it.
    seen: Option<Stamp>,
}

/// What came of reading the file anew.
#[derive(Default)]
struct Taken {
    /// What changed in the fleet, in words.
    changes: String,
    dropped: Vec<LeftOut>,
    /// Whether what is in effect outlives the process.
    persisted: bool,
}

/// A configuration that was read from the file, with the changes on top.
struct Read {
    text: String,
    base: Config,
    /// Keys that wait for a restart.
    held: Vec<&'static str>,
    next: Next,
}

impl Reloader {
    /// Of a gateway that was started with this.
    pub(crate) fn new(app: Arc<App>, start: Start, orders: mpsc::Receiver<Order>) -> Self {
        let Start { args, text, base, next, aside, store, recent: _, watch: _ } = start;
        let Next { config, overlay, fleet, secrets, dropped } = next;
        let keyring = Keyring::new(&config, secrets.keys.clone());
        let state = State::of(config, overlay, Arc::new(aside));
        let state = Arc::new(ArcSwap::from_pointee(state));
        told::count_from_zero();
        told::dropped(&dropped);
        told::note_loaded();
        told::note_stale(false);
        let (started, known) = (base.clone(), args.urls.is_empty().then(|| Arc::new(base)));
        Self {
            app,
            args,
            started,
            base: known,
            state,
            store,
            decision_log: fleet.decision_log,
            secrets,
            keyring,
            tokens: None,
            ports: None,
            orders,
            text,
            missing: 0,
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

    /// Has the ports of rules follow what is the same at all ports.
    pub(crate) fn follow_ports(&mut self, ports: Arc<Ports>) {
        self.ports = Some(ports);
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
            if !self.is_read(path).await {
                survived(self.reload(path, false)).await;
            }
        }
        // Of its own: however many orders come, the file is looked at.
        let mut looks = interval_at(tokio::time::Instant::now() + LOOK, LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            survived(self.step(&mut hangups, &mut looks, path.as_deref())).await;
        }
    }

    /// Whether the file still is what was read at the start, so that nothing has to be made of it again.
    async fn is_read(&self, path: &Path) -> bool {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
        matches!(read, Ok(Ok(text)) if text == self.text)
    }

    /// Waits for one reason to take something up, and does.
    async fn step(&mut self, hangups: &mut Hangups, looks: &mut Interval, path: Option<&Path>) {
        let asked = tokio::select! {
            () = hangups.next() => true,
            _ = looks.tick(), if path.is_some() => false,
            Some(order) = self.orders.recv() => return self.obey(order, path).await,
        };
        let Some(path) = path else {
            tracing::warn!("SIGHUP: there is no configuration file to be read anew");
            return;
        };
        let stamp = Stamp::at(path).await;
        self.missing = if stamp.is_some() { 0 } else { self.missing.saturating_add(1) };
        if self.missing == GONE {
            // Whatever is put there is read, the same file as well.
            self.seen = None;
            let _ = self.reload(path, false).await;
            return;
        }
        // A file that is being replaced may be missing for a moment.
        if asked || (stamp.is_some() && stamp != self.seen) {
            self.seen = stamp;
            let _ = self.reload(path, asked).await;
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
            Order::Change(change, expected, asker) => {
                let made = match expected.check(&self.state.load().version) {
                    Ok(()) => self.change(change).await,
                    Err(error) => Err(error),
                };
                drop(asker.send(made));
            }
            Order::Reload(expected, asker) => {
                let is_expected = expected.check(&self.state.load().version);
                let reloaded = match (is_expected, path) {
                    (Err(error), _) => Err(error),
                    (Ok(()), Some(path)) => {
                        self.seen = Stamp::at(path).await;
                        self.reload(path, true).await.map_err(|error| refused::reload(&error))
                    }
                    (Ok(()), None) => {
                        let why = "there is no configuration file to be read anew";
                        Err(ApiError::new(StatusCode::CONFLICT, "no_file", why))
                    }
                };
                drop(asker.send(reloaded));
            }
        }
    }

    /// Reads the file anew and puts it into effect; what changed, in words. A bad one is refused, said
    /// so in the log and counted.
    async fn reload(&mut self, path: &Path, asked: bool) -> Result<Applied> {
        let began = Instant::now();
        let taken_up = self.take_up(path, asked, began).await;
        self.note_refused(taken_up.as_ref().err());
        taken_up
            .map(|Taken { changes, dropped, persisted }| {
                told::note_stale(false);
                let version = self.state.load().version.clone();
                Applied { changes, version, persisted, dropped }
            })
            .inspect_err(|error| told::refused(path, error))
    }

    /// Keeps why the file is refused, for whoever asks.
    fn note_refused(&self, error: Option<&anyhow::Error>) {
        let before = State::clone(&self.state.load());
        if error.is_none() && before.refused.is_some() {
            tracing::info!("the configuration file is in effect again");
        }
        let refused = error.map(|error| Arc::from(format!("{error:#}")));
        self.state.store(Arc::new(State { refused, ..before }));
    }

    async fn take_up(&mut self, path: &Path, asked: bool, began: Instant) -> Result<Taken> {
        let (args, started, log) =
            (self.args.clone(), self.started.clone(), self.decision_log.clone());
        let overlay = Overlay::clone(&self.state.load().overlay);
        let read =
            tokio::task::spawn_blocking(move || read(&args, &started, overlay, log.as_ref()));
        let read = read.await.context("reading the configuration")??;
        if read.text == self.text && !asked {
            return Ok(Taken { persisted: self.store.is_some(), ..Taken::default() });
        }
        let Read { text, base, held, next } = read;
        let mut settings = next.config.changed_since(&self.state.load().config);
        settings.extend((next.secrets.tokens != self.secrets.tokens).then_some("admin tokens"));
        let (mut changes, dropped, persisted) = self.put_all_into_effect(next).await?;
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
        (self.base, self.text) = (Some(Arc::new(base)), text);
        told::count("applied");
        told::note_loaded();
        Ok(Taken { changes: changes.to_string(), dropped, persisted })
    }

    /// The engines that were given by URL alone were found.
    async fn found(&mut self, base: Config) -> Result<()> {
        let kept = Overlay::clone(&self.state.load().overlay);
        let log = self.decision_log.clone();
        let laid = base.clone();
        let next = tokio::task::spawn_blocking(move || Next::fitted(&laid, kept, log.as_ref()));
        let next = next.await.context("setting up the pools")??;
        self.put_all_into_effect(next).await?;
        self.base = Some(Arc::new(base));
        let fleet = self.app.fleet();
        let models: Vec<&str> = fleet.pools().iter().map(|pool| pool.model()).collect();
        tracing::info!(?models, "pools are up");
        Ok(())
    }

    /// Makes a change: checked, kept, and in effect; or none of it.
    async fn change(&mut self, change: Change) -> Result<Applied, ApiError> {
        let Some(base) = self.base.clone() else {
            let why = "it is not known yet what the engines serve";
            return Err(ApiError::new(StatusCode::CONFLICT, "not_ready", why));
        };
        let before = Arc::clone(&self.state.load().overlay);
        let (log, store) = (self.decision_log.clone(), self.store.clone());
        let (secrets, kept) = (self.secrets.clone(), Arc::clone(&before));
        let next = tokio::task::spawn_blocking(move || {
            let (overlay, config) = kept.with(&base, &change)?;
            let place = change.place_in(&config);
            let next = Next::changed(config, overlay, secrets, log);
            let next = next.map_err(|error| refused::change(&error, &place))?;
            let kept = keep(store.as_deref(), &next.overlay);
            kept.map_err(|error| {
                refused::broken(&format!("the change cannot be kept and was not made: {error:#}"))
            })?;
            Ok::<_, ApiError>(next)
        });
        let next = next.await.map_err(|error| refused::broken(&error.to_string()))??;
        let aside = Arc::clone(&self.state.load().aside);
        let changes = match self.put_into_effect(next, aside) {
            Ok(changes) => changes,
            Err(error) => {
                let store = self.store.clone();
                // What is not in effect is not to come back with a restart.
                let back = tokio::task::spawn_blocking(move || keep(store.as_deref(), &before));
                let back = back.await.unwrap_or_else(|broke| Err(broke.into()));
                return Err(refused::not_in_effect(&error, back));
            }
        };
        tracing::info!(%changes, "a change through the admin API is in effect");
        let (changes, persisted) = (changes.to_string(), self.store.is_some());
        let version = self.state.load().version.clone();
        Ok(Applied { changes, version, persisted, dropped: Vec::new() })
    }

    /// Routes by what was read anew, secrets included, or by nothing of it. The changes that it left no
    /// place for are put aside: they do not come back by themselves. What changed, what was put aside, and
    /// whether that outlives the process.
    async fn put_all_into_effect(
        &mut self,
        mut next: Next,
    ) -> Result<(Changes, Vec<LeftOut>, bool)> {
        let dropped = std::mem::take(&mut next.dropped);
        let aside = Arc::new(self.state.load().aside.with(&dropped));
        let (secrets, overlay) = (next.secrets.clone(), next.overlay.clone());
        let keyring = Keyring::new(&next.config, secrets.keys.clone());
        let changes = self.put_into_effect(next, Arc::clone(&aside))?;
        self.keyring = keyring;
        if let Some(known) = &self.tokens {
            known.set(secrets.tokens.0.as_deref(), secrets.tokens.1.as_deref());
        }
        self.secrets = secrets;
        let mut persisted = self.store.is_some();
        if !dropped.is_empty() {
            told::dropped(&dropped);
            let store = self.store.clone();
            let kept =
                tokio::task::spawn_blocking(move || keep_all(store.as_deref(), &overlay, &aside));
            // It is in effect, whatever came of keeping it.
            persisted &= kept.await.unwrap_or(false);
        }
        Ok((changes, dropped, persisted))
    }

    /// Routes by this from now on; or by nothing of it.
    fn put_into_effect(&mut self, next: Next, aside: Arc<Aside>) -> Result<Changes> {
        let Next { config, overlay, fleet, secrets, dropped: _ } = next;
        let (fleet, changes) = self.app.fleet().reload(fleet)?;
        if let Some(ports) = &self.ports {
            ports.follow(&config, secrets.keys.clone());
        }
        self.app.reload(spec::settings(&config, secrets.keys), fleet);
        let refused = self.state.load().refused.clone();
        let state = State { refused, ..State::of(config, overlay, aside) };
        self.state.store(Arc::new(state));
        Ok(changes)
    }
}

/// Does it to its end, or says that it panicked: the next order is obeyed nevertheless, and whoever waits
/// for this one is answered.
async fn survived<T>(work: impl Future<Output = T>) {
    if AssertUnwindSafe(work).catch_unwind().await.is_err() {
        told::panicked();
    }
}

/// Off the async threads: it reads files.
fn read(
    args: &ServeArgs,
    started: &Config,
    overlay: Overlay,
    log: Option<&Arc<DecisionLog>>,
) -> Result<Read> {
    let Told { config: mut base, said, .. } = args.config()?;
    let held = base.hold_fixed(started);
    let next = Next::fitted(&base, overlay, log).map_err(|error| said.locate(error))?;
    Ok(Read { text: said.text, base, held, next })
}

fn keep(store: Option<&Store>, overlay: &Overlay) -> Result<()> {
    match store {
        Some(store) => Ok(store.keep_overlay(overlay)?),
        None => Ok(()),
    }
}

/// Keeps that changes are dropped, if there is a store; whether it does. Where that cannot be done they are
/// tried again at the next start.
pub(crate) fn keep_all(store: Option<&Store>, overlay: &Overlay, aside: &Aside) -> bool {
    let Some(store) = store else { return false };
    let kept = store.keep_all(overlay, aside).map_err(anyhow::Error::from);
    if let Err(error) = &kept {
        let error = format!("{error:#}");
        tracing::error!(
            error,
            "that changes are dropped is not kept: the next start tries them again"
        );
    }
    kept.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_panics_ends_nothing_else_and_who_waits_for_it_is_told() {
        let (asker, answer) = tokio::sync::oneshot::channel::<()>();
        survived(async move {
            let _asker = asker;
            panic!("a test");
        })
        .await;
        assert!(answer.await.is_err());
        let mut went_on = false;
        survived(async { went_on = true }).await;
        assert!(went_on);
    }
}
