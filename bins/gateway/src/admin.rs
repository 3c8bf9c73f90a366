//! The control plane of a running gateway: what the admin API asks of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use kvasir_admin::{
    Admin, AdminError, AdminSettings, ApiError, Applied, Control, Decided, Expected, Later, Recent,
    State, Stats, Store, Tokens,
};
use kvasir_advice::gateway::{Status, Watch};
use kvasir_config::{AdminConfig, Change, Config, Secret};
use kvasir_fleet::Fleet;
use kvasir_proxy::{App, CannotExplain, FileFamilies, Observer, Served, watch_files};
use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::bad_key::{bad_key, cannot_use, read_token};
use crate::{address, spec};

/// Changes that may wait for their turn.
const ORDERS: usize = 64;
/// What tells of the files of the admin port's certificate.
const TLS_FAMILIES: FileFamilies =
    FileFamilies { reloads: "kvasir_admin_tls_reloads_total", stale: "kvasir_admin_tls_stale" };
/// How often counts are kept.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// What the one task is asked that changes a gateway's configuration.
#[derive(Debug)]
pub(crate) enum Order {
    /// A change through the API.
    Change(Change, Expected, Asker),
    /// The file is to be read anew.
    Reload(Expected, Asker),
    /// The engines that were given by URL alone serve this.
    Found(Box<Config>),
}

/// Who waits for the end of an order.
pub(crate) type Asker = oneshot::Sender<Result<Applied, ApiError>>;

/// A gateway, to its control plane.
pub(crate) struct Gateway {
    pub(crate) app: Arc<App>,
    pub(crate) state: Arc<ArcSwap<State>>,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) recent: Arc<Recent>,
    /// A stop is announced: nothing is changed any more.
    pub(crate) stopping: Arc<AtomicBool>,
    /// The weight controller that is followed.
    pub(crate) watch: Option<Watch>,
}

/// The API while it is served.
pub(crate) struct Serving {
    close: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Serving {
    /// Ends it in good order, in a bounded time: changes that were begun are made and written down.
    pub(crate) async fn end(self) {
        drop(self.close);
        // It has said itself what went wrong.
        let _ = self.served.await;
    }
}

/// Orders, and whoever takes them.
pub(crate) fn orders() -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(ORDERS)
}

/// How the API is served.
fn settings(
    config: &AdminConfig,
    tokens: (Option<String>, Option<String>),
) -> Result<AdminSettings> {
    let (read_token, write_token) = tokens;
    let tls = config.tls.as_ref().map(spec::tls_files);
    if config.is_exposed() && tls.is_none() {
        tracing::warn!(
            listen = %config.listen,
            "the admin port is reached from other machines without TLS: tokens can be read on the way"
        );
    }
    let audit_log = config.audit_log.clone();
    let listen = address::resolve("admin.listen", &config.listen)?;
    Ok(AdminSettings { listen, read_token, write_token, tls, audit_log })
}

/// Whether what it refers to can be used.
pub(crate) fn check(config: &AdminConfig) -> Result<()> {
    tokens(config)?;
    address::resolve("admin.listen", &config.listen)?;
    if let Some(tls) = &config.tls {
        Admin::check_tls(&spec::tls_files(tls)).map_err(unusable)?;
    }
    for (key, path) in [("admin.store", &config.store), ("admin.audit_log", &config.audit_log)] {
        if let Some(path) = path {
            can_be_file(path).map_err(|why| bad_key(key, format!("{}: {why}", path.display())))?;
        }
    }
    Ok(())
}

/// Whether a file is there, or could be made: nothing is.
fn can_be_file(path: &Path) -> Result<(), String> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err("it is a directory".to_owned()),
        Ok(found) if found.permissions().readonly() => Err("it cannot be written".to_owned()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        Err(_) => match std::fs::metadata(directory) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(format!("{} is no directory", directory.display())),
            Err(_) => Err(format!("the directory {} does not exist", directory.display())),
        },
    }
}

/// The tokens for reading and for changes.
pub(crate) fn tokens(config: &AdminConfig) -> Result<(Option<String>, Option<String>)> {
    let text = |secret: Secret| secret.expose().to_owned();
    let read = read_token(config.read_token_source(), "admin.read_token")?;
    let write = read_token(config.write_token_source(), "admin.write_token")?;
    let tokens = (read.map(text), write.map(text));
    // Wherever they are kept: whoever may only read would be let in as a writer.
    if tokens.0.is_some() && tokens.0 == tokens.1 {
        let why = "is the same as `admin.read_token`: who may read could change everything";
        return Err(bad_key("admin.write_token", why));
    }
    Ok(tokens)
}

/// Opens the store, where there is to be one.
pub(crate) fn store(config: &Config) -> Result<Option<Arc<Store>>> {
    let Some(path) = config.admin.as_ref().and_then(|admin| admin.store.as_deref()) else {
        return Ok(None);
    };
    let opened = Store::open(path).map_err(|error| cannot_use("admin.store", error))?;
    Ok(Some(Arc::new(opened)))
}

/// What was decided before, to go on from.
pub(crate) fn recent(store: Option<&Arc<Store>>) -> Result<Arc<Recent>> {
    let stats = store.map(|store| store.stats()).transpose().context("admin.store")?;
    Ok(Arc::new(Recent::with(stats.unwrap_or_else(Stats::default))))
}

/// Keeps counts now and then, for ever.
pub(crate) async fn keep_counts(store: Arc<Store>, recent: Arc<Recent>) {
    loop {
        tokio::time::sleep(KEEP_EVERY).await;
        let (store, recent) = (Arc::clone(&store), Arc::clone(&recent));
        let kept = tokio::task::spawn_blocking(move || store.keep_stats(recent.stats()));
        if let Ok(Err(error)) = kept.await {
            tracing::error!(error = format!("{:#}", anyhow!(error)), "counts are not kept");
        }
    }
}

/// Binds the API and serves it in a task of its own; the handles change its tokens and end it.
pub(crate) fn serve(
    config: &AdminConfig,
    tokens: (Option<String>, Option<String>),
    gateway: Gateway,
) -> Result<(Tokens, Serving)> {
    let settings = settings(config, tokens)?;
    let admin = Admin::bind(&settings, Arc::new(gateway)).map_err(unusable)?;
    if let Some((files, reload)) = admin.tls_files() {
        tokio::spawn(watch_files(TLS_FAMILIES, files.paths(), reload));
    }
    tracing::info!(address = %admin.local_addr()?, "the admin API is served");
    let tokens = admin.tokens();
    let (close, closed) = oneshot::channel();
    let stop = async move {
        // A sender that is gone means the same.
        let _: Result<(), _> = closed.await;
    };
    let served = tokio::spawn(async move {
        if let Err(error) = admin.serve(stop).await {
            tracing::error!(%error, "the admin API is gone");
        }
    });
    Ok((tokens, Serving { close, served }))
}

/// What an error means for the configuration, where it does.
fn unusable(error: AdminError) -> anyhow::Error {
    match error {
        AdminError::Tls(why) => bad_key("admin.tls", why),
        AdminError::Audit { path, source } => {
            bad_key("admin.audit_log", format!("{}: {source}", path.display()))
        }
        AdminError::Bind { .. } => error.into(),
    }
}

/// Gives an order and waits for its end.
fn ordered(
    orders: &mpsc::Sender<Order>,
    stopping: &Arc<AtomicBool>,
    order: impl FnOnce(Asker) -> Order,
) -> Later<Result<Applied, ApiError>> {
    let unavailable = |code, why: &str| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, why);
    let stopping = Arc::clone(stopping);
    if stopping.load(Ordering::Relaxed) {
        let error = unavailable("stopping", "the gateway is stopping");
        return Box::pin(std::future::ready(Err(error)));
    }
    let (asker, answer) = oneshot::channel();
    let given = orders.try_send(order(asker));
    Box::pin(async move {
        given.map_err(|refused| match refused {
            TrySendError::Full(_) => unavailable("busy", "too many changes wait for their turn"),
            TrySendError::Closed(_) => unavailable("stopping", "the gateway is stopping"),
        })?;
        answer.await.unwrap_or_else(|_| {
            if stopping.load(Ordering::Relaxed) {
                let why = "the gateway stopped before it was done";
                return Err(unavailable("stopping", why));
            }
            let why = "taking it up broke off: the log says where, and a restart mends what is left \
                       of it";
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why))
        })
    })
}

impl Control for Gateway {
    fn fleet(&self) -> Arc<Fleet> {
        self.app.fleet()
    }

    fn state(&self) -> State {
        State::clone(&self.state.load())
    }

    fn explain(
        &self,
        path: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Later<Result<Value, ApiError>> {
        let app = Arc::clone(&self.app);
        Box::pin(async move {
            let explained = app.explain(&path, headers, body).await;
            explained.map_err(|why| {
                let CannotExplain { status, code, message } = why;
                ApiError::new(status, code, message)
            })
        })
    }

    fn change(&self, change: Change, expected: Expected) -> Later<Result<Applied, ApiError>> {
        ordered(&self.orders, &self.stopping, |asker| Order::Change(change, expected, asker))
    }

    fn reload(&self, expected: Expected) -> Later<Result<Applied, ApiError>> {
        ordered(&self.orders, &self.stopping, |asker| Order::Reload(expected, asker))
    }

    fn metrics(&self) -> String {
        self.app.metrics()
    }

    fn recent(&self) -> Arc<Recent> {
        Arc::clone(&self.recent)
    }

    fn controller(&self) -> Value {
        self.watch.as_ref().map_or_else(Status::off, |watch| watch.status().shown())
    }
}

/// Hands what the data plane decides on to the control plane.
#[derive(Debug)]
pub(crate) struct Notes(pub(crate) Arc<Recent>);

impl Observer for Notes {
    fn served(&self, served: Served<'_>) {
        let Served { decision, .. } = served;
        self.0.note(Decided {
            time: String::new(),
            request_id: served.request_id.map(str::to_owned),
            path: served.path.to_owned(),
            pool: served.pool.to_owned(),
            model: served.model.to_owned(),
            endpoint: served.endpoint.map(str::to_owned),
            prefill_endpoint: served.prefill_endpoint.map(str::to_owned),
            plan: served.plan,
            decision_id: decision.id,
            policy: decision.policy,
            reason: decision.reason.as_str(),
            detail: decision.detail,
            misses: decision.misses().collect(),
            trust: decision.trust.to_string(),
            level: served.level,
            tokens: served.tokens,
            prompt_tokens: decision.prompt_tokens,
            overlap: served.overlap,
            pending: served.pending,
            candidates: decision.candidates,
            reported_cached_tokens: served.reported_cached_tokens,
            reported_prompt_tokens: served.reported_prompt_tokens,
            comparable: served.comparable,
            attempts: served.attempts,
            status: served.status,
            outcome: served.outcome,
            first_data_ms: served.first_data_ms,
            total_ms: served.total_ms,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_order_that_breaks_off_is_answered_and_too_many_are_refused() {
        let (orders, mut taken) = mpsc::channel(1);
        let reload = |asker| Order::Reload(Expected::default(), asker);
        let stopping = Arc::new(AtomicBool::new(false));
        let waits = ordered(&orders, &stopping, reload);
        let refused = ordered(&orders, &stopping, reload).await.unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (503, "busy"));
        // Whoever has it panics.
        drop(taken.recv().await);
        let broken = waits.await.unwrap_err();
        assert_eq!((broken.status.as_u16(), broken.code), (500, "internal"));
        // A stop that comes between breaks nothing off.
        let waits = ordered(&orders, &stopping, reload);
        stopping.store(true, Ordering::Relaxed);
        drop(taken);
        for answer in [waits, ordered(&orders, &stopping, reload)] {
            let refused = answer.await.unwrap_err();
            assert_eq!((refused.status.as_u16(), refused.code), (503, "stopping"));
        }
    }
}
