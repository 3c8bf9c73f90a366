//! What all pools together say of each engine.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use http::HeaderValue;
use kvasir_upstream::Origin;

use super::FleetError;
use crate::identity::BlockIdentity;
use crate::ranks::Configured;
use crate::spec::{EventSpec, Part, PoolSpec, RankAddressing};

/// What all pools together say of one engine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EngineSpec {
    pub(super) origin: Origin,
    pub(super) addressing: RankAddressing,
    pub(super) identity: BlockIdentity,
    pub(super) configured: Configured,
    pub(super) weight: u32,
    pub(super) part: Part,
    pub(super) events: Option<EventSpec>,
    pub(super) poll: bool,
    pub(super) authorization: Option<HeaderValue>,
}

/// The same, and the places of its pools.
pub(super) struct Wanted {
    pub(super) spec: EngineSpec,
    pub(super) pools: Vec<usize>,
}

/// What the pools say of each engine, in the order of their first mention.
pub(super) fn engine_specs(pools: &[PoolSpec]) -> Result<Vec<Wanted>, FleetError> {
    let mut engines: Vec<Wanted> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (pool_place, pool) in pools.iter().enumerate() {
        for spec in &pool.endpoints {
            let addressing = spec.addressing(pool.rank_addressing);
            let configured = Configured { ranks: spec.ranks, state: spec.state };
            let authority = spec.origin.authority();
            let place = match places.entry(authority.as_str()) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) => {
                    let spec = EngineSpec {
                        origin: spec.origin.clone(),
                        addressing,
                        identity: pool.identity.clone(),
                        configured,
                        weight: spec.weight,
                        part: spec.part.clone(),
                        events: None,
                        poll: false,
                        authorization: None,
                    };
                    engines.push(Wanted { spec, pools: Vec::new() });
                    *free.insert(engines.len() - 1)
                }
            };
            let Wanted { spec: engine, pools } = &mut engines[place];
            if engine.addressing != addressing {
                return Err(FleetError::Addressing(authority.to_string()));
            }
            if engine.identity != pool.identity {
                return Err(FleetError::Identity(authority.to_string()));
            }
            if engine.origin != spec.origin {
                return Err(FleetError::Connections(spec.origin.to_string()));
            }
            let settings = (engine.weight, engine.configured, &engine.part);
            if settings != (spec.weight, configured, &spec.part) {
                return Err(FleetError::Settings(authority.to_string()));
            }
            engine.events = engine.events.take().or_else(|| spec.events.clone());
            engine.poll |= spec.poll_events;
            engine.authorization =
                engine.authorization.take().or_else(|| pool.authorization.clone());
            pools.push(pool_place);
        }
    }
    Ok(engines)
}
