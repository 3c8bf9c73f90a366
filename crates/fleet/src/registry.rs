//! The fleet: pools by model, endpoints by address, and the background that keeps them current.

use std::collections::HashMap;
use std::sync::Arc;

use http::uri::Authority;
use kvasir_inventory::Inventory;
use tokio::task::JoinSet;

use crate::endpoint::Endpoint;
use crate::engine_client::EngineClient;
use crate::exposition;
use crate::monitor::Monitor;
use crate::pool::Pool;
use crate::spec::{EndpointSpec, EventSpec, FleetSpec, PoolSpec};
use crate::tokenizer::ModelPrompts;

/// Pools, endpoints and their background tasks. Dropping it ends the tasks.
#[derive(Debug)]
pub struct Fleet {
    pools: HashMap<String, Arc<Pool>>,
    /// In the order configured, for listings.
    order: Vec<Arc<Pool>>,
    endpoints: Vec<Arc<Endpoint>>,
    inventory: Arc<Inventory>,
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
    endpoint: Arc<Endpoint>,
    events: Option<EventSpec>,
    authorization: Option<http::HeaderValue>,
    prompts: Vec<Arc<ModelPrompts>>,
}

impl Fleet {
    /// A fleet without pools.
    #[must_use]
    pub fn empty(inventory: Arc<Inventory>) -> Self {
        Self {
            pools: HashMap::new(),
            order: Vec::new(),
            endpoints: Vec::new(),
            inventory,
            tasks: JoinSet::new(),
        }
    }

    /// Builds the pools and starts watching their engines. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When there are more endpoints than an inventory has places for.
    pub fn start(spec: FleetSpec, inventory: Arc<Inventory>) -> Result<Self, TooManyEndpoints> {
        let mut fleet = Self::empty(inventory);
        let mut watched: HashMap<Authority, Watched> = HashMap::new();
        for (place, pool) in (0u64..).zip(spec.pools) {
            fleet.add_pool(pool, spec.seed.wrapping_add(place), &mut watched)?;
        }
        let client = EngineClient::new(spec.connect_timeout);
        for (_, Watched { endpoint, events, authorization, prompts }) in watched {
            fleet.endpoints.push(Arc::clone(&endpoint));
            let monitor = Monitor {
                endpoint,
                configured: events,
                authorization,
                prompts,
                inventory: Arc::clone(&fleet.inventory),
                client: client.clone(),
                interval: spec.scrape_interval,
            };
            fleet.tasks.spawn(monitor.run());
        }
        fleet.endpoints.sort_by(|a, b| a.url().cmp(b.url()));
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

    /// Whether every endpoint has said what it serves.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.endpoints.iter().all(|endpoint| endpoint.card().is_some())
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

    /// Every endpoint, ordered by URL.
    #[must_use]
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Appends the fleet's own metric families, in Prometheus' text form, as they are now.
    pub fn render_metrics(&self, page: &mut String) {
        exposition::render(page, &self.endpoints, &self.order);
    }

    fn add_pool(
        &mut self,
        spec: PoolSpec,
        seed: u64,
        watched: &mut HashMap<Authority, Watched>,
    ) -> Result<(), TooManyEndpoints> {
        let PoolSpec { model, policy, tokenizer_dir, authorization, endpoints } = spec;
        let prompts = Arc::new(ModelPrompts::new(model.clone(), tokenizer_dir));
        let mut members = Vec::with_capacity(endpoints.len());
        for endpoint_spec in endpoints {
            let EndpointSpec { authority, events } = endpoint_spec;
            if !watched.contains_key(&authority) {
                let endpoint = Endpoint::new(authority.clone(), Arc::clone(&self.inventory));
                let endpoint = Arc::new(endpoint.ok_or(TooManyEndpoints)?);
                let entry =
                    Watched { endpoint, events: None, authorization: None, prompts: Vec::new() };
                watched.insert(authority.clone(), entry);
            }
            if let Some(entry) = watched.get_mut(&authority) {
                entry.prompts.push(Arc::clone(&prompts));
                entry.events = entry.events.take().or(events);
                entry.authorization = entry.authorization.take().or_else(|| authorization.clone());
                members.push(Arc::clone(&entry.endpoint));
            }
        }
        let inventory = Arc::clone(&self.inventory);
        let pool = Arc::new(Pool::new(
            model.clone(),
            policy.build(),
            authorization,
            members,
            prompts,
            inventory,
            seed,
        ));
        self.order.push(Arc::clone(&pool));
        self.pools.insert(model, pool);
        Ok(())
    }
}

/// There are more endpoints than an inventory has places for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many endpoints")]
pub struct TooManyEndpoints;
