//! Laying changes over a configuration.

use std::fmt;

use super::{Overlay, Patch, fields};
use crate::bounds::Wrong;
use crate::model::Config;

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
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Created,
    Deleted,
    Patched,
    Routing,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool `{}`", self.model)?;
        if let Some(endpoint) = &self.endpoint {
            write!(f, ", endpoint {endpoint}")?;
        }
        match self.what {
            What::Created => f.write_str(", made")?,
            What::Deleted => f.write_str(", deleted")?,
            What::Patched => write!(f, ", `{}`", self.key)?,
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
            let Some(place) = config.pools.iter().position(|pool| pool.model == *model) else {
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
                if let Some(pool) = config.pools.get_mut(place)
                    && let Err((_, why)) = fields::set_pool(pool, key, value)
                {
                    dropped.push(drop(What::Patched, key, why));
                }
            }
            lay_endpoints(&mut config, place, model, changes, &mut dropped);
        }
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
        (config, dropped)
    }
}

fn lay_endpoints(
    config: &mut Config,
    pool: usize,
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
        let Some(found) = config.pools.get_mut(pool) else { return };
        let place = |pool: &crate::pool::PoolConfig| {
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
        let place = place(found);
        for (key, value) in &changes.patch {
            let set: Result<(), Wrong> = match place {
                Some(place) => fields::set_endpoint(config, (pool, place), key, value),
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
            if one.what == What::Routing {
                self.drop_routing(one);
                continue;
            }
            let Some(pool) = self.pools.get_mut(&one.model) else { continue };
            let (created, deleted, patch) = match &one.endpoint {
                None => (&mut pool.created, &mut pool.deleted, &mut pool.patch),
                Some(name) => {
                    let Some(endpoint) = pool.endpoints.get_mut(name) else { continue };
                    (&mut endpoint.created, &mut endpoint.deleted, &mut endpoint.patch)
                }
            };
            match one.what {
                What::Created => *created = None,
                What::Deleted => *deleted = false,
                What::Patched if one.key.is_empty() => {
                    (*created, *deleted, *patch) = (None, false, Patch::new());
                }
                What::Patched | What::Routing => {
                    patch.remove(&one.key);
                }
            }
        }
        self.tidied()
    }

    fn drop_routing(&mut self, one: &Dropped) {
        if one.key.is_empty() {
            self.routing.remove(&one.model);
        } else if let Some(routing) = self.routing.get_mut(&one.model) {
            routing.disaggregate = None;
        }
    }
}
