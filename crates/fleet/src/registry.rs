//! The fleet: pools by model, engines by address, and the background that keeps them current.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::SystemTime;

use http::uri::Authority;
use kvasir_balance::record::Start;
use kvasir_inventory::Inventory;
use kvasir_prompt::Limits;
use tokio::task::JoinSet;

use crate::decision_log::PoolLog;
use crate::endpoint::Endpoint;
use crate::engine_client::EngineClient;
use crate::exposition;
use crate::monitor::Monitor;
use crate::pending::PendingPrefixes;
use crate::pool::{Caches, Pool};
use crate::ranks::Ranks;
use crate::spec::{EndpointSpec, EventSpec, FleetSpec, PoolSpec};
use crate::token_oracle::Checker;
use crate::tokenizer::ModelPrompts;

/// Pools, endpoints and their background tasks. Dropping it ends the tasks.
#[derive(Debug)]
pub struct Fleet {
    pools: HashMap<String, Arc<Pool>>,
    /// In the order configured, for listings.
    order: Vec<Arc<Pool>>,
    /// Ordered by URL.
    engines: Vec<Arc<Ranks>>,
    inventory: Arc<Inventory>,
    pending: Arc<PendingPrefixes>,
    tasks: JoinSet<()>,
}

/// The pool that serves a requested model.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The adapter's name, where the requested model is one.
    pub adapter: Option<String>,
}

/// What one address needs watched for.
struct Watched {
    ranks: Arc<Ranks>,
    events: Option<EventSpec>,
    poll: bool,
    authorization: Option<http::HeaderValue>,
    pools: Vec<Arc<Pool>>,
}

impl Fleet {
    /// A fleet without pools.
    #[must_use]
    pub fn empty(inventory: Arc<Inventory>) -> Self {
        Self {
            pools: HashMap::new(),
            order: Vec::new(),
            engines: Vec::new(),
            inventory,
            pending: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Builds the pools and starts watching their engines. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When there are more endpoints than an inventory has places for, or two pools address the
    /// ranks of one engine, or know its blocks, differently.
    pub fn start(spec: FleetSpec, inventory: Arc<Inventory>) -> Result<Self, FleetError> {
        let mut fleet = Self::empty(inventory);
        let mut watched: HashMap<Authority, Watched> = HashMap::new();
        for (place, pool) in (0u64..).zip(spec.pools) {
            let seed = spec.seed.wrapping_add(place);
            let log = spec.decision_log.as_ref().map(|log| log.pool(start_of(&pool, seed)));
            fleet.add_pool(pool, seed, log, &mut watched)?;
        }
        let client = EngineClient::new(spec.connect_timeout);
        for (_, Watched { ranks, events, poll, authorization, pools }) in watched {
            ranks.engine().set_breaker(spec.health.breaker);
            fleet.engines.push(Arc::clone(&ranks));
            let monitor = Monitor {
                ranks,
                configured: events,
                poll,
                authorization,
                pools,
                inventory: Arc::clone(&fleet.inventory),
                client: client.clone(),
                interval: spec.scrape_interval,
                probe: spec.health.clone(),
            };
            fleet.tasks.spawn(monitor.run());
        }
        for pool in &fleet.order {
            if let Some(checker) = Checker::of(pool, &client) {
                fleet.tasks.spawn(checker.run());
            }
        }
        fleet.engines.sort_by(|a, b| a.engine().url().cmp(b.engine().url()));
        Ok(fleet)
    }

    /// The pool for a model or adapter name.
    #[must_use]
    pub fn resolve(&self, model: &str) -> Option<Resolved> {
        if let Some(pool) = self.pools.get(model) {
            return Some(Resolved { pool: Arc::clone(pool), adapter: None });
        }
        let has_adapter = |pool: &&Arc<Pool>| {
            pool.members().iter().any(|m| m.card().is_some_and(|c| c.adapter(model).is_some()))
        };
        let pool = Arc::clone(self.order.iter().find(has_adapter)?);
        Some(Resolved { pool, adapter: Some(model.to_owned()) })
    }

    /// Whether every engine has said what it serves.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.engines.iter().all(|engine| engine.engine().card().is_some())
    }

    /// The only pool, for requests that name no model.
    #[must_use]
    pub fn only_pool(&self) -> Option<&Arc<Pool>> {
        match self.order.as_slice() {
            [pool] => Some(pool),
            _ => None,
        }
    }

    /// Every pool, in the order configured.
    #[must_use]
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.order
    }

    /// Whether some pool's policies ask whether requests have images.
    #[must_use]
    pub fn reads_images(&self) -> bool {
        self.order.iter().any(|pool| pool.needs().images)
    }

    /// Every endpoint, ordered by URL and rank.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.engines.iter().flat_map(|engine| engine.endpoints()).collect()
    }

    /// Appends the fleet's own metric families, in Prometheus' text form, as they are now.
    pub fn render_metrics(&self, page: &mut String) {
        exposition::render(page, &self.endpoints(), &self.order, &self.inventory);
    }

    fn add_pool(
        &mut self,
        spec: PoolSpec,
        seed: u64,
        log: Option<PoolLog>,
        watched: &mut HashMap<Authority, Watched>,
    ) -> Result<(), FleetError> {
        let PoolSpec {
            model,
            selection,
            tokenizer_dir,
            authorization,
            tokens,
            rank_addressing,
            identity,
            timeouts,
            admission,
            endpoints,
        } = spec;
        let mut engines = Vec::with_capacity(endpoints.len());
        for spec in endpoints {
            let addressing = spec.addressing(rank_addressing);
            let EndpointSpec { origin, events, poll_events, ranks, weight, .. } = spec;
            let authority = origin.authority().clone();
            let entry = match watched.entry(authority.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let inventory = Arc::clone(&self.inventory);
                    let pending = Arc::clone(&self.pending);
                    let known_by = identity.clone();
                    let at = origin.clone();
                    let ranks = Ranks::new(at, addressing, ranks, known_by, inventory, pending)
                        .ok_or(FleetError::TooManyEndpoints)?;
                    place.insert(Watched {
                        ranks: Arc::new(ranks),
                        events: None,
                        poll: false,
                        authorization: None,
                        pools: Vec::new(),
                    })
                }
            };
            if entry.ranks.addressing() != addressing {
                return Err(FleetError::Addressing(authority.to_string()));
            }
            if *entry.ranks.engine().identity() != identity {
                return Err(FleetError::Identity(authority.to_string()));
            }
            if *entry.ranks.engine().origin() != origin {
                return Err(FleetError::Connections(origin.to_string()));
            }
            entry.ranks.engine().set_weight(weight);
            entry.events = entry.events.take().or(events);
            entry.poll |= poll_events;
            entry.authorization = entry.authorization.take().or_else(|| authorization.clone());
            engines.push((authority, Arc::clone(&entry.ranks)));
        }
        let (authorities, engines): (Vec<_>, Vec<_>) = engines.into_iter().unzip();
        let caches =
            Caches { inventory: Arc::clone(&self.inventory), pending: Arc::clone(&self.pending) };
        let limits = Limits { prompt_bytes: tokens.max_prompt_bytes, ..Limits::default() };
        let pool = Pool::new(
            model.clone(),
            &selection,
            authorization,
            timeouts,
            engines,
            Arc::new(ModelPrompts::new(model.clone(), tokenizer_dir, limits)),
            tokens,
            caches,
            seed,
            log,
        );
        let pool = Arc::new(pool.with_door(admission));
        for authority in authorities {
            if let Some(entry) = watched.get_mut(&authority) {
                entry.pools.push(Arc::clone(&pool));
            }
        }
        self.order.push(Arc::clone(&pool));
        self.pools.insert(model, pool);
        Ok(())
    }
}

/// How the log of a pool begins.
fn start_of(pool: &PoolSpec, seed: u64) -> Start {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
    let clock_unix_ms = since.and_then(|since| u64::try_from(since.as_millis()).ok());
    let start = Start::new(pool.model.clone(), pool.selection.clone(), seed);
    Start { clock_unix_ms, ..start }
}

/// Why a fleet cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// There are more endpoints than an inventory has places for.
    #[error("too many endpoints")]
    TooManyEndpoints,
    /// Two pools address the ranks of one engine differently: its caches would be told apart in
    /// one and not in the other.
    #[error("two pools address the data-parallel ranks of {0} differently")]
    Addressing(String),
    /// Two pools connect to one engine differently.
    #[error("two pools connect to {0} differently (scheme, `engine_tls`, `http2`, limits)")]
    Connections(String),
    /// Two pools know the blocks of one engine by different things, and it has one inventory.
    #[error("two pools know the blocks of {0} differently (`identity`)")]
    Identity(String),
}
