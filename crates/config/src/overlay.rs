//! Changes made while a gateway runs, laid over what its file, environment and flags say.
//!
//! A change is a function from configuration to configuration: [`Overlay::with`] tries one on, and
//! [`Config::with_overlay`] lays all of them over a configuration that was read anew. What comes out is
//! checked as any configuration is, and put into effect as a reload of the file is.

mod change;
mod fields;
mod fit;
mod lay;
mod routing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::change::{Change, Refused, RefusedFor};
pub use self::fields::{ENDPOINT_KEYS, POOL_KEYS};
pub use self::fit::Fitted;
pub use self::lay::Dropped;
pub use self::routing::{Routing, RoutingMode};

/// New values by key.
pub type Patch = Map<String, Value>;

/// The tenant that is everybody.
pub const DEFAULT_TENANT: &str = "default";

/// All changes that were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overlay {
    /// By model.
    pub(crate) pools: BTreeMap<String, PoolChanges>,
    /// What an engine has once (weight, state, role), by its host and port: in all pools it is in, and in
    /// those it comes into later.
    pub(crate) engines: BTreeMap<String, Patch>,
    /// Routing settings by model.
    pub(crate) routing: BTreeMap<String, Routing>,
}

/// Changes to one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PoolChanges {
    /// The pool of the configuration is gone.
    pub(crate) deleted: bool,
    /// A pool that the configuration does not have, as it was given.
    pub(crate) created: Option<Value>,
    /// New values of keys.
    pub(crate) patch: Patch,
    /// By host and port.
    pub(crate) endpoints: BTreeMap<String, EndpointChanges>,
}

/// Changes to one endpoint of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EndpointChanges {
    /// The endpoint of the configuration is gone.
    pub(crate) deleted: bool,
    /// An endpoint that the configuration does not have, as it was given.
    pub(crate) created: Option<Value>,
    /// New values of keys that each pool says for itself.
    pub(crate) patch: Patch,
}

impl Overlay {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.engines.is_empty() && self.routing.is_empty()
    }

    /// Whether a pool was made by a change.
    #[must_use]
    pub fn made_pool(&self, model: &str) -> bool {
        self.pools.get(model).is_some_and(|pool| pool.created.is_some())
    }

    /// The keys of a pool that a change set.
    #[must_use]
    pub fn patched_pool(&self, model: &str) -> Vec<&str> {
        let pool = self.pools.get(model);
        pool.map_or_else(Vec::new, |pool| pool.patch.keys().map(String::as_str).collect())
    }

    /// Whether an endpoint of a pool, by host and port, was made by a change.
    #[must_use]
    pub fn made_endpoint(&self, model: &str, endpoint: &str) -> bool {
        let of_pool = self.endpoint(model, endpoint).is_some_and(|e| e.created.is_some());
        of_pool || self.made_pool(model)
    }

    /// The keys of an endpoint that a change set, here or, of what an engine has once, in any pool.
    #[must_use]
    pub fn patched_endpoint(&self, model: &str, endpoint: &str) -> Vec<&str> {
        let of_pool = self.endpoint(model, endpoint).map(|one| &one.patch);
        let both = of_pool.into_iter().chain(self.engines.get(endpoint));
        both.flat_map(Patch::keys).map(String::as_str).collect()
    }

    /// The keys of a pool that a change set without effect, since routing settings win over them.
    #[must_use]
    pub fn ignored_pool(&self, model: &str) -> Vec<&str> {
        let Some(routing) = self.routing.get(model) else { return Vec::new() };
        let wins = |key: &&str| routing.wins_over(key);
        self.patched_pool(model).into_iter().filter(wins).collect()
    }

    /// The same of an endpoint in a pool.
    #[must_use]
    pub fn ignored_endpoint(&self, model: &str, endpoint: &str) -> Vec<&str> {
        let Some(routing) = self.routing.get(model) else { return Vec::new() };
        let patched = self.patched_endpoint(model, endpoint);
        patched.into_iter().filter(|key| *key == "role" && routing.gives_roles()).collect()
    }

    /// One that was written in an earlier form: names as [`EngineUrl`](crate::EngineUrl) writes them, and
    /// what an engine has once with the engine.
    #[must_use]
    pub fn in_present_form(mut self) -> Self {
        for pool in self.pools.values_mut() {
            for (name, mut changes) in std::mem::take(&mut pool.endpoints) {
                let name = fields::authority(&name);
                for key in fields::ENGINE_KEYS {
                    if let Some(value) = changes.patch.remove(key) {
                        let engine = self.engines.entry(name.clone()).or_default();
                        engine.insert(key.to_owned(), value);
                    }
                }
                pool.endpoints.insert(name, changes);
            }
        }
        self.tidied()
    }

    /// The routing settings of a model, where it has some.
    #[must_use]
    pub fn routing(&self, model: &str) -> Option<&Routing> {
        self.routing.get(model)
    }

    fn endpoint(&self, model: &str, endpoint: &str) -> Option<&EndpointChanges> {
        self.pools.get(model)?.endpoints.get(endpoint)
    }

    /// Without entries that say nothing.
    fn tidied(mut self) -> Self {
        for pool in self.pools.values_mut() {
            pool.endpoints.retain(|_, endpoint| *endpoint != EndpointChanges::default());
        }
        self.pools.retain(|_, pool| *pool != PoolChanges::default());
        self.engines.retain(|_, patch| !patch.is_empty());
        self
    }
}
