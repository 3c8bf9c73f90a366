//! The fleet: pools by model, engines by address, and the background that keeps them current.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use kvasir_inventory::Inventory;

use self::assemble::assemble;
use self::engines::EngineSpec;
use crate::admission;
use crate::changes::Changes;
use crate::endpoint::Endpoint;
use crate::engine_client::EngineClient;
use crate::exposition;
use crate::pool::{Pool, Shared};
use crate::roster::Roster;
use crate::seat::Seat;
use crate::spec::{FleetSpec, PoolSpec};
use crate::supervised::Supervised;

mod assemble;
mod engines;

/// Pools, endpoints and their background tasks. Dropping it ends the tasks.
#[derive(Debug)]
pub struct Fleet {
    pools: HashMap<String, Arc<Pool>>,
    /// By their models' other names.
    aliases: HashMap<String, Arc<Pool>>,
    /// In the order configured, for listings.
    order: Vec<Arc<Pool>>,
    /// Ordered by URL.
    engines: Vec<Arc<Supervised>>,
    seats: HashMap<String, Seated>,
    /// What engines are asked with, and how long its connections may take.
    probing: Option<(Duration, EngineClient)>,
    roster: Arc<Roster>,
    /// What its pools said of each engine.
    specs: HashMap<Authority, EngineSpec>,
}

/// A pool's place, and what the pool was built from.
#[derive(Debug)]
struct Seated {
    seat: Arc<Seat>,
    spec: PoolSpec,
}

/// The pool that serves a requested model.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The adapter's name, where the requested model is one.
    pub adapter: Option<String>,
}

impl Fleet {
    /// A fleet without pools.
    #[must_use]
    pub fn empty(inventory: Arc<Inventory>) -> Self {
        Self::empty_of(Arc::new(Roster::new(Shared::new(inventory))))
    }

    fn empty_of(roster: Arc<Roster>) -> Self {
        Self {
            pools: HashMap::new(),
            aliases: HashMap::new(),
            order: Vec::new(),
            engines: Vec::new(),
            seats: HashMap::new(),
            probing: None,
            roster,
            specs: HashMap::new(),
        }
    }

    /// Builds the pools and starts watching their engines. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When there are more endpoints than an inventory has places for, or two pools address the
    /// ranks of one engine, know its blocks, connect to it or weigh it differently.
    pub fn start(spec: FleetSpec, inventory: Arc<Inventory>) -> Result<Self, FleetError> {
        let (fleet, _) = Self::empty(inventory).reload(spec)?;
        Ok(fleet)
    }

    /// The fleet of another specification, which takes over from this one: engines, endpoints and
    /// pools that are in both go on with all that is known of them, and what works for them in the
    /// background is disturbed only where its own settings changed. Engines that are not in it any
    /// more get no new requests and are watched until their last one ends; one that comes back before
    /// that goes on as well.
    ///
    /// Once it has taken its place, [`is_in_use`](Self::is_in_use) is to be called.
    ///
    /// To be asked of the fleet that is in use, within a tokio runtime; this one is of no use
    /// afterwards but to requests that hold it.
    ///
    /// # Errors
    /// As [`start`](Self::start); nothing is changed then.
    pub fn reload(&self, spec: FleetSpec) -> Result<(Self, Changes), FleetError> {
        assemble(self, spec)
    }

    /// It is in use now: requests that wait look whether there is room by its limits, at its engines.
    /// To be called once it is where they find it.
    pub fn is_in_use(&self) {
        admission::ring_all();
    }

    /// The pool for the name of a model, one of its other names, or the name of an adapter.
    #[must_use]
    pub fn resolve(&self, model: &str) -> Option<Resolved> {
        if let Some(pool) = self.pools.get(model).or_else(|| self.aliases.get(model)) {
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
        self.engines.iter().all(|engine| engine.ranks().engine().card().is_some())
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
        self.engines.iter().flat_map(|engine| engine.ranks().endpoints()).collect()
    }

    pub(crate) fn inventory(&self) -> &Inventory {
        &self.roster.shared().inventory
    }

    /// Requests sent to engines and not finished, engines that left included.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let all = self.endpoints().into_iter().chain(self.leaving());
        all.map(|endpoint| u64::from(endpoint.in_flight())).sum()
    }

    /// Endpoints that are none of its own and have requests: of engines that left, or by names they
    /// had before. While the next fleet is made, some of them are still here.
    fn leaving(&self) -> Vec<Arc<Endpoint>> {
        let here: HashSet<String> = self.endpoints().iter().map(|here| here.name()).collect();
        self.roster.endpoints().into_iter().filter(|gone| !here.contains(&gone.name())).collect()
    }

    /// Appends the fleet's own metric families, in Prometheus' text form, as they are now.
    pub fn render_metrics(&self, page: &mut String) {
        let inventory = &self.roster.shared().inventory;
        exposition::render(page, self.endpoints(), &self.leaving(), &self.order, inventory);
    }
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
    /// Two pools say otherwise of one engine what it has once.
    #[error("two pools tell of {0} differently (`weight`, `state`, `ranks`, `role`)")]
    Settings(String),
    /// Two pools know the blocks of one engine by different things, and it has one inventory.
    #[error("two pools know the blocks of {0} differently (`identity`)")]
    Identity(String),
}

#[cfg(test)]
mod tests;
