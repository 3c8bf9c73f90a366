//! The control plane of a running gateway: what the admin API asks of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use kvasir_admin::{
    Admin, AdminSettings, ApiError, Applied, Control, Decided, Later, Recent, State, Stats, Store,
    Tokens,
};
use kvasir_advice::gateway::{Status, Watch};
use kvasir_config::{AdminConfig, Change, Config, Secret};
use kvasir_fleet::Fleet;
use kvasir_proxy::{App, CannotExplain, Observer, Served};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::spec;

/// Changes that may wait for their turn.
const ORDERS: usize = 64;
/// How often counts are kept.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// What the one task is asked that changes a gateway's configuration.
#[derive(Debug)]
pub(crate) enum Order {
    /// A change through the API.
    Change(Change, Asker),
    /// The file is to be read anew.
    Reload(Asker),
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
    /// The weight controller that is followed.
    pub(crate) watch: Option<Watch>,
}

/// Orders, and whoever takes them.
pub(crate) fn orders() -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(ORDERS)
}

/// How the API is served.
pub(crate) fn settings(config: &AdminConfig) -> Result<AdminSettings> {
    let (read_token, write_token) = tokens(config)?;
    let tls = config.tls.as_ref().map(spec::tls_files);
    if config.is_exposed() && tls.is_none() {
        tracing::warn!(
            listen = %config.listen,
            "the admin port is reached from other machines without TLS: tokens can be read on the way"
        );
    }
    let audit_log = config.audit_log.clone();
    Ok(AdminSettings { listen: config.listen, read_token, write_token, tls, audit_log })
}

/// The tokens for reading and for changes.
pub(crate) fn tokens(config: &AdminConfig) -> Result<(Option<String>, Option<String>)> {
    let text = |secret: Secret| secret.expose().to_owned();
    let read = config.read_token_source().map(|source| source.read_token("admin.read_token"));
    let write = config.write_token_source().map(|source| source.read_token("admin.write_token"));
    let read = read.transpose().map_err(|why| anyhow!(why))?;
    let write = write.transpose().map_err(|why| anyhow!(why))?;
    let tokens = (read.map(text), write.map(text));
    // Wherever they are kept: whoever may only read would be let in as a writer.
    if tokens.0.is_some() && tokens.0 == tokens.1 {
        bail!(
            "admin.read_token and admin.write_token are the same: who may read could change everything"
        );
    }
    Ok(tokens)
}

/// Opens the store, where there is to be one.
pub(crate) fn store(config: &Config) -> Result<Option<Arc<Store>>> {
    let Some(path) = config.admin.as_ref().and_then(|admin| admin.store.as_deref()) else {
        return Ok(None);
    };
    Ok(Some(Arc::new(Store::open(path).context("admin.store")?)))
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

/// Binds the API and serves it in a task of its own; the handle changes its tokens.
pub(crate) fn serve(config: &AdminConfig, gateway: Gateway) -> Result<Tokens> {
    let admin = Admin::bind(&settings(config)?, Arc::new(gateway))?;
    tracing::info!(address = %admin.local_addr()?, "the admin API is served");
    let tokens = admin.tokens();
    tokio::spawn(async move {
        if let Err(error) = admin.serve().await {
            tracing::error!(%error, "the admin API is gone");
        }
    });
    Ok(tokens)
}

impl Gateway {
    fn order(&self, order: impl FnOnce(Asker) -> Order) -> Later<Result<Applied, ApiError>> {
        let (asker, answer) = oneshot::channel();
        let (order, orders) = (order(asker), self.orders.clone());
        Box::pin(async move {
            let gone = || {
                let why = "the gateway is stopping";
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", why)
            };
            orders.send(order).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        })
    }
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

    fn change(&self, change: Change) -> Later<Result<Applied, ApiError>> {
        self.order(|asker| Order::Change(change, asker))
    }

    fn reload(&self) -> Later<Result<Applied, ApiError>> {
        self.order(Order::Reload)
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
