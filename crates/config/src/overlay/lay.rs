//! Laying changes over a configuration.

use std::fmt;

use serde_json::{Value, json};

use super::{Overlay, Patch, fields};
use crate::bounds::Wrong;
use crate::model::Config;
use crate::pool::PoolConfig;

/// A change that does not fit the configuration any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The pool's model.
    pub model: String,
    /// The endpoint, by host and port, where it is about one.
    pub endpoint: Option<String>,
    /// The key it changes; empty where it makes or deletes the whole.
    pub key: String,
    /// Why it does not fit.
    pub why: String,
    pub(super) what: What,
}

/// Kinds of changes, in the order in which they are laid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Deleted,
    Created,
    Patched,
    Engine,
    Routing,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.endpoint, self.what) {
            (Some(engine), What::Engine) => write!(f, "engine {engine}")?,
            (Some(endpoint), _) => write!(f, "pool `{}`, endpoint {endpoint}", self.model)?,
            (None, _) => write!(f, "pool `{}`", self.model)?,
        }
        match self.what {
            What::Created => f.write_str(", made")?,
            What::Deleted => f.write_str(", deleted")?,
            What::Patched | What::Engine => write!(f, ", `{}`", self.key)?,
            What::Routing if self.key.is_empty() => f.write_str(", routing settings")?,
            What::Routing => write!(f, ", routing `{}`", self.key)?,
        }
        write!(f, ": {}", self.why)
    }
}

impl Config {
    /// The configuration with all changes, and those that do not fit. What comes out is not checked as a
    /// whole.
    #[must_use]
    pub fn with_overlay(&self, overlay: &Overlay) -> (Self, Vec<Dropped>) {
        let (mut config, mut dropped) = (self.clone(), Vec::new());
        for (model, changes) in &overlay.pools {
            let drop = |what, key: &str, why: String| Dropped {
                model: model.clone(),
                endpoint: None,
                key: key.to_owned(),
                why,
                what,
            };
            let place = config.pools.iter().position(|pool| pool.model == *model);
            match (place, changes.deleted) {
                (Some(place), true) => {
                    config.pools.remove(place);
                }
                (None, true) => {
                    dropped.push(drop(What::Deleted, "", "there is no such pool".to_owned()));
                }
                (_, false) => {}
            }
            if let Some(created) = &changes.created {
                if config.pools.iter().any(|pool| pool.model == *model) {
                    let why = "the configuration has such a pool itself".to_owned();
                    dropped.push(drop(What::Created, "", why));
                } else {
                    match fields::pool(created) {
                        Ok(pool) => config.pools.push(pool),
                        Err((key, why)) => dropped.push(drop(What::Created, &key, why)),
                    }
                }
            }
            if changes.deleted && changes.created.is_none() {
                continue;
            }
            let Some(pool) = config.pools.iter_mut().find(|pool| pool.model == *model) else {
                let why = || "there is no such pool".to_owned();
                dropped.extend(changes.patch.keys().map(|key| drop(What::Patched, key, why())));
                let endpoints = changes.endpoints.keys();
                dropped.extend(endpoints.map(|endpoint| Dropped {
                    endpoint: Some(endpoint.clone()),
                    ..drop(What::Patched, "", why())
                }));
                continue;
            };
            for (key, value) in &changes.patch {
                if let Err((_, why)) = fields::set_pool(pool, key, value) {
                    dropped.push(drop(What::Patched, key, why));
                }
            }
            lay_endpoints(pool, model, changes, &mut dropped);
        }
        lay_engines(&mut config, overlay, &mut dropped);
        lay_routing(&mut config, overlay, &mut dropped);
        (config, dropped)
    }
}

fn lay_engines(config: &mut Config, overlay: &Overlay, dropped: &mut Vec<Dropped>) {
    for (engine, patch) in &overlay.engines {
        for (key, value) in patch {
            if let Err((_, why)) = fields::set_engine(config, engine, key, value) {
                let (model, endpoint) = (String::new(), Some(engine.clone()));
                let (key, what) = (key.clone(), What::Engine);
                dropped.push(Dropped { model, endpoint, key, why, what });
            }
        }
    }
}

fn lay_routing(config: &mut Config, overlay: &Overlay, dropped: &mut Vec<Dropped>) {
    for (model, routing) in &overlay.routing {
        let pool = config.pools.iter_mut().find(|pool| pool.model == *model);
        let laid = match pool {
            Some(pool) => routing.lay_over(pool),
            None => Err((String::new(), "there is no such pool".to_owned())),
        };
        if let Err((key, why)) = laid {
            let (model, what) = (model.clone(), What::Routing);
            dropped.push(Dropped { model, endpoint: None, key, why, what });
        }
    }
}

fn lay_endpoints(
    found: &mut PoolConfig,
    model: &str,
    changes: &super::PoolChanges,
    dropped: &mut Vec<Dropped>,
) {
    for (name, changes) in &changes.endpoints {
        let drop = |what, key: &str, why: String| Dropped {
            model: model.to_owned(),
            endpoint: Some(name.clone()),
            key: key.to_owned(),
            why,
            what,
        };
        let place = |pool: &PoolConfig| {
            pool.endpoints.iter().position(|one| one.url.authority().as_str() == name)
        };
        match (place(found), changes.deleted) {
            (Some(place), true) => {
                found.endpoints.remove(place);
            }
            (None, true) => {
                dropped.push(drop(What::Deleted, "", "there is no such endpoint".to_owned()));
            }
            (_, false) => {}
        }
        if let Some(created) = &changes.created {
            match fields::endpoint(created) {
                Ok(_) if place(found).is_some() => {
                    let why = "the configuration has such an endpoint itself".to_owned();
                    dropped.push(drop(What::Created, "", why));
                }
                Ok(endpoint) => found.endpoints.push(endpoint),
                Err((key, why)) => dropped.push(drop(What::Created, &key, why)),
            }
        }
        let mut endpoint = place(found).and_then(|place| found.endpoints.get_mut(place));
        for (key, value) in &changes.patch {
            let set: Result<(), Wrong> = match endpoint.as_deref_mut() {
                Some(endpoint) => fields::set_endpoint(endpoint, key, value),
                None => Err((key.clone(), "there is no such endpoint".to_owned())),
            };
            if let Err((_, why)) = set {
                dropped.push(drop(What::Patched, key, why));
            }
        }
    }
}

impl Overlay {
    /// Without what does not fit any more.
    #[must_use]
    pub fn without(mut self, dropped: &[Dropped]) -> Self {
        for one in dropped {
            match (one.what, &one.endpoint) {
                (What::Routing, _) => self.drop_routing(one),
                (What::Engine, Some(engine)) => {
                    if let Some(patch) = self.engines.get_mut(engine) {
                        patch.remove(&one.key);
                    }
                }
                _ => self.drop_of_pool(one),
            }
        }
        self.tidied()
    }

    fn drop_of_pool(&mut self, one: &Dropped) {
        let Some(pool) = self.pools.get_mut(&one.model) else { return };
        let (created, deleted, patch) = match &one.endpoint {
            None => (&mut pool.created, &mut pool.deleted, &mut pool.patch),
            Some(name) => {
                let Some(endpoint) = pool.endpoints.get_mut(name) else { return };
                (&mut endpoint.created, &mut endpoint.deleted, &mut endpoint.patch)
            }
        };
        match one.what {
            What::Created => *created = None,
            What::Deleted => *deleted = false,
            What::Patched if one.key.is_empty() => {
                (*created, *deleted, *patch) = (None, false, Patch::new());
            }
            What::Patched | What::Engine | What::Routing => {
                patch.remove(&one.key);
            }
        }
    }

    /// What a change said, for whoever wants to make it again.
    #[must_use]
    pub fn said(&self, dropped: &Dropped) -> Value {
        let Dropped { model, endpoint, key, what, .. } = dropped;
        let (pool, place) = (self.pools.get(model), endpoint.as_deref());
        let of_endpoint = || pool?.endpoints.get(place?);
        let found = match (what, place) {
            (What::Routing, _) => return json!(self.routing.get(model)),
            (What::Engine, Some(engine)) => self.engines.get(engine).and_then(|all| all.get(key)),
            (What::Created, None) => pool.and_then(|pool| pool.created.as_ref()),
            (What::Created, Some(_)) => of_endpoint().and_then(|one| one.created.as_ref()),
            (What::Patched, Some(_)) if key.is_empty() => return json!(of_endpoint()),
            (What::Patched, None) => pool.and_then(|pool| pool.patch.get(key)),
            (What::Patched, Some(_)) => of_endpoint().and_then(|one| one.patch.get(key)),
            (What::Deleted | What::Engine, _) => None,
        };
        found.cloned().unwrap_or_default()
    }

    /// Every change in it, in the order in which they are laid.
    pub(super) fn each(&self) -> Vec<Dropped> {
        let mut all = Vec::new();
        let mut add = |what, model: &str, endpoint: Option<&String>, key: &str| {
            let (model, endpoint) = (model.to_owned(), endpoint.cloned());
            all.push(Dropped { model, endpoint, key: key.to_owned(), why: String::new(), what });
        };
        for (model, pool) in &self.pools {
            let of_pool = (pool.deleted, pool.created.is_some(), &pool.patch);
            let of_endpoints = pool
                .endpoints
                .iter()
                .map(|(name, one)| (Some(name), (one.deleted, one.created.is_some(), &one.patch)));
            for (place, (deleted, created, patch)) in
                std::iter::once((None, of_pool)).chain(of_endpoints)
            {
                deleted.then(|| add(What::Deleted, model, place, ""));
                created.then(|| add(What::Created, model, place, ""));
                patch.keys().for_each(|key| add(What::Patched, model, place, key));
            }
        }
        for (engine, patch) in &self.engines {
            patch.keys().for_each(|key| add(What::Engine, "", Some(engine), key));
        }
        self.routing.keys().for_each(|model| add(What::Routing, model, None, ""));
        // Of one kind pools come before their endpoints.
        all.sort_by_key(|one| (one.what, one.endpoint.is_some()));
        all
    }

    fn drop_routing(&mut self, one: &Dropped) {
        if one.key.is_empty() {
            self.routing.remove(&one.model);
        } else if let Some(routing) = self.routing.get_mut(&one.model) {
            routing.disaggregate = None;
        }
    }
}
