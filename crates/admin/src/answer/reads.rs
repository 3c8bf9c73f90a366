//! Routes that show things.

use std::sync::Arc;

use kvasir_config::shown;
use kvasir_fleet::{Endpoint, Fleet, Pool};
use serde_json::{Value, json};

use super::changes::check_tenant;
use crate::control::{Control, State};
use crate::error::ApiError;
use crate::recent::KEPT;
use crate::stats::Stats;
use crate::views;

/// Blocks that are shown at most.
pub(super) const MAX_SAMPLES: usize = 1000;

pub(super) fn pools(control: &dyn Control) -> Value {
    let (fleet, state) = (control.fleet(), control.state());
    let pools: Vec<Value> = fleet.pools().iter().map(|pool| views::pool(pool, &state)).collect();
    json!({ "pools": pools })
}

pub(super) fn pool(control: &dyn Control, model: &str) -> Result<Value, ApiError> {
    let pool = find_pool(control, model)?;
    Ok(views::pool(&pool, &control.state()))
}

/// Whether there is a pool.
pub(super) fn pool_place(control: &dyn Control, model: &str) -> Result<(), ApiError> {
    find_pool(control, model).map(|_| ())
}

fn find_pool(control: &dyn Control, model: &str) -> Result<Arc<Pool>, ApiError> {
    let fleet = control.fleet();
    let found = fleet.pools().iter().find(|pool| pool.model() == model).cloned();
    found.ok_or_else(|| ApiError::not_found(format!("there is no pool `{model}`")))
}

pub(super) fn endpoints_of(control: &dyn Control, model: &str) -> Result<Value, ApiError> {
    let (pool, state) = (find_pool(control, model)?, control.state());
    let members = pool.members();
    let endpoints: Vec<Value> =
        members.iter().map(|member| views::endpoint(&pool, member, &state)).collect();
    Ok(json!({ "endpoints": endpoints }))
}

/// By host and port, URL, or either with `#rank`.
pub(super) fn endpoint(control: &dyn Control, model: &str, name: &str) -> Result<Value, ApiError> {
    let (pool, state) = (find_pool(control, model)?, control.state());
    let members = pool.members();
    let found: Vec<&Arc<Endpoint>> =
        members.iter().filter(|member| views::is_named(member, name)).collect();
    let Some(first) = found.first() else {
        let message = format!("pool `{model}` has no endpoint `{name}`");
        return Err(ApiError::not_found(message));
    };
    let mut shown = views::endpoint(&pool, first, &state);
    if found.len() > 1 {
        let ranks = found.iter().map(|member| views::endpoint(&pool, member, &state));
        shown["ranks"] = ranks.collect::<Vec<Value>>().into();
    }
    Ok(shown)
}

pub(super) fn endpoints(control: &dyn Control) -> Value {
    let (fleet, state) = (control.fleet(), control.state());
    let endpoints = fleet.pools().iter().flat_map(|pool| {
        let members = pool.members();
        let shown = |member: &Arc<Endpoint>| {
            let mut shown = views::endpoint(pool, member, &state);
            shown["pool"] = pool.model().into();
            shown
        };
        members.iter().map(shown).collect::<Vec<Value>>()
    });
    json!({ "endpoints": endpoints.collect::<Vec<Value>>() })
}

pub(super) fn inventory(control: &dyn Control) -> Value {
    views::inventory(&control.fleet())
}

pub(super) fn samples(control: &dyn Control, name: &str, limit: usize) -> Result<Value, ApiError> {
    let fleet = control.fleet();
    let found = fleet.endpoints().into_iter().find(|endpoint| views::is_named(endpoint, name));
    let found =
        found.ok_or_else(|| ApiError::not_found(format!("there is no endpoint `{name}`")))?;
    Ok(views::samples(&found, limit))
}

pub(super) fn parity(control: &dyn Control) -> Value {
    let fleet = control.fleet();
    let recent = control.recent();
    let pools: Vec<Value> = fleet
        .pools()
        .iter()
        .map(|pool| views::parity(pool, &recent.latest(KEPT, Some(pool.model()))))
        .collect();
    let ok = pools.iter().all(|pool| pool["problems"].as_array().is_none_or(Vec::is_empty));
    json!({ "ok": ok, "pools": pools })
}

pub(super) fn decisions(control: &dyn Control, limit: usize, model: Option<&str>) -> Value {
    let latest = control.recent().latest(limit, model);
    let latest = latest.iter().map(|one| serde_json::to_value(&**one).unwrap_or_default());
    json!({ "decisions": latest.collect::<Vec<Value>>() })
}

pub(super) async fn stats(control: &dyn Control) -> Result<Value, ApiError> {
    let (fleet, recent) = (control.fleet(), control.recent());
    added_up(move || stats_of(&fleet, recent.stats())).await
}

/// Off the async threads: a month of many pools takes a while to be added up.
async fn added_up<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| internal(&error.to_string()))
}

fn internal(why: &str) -> ApiError {
    ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, "internal", why)
}

fn stats_of(fleet: &Fleet, stats: &Stats) -> Value {
    let of_pool =
        |pool: &Arc<Pool>| (pool.model().to_owned(), stats.total(Some(pool.model())).shown());
    let pools: serde_json::Map<String, Value> = fleet.pools().iter().map(of_pool).collect();
    let mut shown = stats.total(None).shown();
    shown["since_unix_s"] = stats.since().into();
    shown["pools"] = pools.into();
    shown
}

pub(super) fn config(control: &dyn Control) -> Result<Value, ApiError> {
    shown(&*control.state().config).map_err(|error| internal(&error.to_string()))
}

/// Changes that are in effect no more, the newest first.
pub(super) fn dropped(control: &dyn Control) -> Value {
    let aside = control.state().aside;
    json!({ "dropped": aside.newest().collect::<Vec<_>>() })
}

pub(super) fn routing_list(control: &dyn Control) -> Value {
    let (fleet, state) = (control.fleet(), control.state());
    let set = fleet.pools().iter().filter_map(|pool| views::routing(pool.model(), &state));
    json!({ "routing": set.collect::<Vec<Value>>() })
}

pub(super) fn routing(
    control: &dyn Control,
    model: &str,
    tenant: Option<&str>,
) -> Result<Value, ApiError> {
    check_tenant(tenant)?;
    pool_place(control, model)?;
    let state: State = control.state();
    let none = || ApiError::not_found(format!("`{model}` has no routing settings"));
    views::routing(model, &state).ok_or_else(none)
}

pub(super) async fn routing_stats(
    control: &dyn Control,
    model: &str,
    tenant: Option<&str>,
) -> Result<Value, ApiError> {
    check_tenant(tenant)?;
    pool_place(control, model)?;
    let (recent, pool) = (control.recent(), model.to_owned());
    let stats = added_up(move || recent.stats().total(Some(&pool)).routing_stats()).await?;
    Ok(json!({ "config": views::routing(model, &control.state()), "stats": stats }))
}
