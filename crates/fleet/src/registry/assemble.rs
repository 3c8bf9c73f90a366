//! A fleet from its specification and the fleet before it.
//!
//! First everything that may fail, without effect; then everything that changes something.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::uri::Authority;
use kvasir_balance::Role;
use kvasir_balance::record::Start;
use kvasir_prompt::Limits;

use super::engines::{EngineSpec, Wanted, engine_specs};
use super::{Fleet, FleetError, Seated};
use crate::breaker::BreakerSettings;
use crate::changes::Changes;
use crate::decision_log::DecisionLog;
use crate::engine_client::EngineClient;
use crate::monitor::Duty;
use crate::pool::{Pool, PoolState};
use crate::ranks::Ranks;
use crate::roster::Leaving;
use crate::seat::Seat;
use crate::selecting::Selecting;
use crate::spec::{AdminState, FleetSpec, PoolSpec};
use crate::supervised::Supervised;
use crate::token_headers::TokenHeaders;
use crate::token_oracle::TokenOracle;
use crate::tokenizer::ModelPrompts;

/// An engine of the new fleet.
struct Member {
    spec: EngineSpec,
    /// The places of its pools.
    pools: Vec<usize>,
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
    let members = members_of(before, &leaving, &spec.pools)?;

    let mut changes = Changes::default();
    let FleetSpec { pools, scrape_interval, connect_timeout, seed, decision_log, health } = spec;
    for member in members.values() {
        configure(member, health.breaker, &mut changes);
    }
    let (client, another_client) = client_of(before, connect_timeout);
    let mut fleet = Fleet {
        probing: Some((connect_timeout, client.clone())),
        ..Fleet::empty_of(Arc::clone(&roster))
    };
    let log = decision_log.as_deref();
    for (place, pool) in (0_u64..).zip(pools) {
        let seed = seed.wrapping_add(place);
        seat_pool(&mut fleet, before, pool, &members, (seed, log), &mut changes);
    }
    check_seats(before, &fleet, (&client, another_client), &mut changes);
    let seats: Vec<Arc<Seat>> =
        fleet.order.iter().map(|pool| Arc::clone(&fleet.seats[pool.model()].seat)).collect();
    for member in members.into_values() {
        let authority = member.spec.origin.authority().clone();
        let another_spec = before.specs.get(&authority) != Some(&member.spec);
        fleet.specs.insert(authority, member.spec.clone());
        let pools = member.pools.iter().map(|place| Arc::clone(&seats[*place])).collect();
        let duty = Duty {
            events: member.spec.events,
            poll: member.spec.poll,
            authorization: member.spec.authorization,
            interval: scrape_interval,
            probe: health.clone(),
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
            (another_spec, another_client || another_way),
            &mut changes,
        );
        fleet.engines.push(engine);
    }
    // What a monitor learned before it knew of a pool.
    seats.iter().for_each(|seat| seat.refresh());
    dismiss(before, &fleet, &mut leaving, &mut changes);
    tell_one_sided(before, &fleet);
    drop(leaving);
    roster.watch();
    fleet.engines.sort_by(|a, b| a.url().cmp(b.url()));
    changes.pools_removed.sort();
    Ok((fleet, changes))
}

/// The engines of the new fleet: those that are there or were, and new ones.
fn members_of(
    before: &Fleet,
    leaving: &Leaving,
    pools: &[PoolSpec],
) -> Result<MembersByUrl, FleetError> {
    let mut members = MembersByUrl::new();
    for engine in engine_specs(pools)? {
        let member = member(before, leaving, engine)?;
        members.insert(member.spec.origin.authority().to_string(), member);
    }
    Ok(members)
}

/// Tells an engine what the specification says of it.
fn configure(member: &Member, breaker: BreakerSettings, changes: &mut Changes) {
    member.ranks.engine().set_weight(member.spec.weight);
    set_part(member, changes);
    member.ranks.engine().set_breaker(breaker);
    member.ranks.configure(member.spec.configured);
}

/// What engines are asked with, and whether it is another than before.
fn client_of(before: &Fleet, connect_timeout: Duration) -> (EngineClient, bool) {
    let known = before.probing.as_ref().filter(|(timeout, _)| *timeout == connect_timeout);
    let client = known.map_or_else(|| EngineClient::new(connect_timeout), |(_, c)| c.clone());
    (client, known.is_none())
}

/// Has the seats' work go on, and ends the seats of pools that are gone.
fn check_seats(
    before: &Fleet,
    fleet: &Fleet,
    (client, another_client): (&EngineClient, bool),
    changes: &mut Changes,
) {
    for seated in fleet.seats.values() {
        seated.seat.check(client, another_client);
    }
    for (model, gone) in &before.seats {
        if !fleet.seats.contains_key(model) {
            gone.seat.end();
            changes.pools_removed.push(model.clone());
        }
    }
}

/// Gives an engine its part in pools that split requests.
fn set_part(member: &Member, changes: &mut Changes) {
    let engine = member.ranks.engine();
    let (before, now) = (engine.part(), &member.spec.part);
    if *before == *now {
        return;
    }
    engine.set_part(now.clone());
    if matches!(member.before, Before::There(_) | Before::Leaving) {
        let (endpoint, before, now) = (engine.url(), before.role.as_str(), now.role.as_str());
        tracing::info!(endpoint, before, now, "part in disaggregated serving changed");
        changes.roles_changed.push(engine.url().to_owned());
    }
}

/// Says of which pools only one side is there.
fn tell_one_sided(before: &Fleet, fleet: &Fleet) {
    for pool in &fleet.order {
        let state = pool.split_state();
        let known = before.pools.get(pool.model()).map(|pool| pool.split_state());
        let model = pool.model();
        if known == Some(state) {
            continue;
        }
        match state.warning() {
            Some(warning) => tracing::warn!(model, state = state.as_str(), "{warning}"),
            None => tracing::debug!(model, state = state.as_str(), "disaggregated serving"),
        }
    }
}

/// The engine that is there, or is leaving; else another one.
fn member(before: &Fleet, leaving: &Leaving, engine: Wanted) -> Result<Member, FleetError> {
    let Wanted { spec, pools } = engine;
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
    Ok(Member { spec, pools, ranks, before: known })
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
    (another_spec, another_client): (bool, bool),
    changes: &mut Changes,
) -> Arc<Supervised> {
    let url = ranks.engine().url().to_owned();
    let known = match before {
        Before::There(engine) => {
            engine.charge(duty, another_client);
            if another_spec {
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
                fleet.roster.shared().retired.add(engine.ranks().endpoints());
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
            ranks.recall(&ranks.endpoints());
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
    let (states, roles) = (states_of(&spec), roles_of(&spec));
    let shared = fleet.roster.shared().clone();
    let seat = if let Some(Seated { seat, spec: known }) = before.seats.get(&model) {
        let pool = seat.pool();
        let state = next_state(&pool, known, &spec, (seed, log), changes);
        let same = Arc::ptr_eq(&state.selecting, &pool.state().selecting)
            && !is_another(known, &spec)
            && pool.states() == states
            && *pool.roles() == roles
            && pool.has_engines(&engines);
        if same {
            seat.refresh();
        } else {
            let authorization = spec.authorization.clone();
            let timeouts = spec.timeouts;
            let next = Pool::new(model.clone(), authorization, timeouts, engines, shared, state);
            let next = next.with_states(states).with_split(spec.split.clone(), roles);
            let next = next.with_door(spec.admission.clone(), pool.door());
            let next = next.with_names(spec.aliases.clone(), spec.decision_headers);
            seat.take(Arc::new(next));
            changes.pools_changed.push(model.clone());
        }
        Arc::clone(seat)
    } else {
        let selecting = selecting_of(&spec, seed, log);
        let state = PoolState::new(selecting, prompts_of(&spec), spec.tokens);
        let (authorization, timeouts) = (spec.authorization.clone(), spec.timeouts);
        let pool = Pool::new(model.clone(), authorization, timeouts, engines, shared, state);
        let pool = pool.with_states(states).with_split(spec.split.clone(), roles);
        let pool = pool.with_door(spec.admission.clone(), None);
        let pool = pool.with_names(spec.aliases.clone(), spec.decision_headers);
        changes.pools_added.push(model.clone());
        Arc::new(Seat::new(Arc::new(pool)))
    };
    let pool = seat.pool();
    fleet.order.push(Arc::clone(&pool));
    let named = |alias: &String| (alias.clone(), Arc::clone(&pool));
    fleet.aliases.extend(spec.aliases.iter().map(named));
    fleet.pools.insert(model.clone(), pool);
    fleet.seats.insert(model, Seated { seat, spec });
}

/// Whether a pool is to be another by its own settings.
fn is_another(known: &PoolSpec, spec: &PoolSpec) -> bool {
    let PoolSpec {
        model,
        aliases,
        decision_headers,
        // Another one is another selection, and is looked at there.
        selection: _,
        tokenizer_dir,
        authorization,
        tokens,
        // Engines that are addressed or known in another way are others.
        rank_addressing: _,
        identity: _,
        timeouts,
        admission,
        split,
        // So are others in their place; their states are looked at, and the rest is the engines'.
        endpoints: _,
    } = known;
    *model != spec.model
        || *aliases != spec.aliases
        || *decision_headers != spec.decision_headers
        || *tokenizer_dir != spec.tokenizer_dir
        || *authorization != spec.authorization
        || *tokens != spec.tokens
        || *timeouts != spec.timeouts
        || *admission != spec.admission
        || *split != spec.split
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

/// The engines with a part in requests that are split.
fn roles_of(spec: &PoolSpec) -> HashMap<Authority, Role> {
    let told = spec.endpoints.iter().filter(|endpoint| endpoint.part.role != Role::Unified);
    told.map(|endpoint| (endpoint.origin.authority().clone(), endpoint.part.role)).collect()
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
