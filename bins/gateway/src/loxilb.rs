//! Ports of `LoxiLB` rules: each has a listener and a fleet of its own, so that what is served at one
//! is never seen at another.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kvasir_compat_loxilb::{Api, Defaults, Gateway, Later, Note, Scope, Server, ServerSettings};
use kvasir_config::{Config, EngineUrl, PoolConfig};
use kvasir_fleet::Fleet;
use kvasir_inventory::Inventory;
use kvasir_kv_hash::KeySpace;
use kvasir_proxy::{App, ListenError, Listener, Observer, Served, serve};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admin::Notes;
use crate::bad_key::read_token;
use crate::client_keys::Keys;
use crate::serve::NO_BOUND;
use crate::start::Start;
use crate::{spec, url_mode};

/// Where the reference has its tokenizers.
const TOKENIZERS: &str = "/etc/loxilb/tokenizers";
/// How long a rule's answer waits for its engines to say what they serve; they are asked on after it.
const ASKED: Duration = Duration::from_secs(2);
/// Stands for the model of a rule that names none, while it is checked.
const ANY_MODEL: &str = "any";

/// All ports of rules.
pub(crate) struct Ports {
    /// What is the same at all ports.
    common: Mutex<Common>,
    open: Mutex<HashMap<SocketAddr, Port>>,
    api: OnceLock<Weak<Api>>,
    notes: Option<Arc<Notes>>,
    this: Weak<Ports>,
}

struct Common {
    config: Config,
    keys: Keys,
}

/// One port.
struct Port {
    app: Arc<App>,
    bound: SocketAddr,
    /// What is in effect.
    pools: Vec<PoolConfig>,
    /// Dropped to stop.
    _stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    /// Asks engines what they serve.
    asking: Option<JoinHandle<()>>,
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(asking) = &self.asking {
            asking.abort();
        }
    }
}

/// Serves the API and the rules that were kept, in tasks of their own; `None` where the configuration has
/// no such section.
pub(crate) async fn start(start: &Start) -> Result<Option<Arc<Ports>>> {
    let config = &start.next.config;
    let Some(settings) = &config.loxilb else { return Ok(None) };
    let keys = start.next.secrets.keys.clone();
    let notes = start.recent.clone().map(|recent| Arc::new(Notes(recent)));
    let ports = Arc::new_cyclic(|this| Ports {
        common: Mutex::new(Common { config: config.clone(), keys }),
        open: Mutex::default(),
        api: OnceLock::new(),
        notes,
        this: Weak::clone(this),
    });
    let token = read_token(settings.token_source(), "loxilb.token")?;
    let tokenizers = || Some(PathBuf::from(TOKENIZERS)).filter(|path| path.is_dir());
    let defaults = Defaults {
        tokenizer_dir: settings.tokenizer_dir.clone().or_else(tokenizers),
        replay_port_offset: settings.replay_port_offset,
    };
    let gateway = Arc::clone(&ports) as Arc<dyn Gateway>;
    let api = Api::open(gateway, defaults, settings.bind, settings.store.clone())?;
    let api = Arc::new(api);
    // Set once, here.
    let _ = ports.api.set(Arc::downgrade(&api));
    let server = ServerSettings {
        listen: settings.listen,
        token: token.map(|token| token.expose().to_owned()),
        tls: settings.tls.as_ref().map(spec::tls_files),
    };
    let server = Server::bind(&server, Arc::clone(&api))?;
    tracing::info!(rules = %server.local_addr()?, "LoxiLB's API is served");
    api.restore().await;
    tokio::spawn(async move {
        if let Err(error) = server.serve().await {
            tracing::error!(%error, "LoxiLB's API is gone");
        }
    });
    Ok(Some(ports))
}

impl Ports {
    /// Another configuration is in effect: what is the same at all ports follows it.
    pub(crate) fn follow(&self, config: &Config, keys: Keys) {
        *self.common.lock() = Common { config: config.clone(), keys };
        for (at, port) in &*self.open.lock() {
            if let Err(error) = self.apply(&port.app, &port.pools) {
                let error = format!("{error:#}");
                tracing::error!(rules = %at, error, "the rules' port stays as it was");
            }
        }
    }

    /// Closes all ports and waits until nothing is under way there.
    pub(crate) async fn close(&self) {
        let open: Vec<Port> = self.open.lock().drain().map(|(_, port)| port).collect();
        let waited: Vec<JoinHandle<()>> = open.into_iter().map(Port::stopped).collect();
        for serving in waited {
            let _ = serving.await;
        }
    }

    fn with(&self, pools: Vec<PoolConfig>) -> Config {
        Config { pools, ..self.common.lock().config.clone() }
    }

    /// Routes by these pools at a port from now on; or by nothing of them.
    fn apply(&self, app: &App, pools: &[PoolConfig]) -> Result<()> {
        let config = self.with(pools.to_vec());
        let keys = self.common.lock().keys.clone();
        let (fleet, changes) = app.fleet().reload(spec::fleet_spec(&config, None)?)?;
        app.reload(spec::settings(&config, keys), fleet);
        tracing::info!(%changes, "rules are in effect");
        Ok(())
    }

    async fn put(&self, scope: Scope) -> Result<SocketAddr> {
        let at = scope.at;
        if scope.pools.is_empty() {
            drop(self.open.lock().remove(&at));
            return Ok(at);
        }
        let (named, any): (Vec<PoolConfig>, Vec<PoolConfig>) =
            scope.pools.iter().map(|one| one.pool.clone()).partition(|one| !one.model.is_empty());
        let any = any.into_iter().next();
        let checked = any.iter().map(|pool| of_model(pool, ANY_MODEL)).chain(named.clone());
        self.with(checked.collect()).check().map_err(|(key, why)| anyhow!("{key}: {why}"))?;
        let known = self.open.lock().get(&at).map(|port| port.pools.clone());
        let (mut pools, mut asking) = (named.clone(), None);
        if let Some(any) = any {
            let mut question = Box::pin(self.ask(any.clone()));
            match tokio::time::timeout(ASKED, &mut question).await {
                Ok(found) => add(&mut pools, found),
                Err(_) => {
                    // Until they answer it serves what it did before.
                    let models = known.into_iter().flatten().map(|pool| pool.model);
                    add(&mut pools, models.map(|model| of_model(&any, &model)).collect());
                    asking = Some((question, named));
                }
            }
        }
        let bound = self.open_or_change(&scope, pools)?;
        let asking =
            asking.map(|(question, named)| tokio::spawn(self.answered(at, question, named)));
        if let Some(port) = self.open.lock().get_mut(&at)
            && let Some(before) = std::mem::replace(&mut port.asking, asking)
        {
            before.abort();
        }
        Ok(bound)
    }

    /// The pools of a rule that names no model: one for each model that its engines serve.
    fn ask(&self, any: PoolConfig) -> impl Future<Output = Vec<PoolConfig>> + Send + use<> {
        let template = PoolConfig { endpoints: Vec::new(), ..any.clone() };
        let config = self.with(vec![template]);
        async move {
            let urls: Vec<EngineUrl> = any.endpoints.iter().map(|one| one.url.clone()).collect();
            let mut found = match url_mode::discover(config, &urls).await {
                Ok(found) => found.pools,
                Err(error) => {
                    tracing::error!(%error, "engines of a rule cannot be asked");
                    Vec::new()
                }
            };
            for pool in &mut found {
                for one in &mut pool.endpoints {
                    if let Some(said) = any.endpoints.iter().find(|said| said.url == one.url) {
                        one.clone_from(said);
                    }
                }
            }
            found
        }
    }

    fn answered<F: Future<Output = Vec<PoolConfig>> + Send>(
        &self,
        at: SocketAddr,
        question: F,
        named: Vec<PoolConfig>,
    ) -> impl Future<Output = ()> + Send + use<F> {
        let this = Weak::clone(&self.this);
        async move {
            let found = question.await;
            let Some(this) = this.upgrade() else { return };
            let mut pools = named;
            add(&mut pools, found);
            let mut open = this.open.lock();
            let Some(port) = open.get_mut(&at) else { return };
            match this.apply(&port.app, &pools) {
                Ok(()) => port.pools = pools,
                Err(error) => tracing::error!(error = format!("{error:#}"), "a rule is not served"),
            }
        }
    }

    fn open_or_change(&self, scope: &Scope, pools: Vec<PoolConfig>) -> Result<SocketAddr> {
        let mut open = self.open.lock();
        if let Some(port) = open.get_mut(&scope.at) {
            self.apply(&port.app, &pools)?;
            port.pools = pools;
            return Ok(port.bound);
        }
        let (config, keys) = {
            let common = self.common.lock();
            (common.config.clone(), common.keys.clone())
        };
        let listener = bind(&config, scope)?;
        let bound = listener.local_addr()?;
        let space = KeySpace::new(spec::random()?);
        let inventory = Arc::new(Inventory::new(space, spec::limits(&config)));
        let app = App::new(
            spec::settings(&config, keys),
            Fleet::empty(inventory),
            // What the whole process counts is at the gateway's own port.
            Arc::new(String::new),
        );
        let observer = Arc::new(RuleNotes { at: scope.at, ports: Weak::clone(&self.this) });
        let app = Arc::new(app.with_observer(Some(observer)));
        self.apply(&app, &pools)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve(Arc::clone(&app), listener, async { drop(stopped.await) }, NO_BOUND);
        let at = scope.at;
        let serving = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(rules = %at, %error, "a port of rules is gone");
            }
        });
        tracing::info!(rules = %at, port = %bound, "a port of rules is open");
        let port = Port { app, bound, pools, _stop: stop, serving, asking: None };
        open.insert(at, port);
        Ok(bound)
    }
}

impl Port {
    /// Stops it; what is waited for.
    fn stopped(mut self) -> JoinHandle<()> {
        std::mem::replace(&mut self.serving, tokio::spawn(async {}))
    }
}

/// At the rules' address or, where that is not this machine's, at the configured one.
fn bind(config: &Config, scope: &Scope) -> Result<Listener> {
    let at = |address: SocketAddr| {
        let config = Config { listen: address.into(), ..config.clone() };
        anyhow::Ok(Listener::bind(&spec::listen_settings(&config)?))
    };
    let bound = match at(scope.at)? {
        Err(ListenError::Bind { source, .. })
            if source.kind() == io::ErrorKind::AddrNotAvailable =>
        {
            at(SocketAddr::new(scope.otherwise, scope.at.port()))?
        }
        bound => bound,
    };
    bound.context("the rule's port")
}

fn of_model(pool: &PoolConfig, model: &str) -> PoolConfig {
    PoolConfig { model: model.to_owned(), ..pool.clone() }
}

/// Rules that name a model win over one that does not.
fn add(pools: &mut Vec<PoolConfig>, found: Vec<PoolConfig>) {
    for pool in found {
        if pools.iter().all(|known| known.model != pool.model) {
            pools.push(pool);
        }
    }
}

impl Gateway for Ports {
    fn put(&self, scope: Scope) -> Later<Result<SocketAddr, String>> {
        let this = self.this.upgrade();
        Box::pin(async move {
            let this = this.ok_or("the gateway is stopping")?;
            Ports::put(&this, scope).await.map_err(|error| format!("{error:#}"))
        })
    }

    fn fleet(&self, at: SocketAddr) -> Option<Arc<Fleet>> {
        self.open.lock().get(&at).map(|port| port.app.fleet())
    }
}

/// Tells the rules' counts, and whoever else is told, of what is decided at a port.
struct RuleNotes {
    at: SocketAddr,
    ports: Weak<Ports>,
}

impl std::fmt::Debug for RuleNotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleNotes").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Observer for RuleNotes {
    fn served(&self, served: Served<'_>) {
        let Some(ports) = self.ports.upgrade() else { return };
        if let Some(api) = ports.api.get().and_then(Weak::upgrade) {
            let took = Duration::try_from_secs_f64(served.total_ms / 1000.0).unwrap_or_default();
            api.note(&Note {
                at: self.at,
                pool: served.pool,
                endpoint: served.prefill_endpoint.or(served.endpoint),
                overlap: served.overlap,
                miss: served.decision.misses().next().map(|(_, miss)| miss),
                detail: served.decision.detail,
                pinned: served.decision.policy == "sticky",
                status: served.status,
                complete: served.outcome == "complete",
                split: served.prefill_endpoint.is_some(),
                took,
            });
        }
        if let Some(notes) = &ports.notes {
            notes.served(served);
        }
    }
}
