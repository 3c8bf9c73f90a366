//! One change, and whether it can be made.

use serde_json::Value;

use super::{Overlay, Patch, fields};
use crate::bounds::Wrong;
use crate::endpoint::EndpointConfig;
use crate::model::Config;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A pool as in the configuration file, in JSON.
    CreatePool(Value),
    /// New values of a pool's keys ([`POOL_KEYS`](super::POOL_KEYS)); `null` resets one.
    PatchPool {
        /// The pool's model.
        model: String,
        /// The values.
        patch: Patch,
    },
    /// A pool goes.
    DeletePool {
        /// Its model.
        model: String,
    },
    /// An endpoint as in the configuration file, in JSON.
    CreateEndpoint {
        /// The pool's model.
        model: String,
        /// The endpoint.
        endpoint: Value,
    },
    /// New values of an endpoint's keys ([`ENDPOINT_KEYS`](super::ENDPOINT_KEYS)); `null` resets one.
    PatchEndpoint {
        /// The pool's model.
        model: String,
        /// Its host and port.
        endpoint: String,
        /// The values.
        patch: Patch,
    },
    /// An endpoint goes.
    DeleteEndpoint {
        /// The pool's model.
        model: String,
        /// Its host and port.
        endpoint: String,
    },
    /// New routing settings of a model; `null` resets one.
    PatchRouting {
        /// The model.
        model: String,
        /// The settings.
        patch: Patch,
        /// When: RFC 3339, UTC.
        at: String,
    },
    /// The model is routed as configured again.
    DeleteRouting {
        /// The model.
        model: String,
    },
}

/// Why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", field.as_ref().map(|field| format!("`{field}` ")).unwrap_or_default())]
pub struct Refused {
    /// What kind of reason it is.
    pub why: RefusedFor,
    /// The field of what was given that is to blame.
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
}

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedFor {
    /// What is to be changed is not there.
    NotFound,
    /// What is to be made is there.
    Conflict,
    /// The configuration would not be one that can be used.
    Invalid,
}

impl Refused {
    /// A field that is not as it should be.
    #[must_use]
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let field = Some(field.into()).filter(|field| !field.is_empty());
        Self { why: RefusedFor::Invalid, field, message: message.into() }
    }

    /// Something that is not there.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { why: RefusedFor::NotFound, field: None, message: message.into() }
    }

    fn conflict(field: &str, message: String) -> Self {
        Self { why: RefusedFor::Conflict, field: Some(field.to_owned()), message }
    }
}

impl Change {
    /// The model it is about, where it says.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::CreatePool(pool) => pool.get("model").and_then(Value::as_str),
            Self::PatchPool { model, .. }
            | Self::DeletePool { model }
            | Self::CreateEndpoint { model, .. }
            | Self::PatchEndpoint { model, .. }
            | Self::DeleteEndpoint { model, .. }
            | Self::PatchRouting { model, .. }
            | Self::DeleteRouting { model } => Some(model),
        }
    }

    /// The endpoint it is about, by host and port, where it is about one.
    fn endpoint(&self) -> Option<String> {
        match self {
            Self::CreateEndpoint { endpoint, .. } => {
                let endpoint = fields::endpoint(endpoint).ok()?;
                Some(endpoint.url.authority().to_string())
            }
            Self::PatchEndpoint { endpoint, .. } => Some(endpoint.clone()),
            _ => None,
        }
    }
}

impl Overlay {
    /// The overlay with one change more, and the configuration that makes of `base`.
    ///
    /// # Errors
    /// When the change cannot be made: what it is about is not there, or is there already, or the
    /// configuration would not be one that can be used.
    pub fn with(&self, base: &Config, change: &Change) -> Result<(Self, Config), Refused> {
        let (now, before) = base.with_overlay(self);
        let mut next = self.clone();
        next.take(base, &now, change)?;
        let mut next = next.tidied();
        if let Change::DeletePool { .. } | Change::DeleteEndpoint { .. } = change {
            next.forget_engines(&base.with_overlay(&next).0);
        }
        let (config, dropped) = base.with_overlay(&next);
        if let Some(new) = dropped.iter().find(|one| !before.contains(one)) {
            return Err(Refused::invalid(new.key.clone(), new.why.clone()));
        }
        config.check().map_err(|(key, message)| {
            Refused::invalid(shortened(&key, &config, change), message)
        })?;
        Ok((next, config))
    }

    fn take(&mut self, base: &Config, now: &Config, change: &Change) -> Result<(), Refused> {
        let has_pool =
            |config: &Config, model: &str| config.pools.iter().any(|pool| pool.model == model);
        let has_endpoint = |config: &Config, model: &str, name: &str| {
            let pool = config.pools.iter().find(|pool| pool.model == model);
            let mut endpoints = pool.into_iter().flat_map(|pool| &pool.endpoints);
            endpoints.any(|endpoint| endpoint.url.authority().as_str() == name)
        };
        let model = change.model().unwrap_or_default();
        if !matches!(change, Change::CreatePool(_)) && !has_pool(now, model) {
            return Err(Refused::not_found(format!("there is no pool `{model}`")));
        }
        if let Change::PatchEndpoint { endpoint, .. } | Change::DeleteEndpoint { endpoint, .. } =
            change
            && !has_endpoint(now, model, endpoint)
        {
            let message = format!("pool `{model}` has no endpoint `{endpoint}`");
            return Err(Refused::not_found(message));
        }
        match change {
            Change::CreatePool(value) => {
                let pool = fields::pool(value).map_err(|(key, why)| Refused::invalid(key, why))?;
                for (place, endpoint) in pool.endpoints.iter().enumerate() {
                    let said = value.pointer(&format!("/endpoints/{place}"));
                    self.check_engine(endpoint, said).map_err(|(key, why)| {
                        Refused::invalid(format!("endpoints[{place}].{key}"), why)
                    })?;
                }
                if has_pool(now, &pool.model) {
                    let message = format!("there is a pool `{}`", pool.model);
                    return Err(Refused::conflict("model", message));
                }
                let changes = self.pools.entry(pool.model.clone()).or_default();
                changes.created = Some(value.clone());
            }
            Change::PatchPool { patch, .. } => {
                fields::merge(&mut self.pools.entry(model.to_owned()).or_default().patch, patch);
            }
            Change::DeletePool { .. } => {
                let changes = super::PoolChanges {
                    deleted: has_pool(base, model),
                    ..super::PoolChanges::default()
                };
                self.pools.insert(model.to_owned(), changes);
                self.routing.remove(model);
            }
            Change::CreateEndpoint { endpoint: value, .. } => {
                let endpoint =
                    fields::endpoint(value).map_err(|(key, why)| Refused::invalid(key, why))?;
                self.check_engine(&endpoint, Some(value))
                    .map_err(|(key, why)| Refused::invalid(key, why))?;
                let name = endpoint.url.authority().to_string();
                if has_endpoint(now, model, &name) {
                    let message = format!("pool `{model}` has an endpoint `{name}`");
                    return Err(Refused::conflict("url", message));
                }
                let pool = self.pools.entry(model.to_owned()).or_default();
                pool.endpoints.entry(name).or_default().created = Some(value.clone());
            }
            Change::PatchEndpoint { endpoint, patch, .. } => {
                self.patch_endpoint(model, endpoint, patch)?;
            }
            Change::DeleteEndpoint { endpoint, .. } => {
                let known = self.endpoint(model, endpoint);
                let was_added = known.is_some_and(|known| known.created.is_some());
                // It may have been deleted and made again.
                let deleted = known.is_some_and(|known| known.deleted)
                    || has_endpoint(base, model, endpoint)
                    || (self.made_pool(model) && !was_added);
                let changes = super::EndpointChanges { deleted, ..Default::default() };
                let pool = self.pools.entry(model.to_owned()).or_default();
                pool.endpoints.insert(endpoint.clone(), changes);
            }
            Change::PatchRouting { patch, at, .. } => {
                let known = self.routing.get(model).cloned().unwrap_or_default();
                let mut new =
                    known.patched(patch).map_err(|(key, why)| Refused::invalid(key, why))?;
                new.updated_at.clone_from(at);
                self.routing.insert(model.to_owned(), new);
            }
            Change::DeleteRouting { .. } => {
                if self.routing.remove(model).is_none() {
                    let message = format!("`{model}` has no routing settings");
                    return Err(Refused::not_found(message));
                }
            }
        }
        Ok(())
    }
}

impl Overlay {
    fn patch_endpoint(&mut self, model: &str, name: &str, patch: &Patch) -> Result<(), Refused> {
        let (mut of_engine, mut of_pool) = (Patch::new(), Patch::new());
        for (key, value) in patch {
            let into = match key.as_str() {
                key if fields::ENGINE_KEYS.contains(&key) => &mut of_engine,
                key if fields::ENDPOINT_KEYS.contains(&key) => &mut of_pool,
                key => {
                    let (key, why) = fields::no_key(key, &fields::ENDPOINT_KEYS);
                    return Err(Refused::invalid(key, why));
                }
            };
            into.insert(key.clone(), value.clone());
        }
        fields::merge(self.engines.entry(name.to_owned()).or_default(), &of_engine);
        let pool = self.pools.entry(model.to_owned()).or_default();
        fields::merge(&mut pool.endpoints.entry(name.to_owned()).or_default().patch, &of_pool);
        Ok(())
    }

    /// Whether what is said of a new endpoint is what a change says of its engine.
    fn check_engine(&self, endpoint: &EndpointConfig, said: Option<&Value>) -> Result<(), Wrong> {
        let engine = endpoint.url.authority().as_str();
        let (Some(known), Some(said)) = (self.engines.get(engine), said) else { return Ok(()) };
        let differs = |(key, value): &(&String, &Value)| {
            said.get(key.as_str()).is_some_and(|said| said != *value)
        };
        match known.iter().find(differs) {
            None => Ok(()),
            Some((key, value)) => {
                let why = format!("{engine} was given {value} in all pools it is in");
                Err((key.clone(), why))
            }
        }
    }

    /// Without what was said of engines that no pool has any more.
    fn forget_engines(&mut self, config: &Config) {
        let endpoints = config.pools.iter().flat_map(|pool| &pool.endpoints);
        self.engines.retain(|engine, _| {
            endpoints.clone().any(|endpoint| endpoint.url.authority().as_str() == engine)
        });
    }
}

/// The key of an error as the sender of the change knows it: without the places of its pool and
/// endpoint.
fn shortened(key: &str, config: &Config, change: &Change) -> String {
    let place = config.pools.iter().position(|pool| Some(pool.model.as_str()) == change.model());
    let Some(rest) = place.and_then(|place| key.strip_prefix(&format!("pools[{place}]."))) else {
        return key.to_owned();
    };
    let Some(endpoint) = change.endpoint() else { return rest.to_owned() };
    let pool = place.and_then(|place| config.pools.get(place));
    let place = pool.and_then(|pool| {
        pool.endpoints.iter().position(|one| one.url.authority().as_str() == endpoint)
    });
    let short = place.and_then(|place| rest.strip_prefix(&format!("endpoints[{place}].")));
    short.unwrap_or(rest).to_owned()
}
