//! A fleet from its specification and the fleet before it.
//!
//! First everything that may fail, without effect; then everything that changes something.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderValue;
use http::uri::Authority;
use kvasir_balance::record::Start;
use kvasir_prompt::Limits;
use kvasir_upstream::Origin;

use super::{Fleet, FleetError, Seated};
use crate::changes::Changes;
use crate::decision_log::DecisionLog;
use crate::endpoint::Endpoint;
use crate::engine_client::EngineClient;
use crate::identity::BlockIdentity;
use crate::monitor::Duty;
use crate::pool::{Pool, PoolState};
use crate::ranks::{Configured, Ranks};
use crate::roster::Leaving;
use crate::seat::Seat;
use crate::selecting::Selecting;
use crate::spec::{AdminState, EventSpec, FleetSpec, PoolSpec, RankAddressing};
use crate::supervised::Supervised;
use crate::token_headers::TokenHeaders;
use crate::token_oracle::TokenOracle;
use crate::tokenizer::ModelPrompts;

/// What all pools together say of one engine.
struct EngineSpec {
    origin: Origin,
    addressing: RankAddressing,
    identity: BlockIdentity,
    configured: Configured,
    weight: u32,
    events: Option<EventSpec>,
    poll: bool,
    authorization: Option<HeaderValue>,
    /// The places of its pools.
    pools: Vec<usize>,
}

/// An engine of the new fleet.
struct Member {
    spec: EngineSpec,
    ranks: Arc<Ranks>,
    before: Before,
}

/// What there was of it.
enum Before {
    Nothing,
    /// It goes on.
    There(Arc<Supervised>),
    /// It had left.
    Leaving,
    /// It is known in another way now.
    Otherwise(Option<Arc<Supervised>>),
}

/// The engines of the new fleet by host and port.
type MembersByUrl = BTreeMap<String, Member>;

pub(super) fn assemble(before: &Fleet, spec: FleetSpec) -> Result<(Fleet, Changes), FleetError> {
    let roster = Arc::clone(&before.roster);
    let mut leaving = roster.leaving();
    let mut members = MembersByUrl::new();
    for engine in engine_specs(&spec.pools)? {
        let member = member(before, &leaving, engine)?;
        members.insert(member.spec.origin.authority().to_string(), member);
    }

    let mut changes = Changes::default();
    for member in members.values() {
        member.ranks.engine().set_weight(member.spec.weight);
        member.ranks.engine().set_breaker(spec.health.breaker);
        member.ranks.configure(member.spec.configured);
    }
    let known = before.probing.as_ref().filter(|(timeout, _)| *timeout == spec.connect_timeout);
    let another_client = known.is_none();
    let client = known.map_or_else(|| EngineClient::new(spec.connect_timeout), |(_, c)| c.clone());
    let mut fleet = Fleet {
        probing: Some((spec.connect_timeout, client.clone())),
        roster: Arc::clone(&roster),
        pools: std::collections::HashMap::new(),
        order: Vec::new(),
        engines: Vec::new(),
        seats: std::collections::HashMap::new(),
    };
    let log = spec.decision_log.as_deref();
    for (place, pool) in (0_u64..).zip(spec.pools) {
        let seed = spec.seed.wrapping_add(place);
        seat_pool(&mut fleet, before, pool, &members, (seed, log), &mut changes);
    }
    for seated in fleet.seats.values() {
        seated.seat.check(&client, another_client);
    }
    for (model, gone) in &before.seats {
        if !fleet.seats.contains_key(model) {
            gone.seat.end();
            changes.pools_removed.push(model.clone());
        }
    }
    let seats: Vec<Arc<Seat>> =
        fleet.order.iter().map(|pool| Arc::clone(&fleet.seats[pool.model()].seat)).collect();
    for member in members.into_values() {
        let pools = member.spec.pools.iter().map(|place| Arc::clone(&seats[*place])).collect();
        let duty = Duty {
            events: member.spec.events,
            poll: member.spec.poll,
            authorization: member.spec.authorization,
            interval: spec.scrape_interval,
            probe: spec.health.clone(),
            client: client.clone(),
            pools,
        };
        let another_way = member.ranks.engine().connect_by(member.spec.origin);
        let engine = employ(
            &fleet,
            &mut leaving,
            member.ranks,
            member.before,
            duty,
            another_client || another_way,
            &mut changes,
        );
        fleet.engines.push(engine);
    }
    dismiss(before, &fleet, &mut leaving, &mut changes);
    drop(leaving);
    roster.watch();
    fleet.engines.sort_by(|a, b| a.url().cmp(b.url()));
    changes.pools_removed.sort();
    Ok((fleet, changes))
}

/// What the pools say of each engine, in the order of their first mention.
fn engine_specs(pools: &[PoolSpec]) -> Result<Vec<EngineSpec>, FleetError> {
    let mut engines: Vec<EngineSpec> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (pool_place, pool) in pools.iter().enumerate() {
        for spec in &pool.endpoints {
            let addressing = spec.addressing(pool.rank_addressing);
            let authority = spec.origin.authority();
            let place = match places.entry(authority.as_str()) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) => {
                    engines.push(EngineSpec {
                        origin: spec.origin.clone(),
                        addressing,
                        identity: pool.identity.clone(),
                        configured: Configured { ranks: spec.ranks, state: spec.state },
                        weight: spec.weight,
                        events: None,
                        poll: false,
                        authorization: None,
                        pools: Vec::new(),
                    });
                    *free.insert(engines.len() - 1)
                }
            };
            let engine = &mut engines[place];
            if engine.addressing != addressing {
                return Err(FleetError::Addressing(authority.to_string()));
            }
            if engine.identity != pool.identity {
                return Err(FleetError::Identity(authority.to_string()));
            }
            if engine.origin != spec.origin {
                return Err(FleetError::Connections(spec.origin.to_string()));
            }
            engine.weight = spec.weight;
            engine.events = engine.events.take().or_else(|| spec.events.clone());
            engine.poll |= spec.poll_events;
            engine.authorization =
                engine.authorization.take().or_else(|| pool.authorization.clone());
            engine.pools.push(pool_place);
        }
    }
    Ok(engines)
}

/// The engine that is there, or is leaving; else another one.
fn member(before: &Fleet, leaving: &Leaving, spec: EngineSpec) -> Result<Member, FleetError> {
    let fits = |engine: &Arc<Supervised>| {
        let ranks = engine.ranks();
        ranks.addressing() == spec.addressing
            && *ranks.engine().identity() == spec.identity
            && ranks.engine().url() == spec.origin.url()
    };
    let is_it = |e: &&Arc<Supervised>| e.ranks().engine().authority() == spec.origin.authority();
    let there = before.engines.iter().find(is_it).cloned();
    let gone = leaving.find(spec.origin.authority());
    let found = match (there, gone) {
        (Some(engine), _) if fits(&engine) => {
            Some((Arc::clone(engine.ranks()), Before::There(engine)))
        }
        (None, Some(engine)) if fits(engine) => Some((Arc::clone(engine.ranks()), Before::Leaving)),
        (None, None) => None,
        (other, _) => Some((new_ranks(before, &spec)?, Before::Otherwise(other))),
    };
    let (ranks, known) = match found {
        Some(found) => found,
        None => (new_ranks(before, &spec)?, Before::Nothing),
    };
    Ok(Member { spec, ranks, before: known })
}

fn new_ranks(before: &Fleet, spec: &EngineSpec) -> Result<Arc<Ranks>, FleetError> {
    let shared = before.roster.shared().clone();
    let (origin, identity) = (spec.origin.clone(), spec.identity.clone());
    Ranks::new(origin, spec.addressing, spec.configured, identity, shared)
        .map(Arc::new)
        .ok_or(FleetError::TooManyEndpoints)
}

/// The monitor goes on with what it has to do now, or begins.
fn employ(
    fleet: &Fleet,
    leaving: &mut Leaving,
    ranks: Arc<Ranks>,
    before: Before,
    duty: Duty,
    another_client: bool,
    changes: &mut Changes,
) -> Arc<Supervised> {
    let url = ranks.engine().url().to_owned();
    let known = match before {
        Before::There(engine) => {
            if engine.charge(duty.clone(), another_client) {
                changes.engines_changed.push(url);
            }
            return engine;
        }
        Before::Leaving => leaving.take(ranks.engine().authority()),
        Before::Nothing => {
            changes.engines_added.push(url);
            None
        }
        Before::Otherwise(engine) => {
            let engine = engine.or_else(|| leaving.take(ranks.engine().authority()));
            if let Some(engine) = engine {
                engine.begin_end();
            }
            changes.engines_begun_anew.push(url);
            None
        }
    };
    match known {
        Some(engine) => {
            changes.engines_returned.push(engine.url().to_owned());
            engine.charge(duty, another_client);
            engine
        }
        None => {
            let inventory = Arc::clone(&fleet.roster.shared().inventory);
            Arc::new(Supervised::start(ranks, duty, inventory))
        }
    }
}

/// Engines that are in no pool any more.
fn dismiss(before: &Fleet, fleet: &Fleet, leaving: &mut Leaving, changes: &mut Changes) {
    for engine in &before.engines {
        if !fleet.engines.iter().any(|stays| stays.url() == engine.url()) {
            changes.engines_left.push(engine.url().to_owned());
            leaving.add(Arc::clone(engine));
        }
    }
}

/// Puts the pool of a specification in its place: the one that is there, where nothing changed.
fn seat_pool(
    fleet: &mut Fleet,
    before: &Fleet,
    spec: PoolSpec,
    members: &MembersByUrl,
    (seed, log): (u64, Option<&DecisionLog>),
    changes: &mut Changes,
) {
    let model = spec.model.clone();
    let engines: Vec<Arc<Ranks>> = spec
        .endpoints
        .iter()
        .filter_map(|endpoint| members.get(endpoint.origin.authority().as_str()))
        .map(|member| Arc::clone(&member.ranks))
        .collect();
    let states = states_of(&spec);
    let shared = fleet.roster.shared().clone();
    let seat = if let Some(Seated { seat, spec: known }) = before.seats.get(&model) {
        let pool = seat.pool();
        let state = next_state(&pool, known, &spec, (seed, log), changes);
        let same = Arc::ptr_eq(&state.selecting, &pool.state().selecting)
            && known.tokens == spec.tokens
            && known.tokenizer_dir == spec.tokenizer_dir
            && known.authorization == spec.authorization
            && known.timeouts == spec.timeouts
            && known.admission == spec.admission
            && pool.states() == states
            && pool.has_engines(&engines);
        if same {
            pool.refresh();
        } else {
            let authorization = spec.authorization.clone();
            let timeouts = spec.timeouts;
            let next = Pool::new(model.clone(), authorization, timeouts, engines, shared, state);
            let next = next.with_states(states).with_door(spec.admission.clone(), pool.door());
            forget_gone(&pool, &next);
            seat.take(Arc::new(next));
            changes.pools_changed.push(model.clone());
        }
        Arc::clone(seat)
    } else {
        let selecting = selecting_of(&spec, seed, log);
        let state = PoolState::new(selecting, prompts_of(&spec), spec.tokens);
        let (authorization, timeouts) = (spec.authorization.clone(), spec.timeouts);
        let pool = Pool::new(model.clone(), authorization, timeouts, engines, shared, state);
        let pool = pool.with_states(states).with_door(spec.admission.clone(), None);
        changes.pools_added.push(model.clone());
        Arc::new(Seat::new(Arc::new(pool)))
    };
    let pool = seat.pool();
    fleet.order.push(Arc::clone(&pool));
    fleet.pools.insert(model.clone(), pool);
    fleet.seats.insert(model, Seated { seat, spec });
}

/// What a pool goes on with: all of it but what depends on settings that changed.
fn next_state(
    pool: &Pool,
    known: &PoolSpec,
    spec: &PoolSpec,
    (seed, log): (u64, Option<&DecisionLog>),
    changes: &mut Changes,
) -> PoolState {
    let mut state = pool.state().clone();
    if known.selection != spec.selection {
        tracing::info!(
            model = spec.model,
            before = pool.policy(),
            now = spec.selection.policy.name(),
            "selection settings changed: what the policy remembered is gone"
        );
        changes.selections_begun_anew.push(spec.model.clone());
        state.selecting = Arc::new(selecting_of(spec, seed, log));
    }
    let (before, now) = (known.tokens, spec.tokens);
    // What was compared before was another tokenizer's.
    let other_tokens = known.tokenizer_dir != spec.tokenizer_dir
        || before.max_prompt_bytes != now.max_prompt_bytes;
    if other_tokens {
        state.prompts = Arc::new(prompts_of(spec));
        state.token_parity = Arc::default();
    }
    if other_tokens || before.parity != now.parity {
        state.token_oracle = Arc::new(TokenOracle::new(now.parity));
    }
    if other_tokens || before.trust_headers != now.trust_headers {
        state.token_headers = Arc::new(TokenHeaders::new(now.trust_headers));
    }
    state
}

fn selecting_of(spec: &PoolSpec, seed: u64, log: Option<&DecisionLog>) -> Selecting {
    Selecting::new(&spec.selection, seed, log.map(|log| log.pool(start_of(spec, seed))))
}

/// The engines that are not simply active.
fn states_of(spec: &PoolSpec) -> Vec<(Authority, AdminState)> {
    let told = spec.endpoints.iter().filter(|endpoint| endpoint.state != AdminState::Active);
    told.map(|endpoint| (endpoint.origin.authority().clone(), endpoint.state)).collect()
}

/// What was remembered of endpoints that are not in the pool any more.
fn forget_gone(pool: &Pool, next: &Pool) {
    let (before, now) = (pool.members(), next.members());
    let gone = |member: &&Arc<Endpoint>| !now.iter().any(|stays| stays.name() == member.name());
    let gone: Vec<Arc<Endpoint>> = before.iter().filter(gone).cloned().collect();
    if !gone.is_empty() && Arc::ptr_eq(&pool.state().selecting, &next.state().selecting) {
        next.state().selecting.forget_gone(&gone);
    }
}

fn prompts_of(spec: &PoolSpec) -> ModelPrompts {
    let limits = Limits { prompt_bytes: spec.tokens.max_prompt_bytes, ..Limits::default() };
    ModelPrompts::new(spec.model.clone(), spec.tokenizer_dir.clone(), limits)
}

/// How the log of a pool begins.
fn start_of(pool: &PoolSpec, seed: u64) -> Start {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
    let clock_unix_ms = since.and_then(|since| u64::try_from(since.as_millis()).ok());
    let start = Start::new(pool.model.clone(), pool.selection.clone(), seed);
    Start { clock_unix_ms, ..start }
}
