//! What pools, endpoints and caches look like in JSON.

mod parity;

use kvasir_config::{DEFAULT_TENANT, DisaggregationConfig, EndpointConfig, EngineUrl, PoolConfig};
use kvasir_fleet::{Endpoint, EndpointView, Fleet, Pool, StreamView};
use kvasir_inventory::BlockSample;
use serde_json::{Value, json};

pub(crate) use self::parity::{of_gateway, parity};
use crate::control::State;

/// Host and port of an endpoint that is named by them, by its URL, or by either with `#rank`; what can
/// be none of them stays as it is.
pub(crate) fn authority_of(name: &str) -> String {
    let name = name.split('#').next().unwrap_or_default();
    let with_scheme =
        || if name.contains("://") { name.to_owned() } else { format!("http://{name}") };
    let url: Result<EngineUrl, String> = with_scheme().parse();
    url.map_or_else(|_| name.to_owned(), |url| url.authority().to_string())
}

/// Whether an endpoint is named so.
pub(crate) fn is_named(endpoint: &Endpoint, name: &str) -> bool {
    let rank = name.split_once('#').map(|(_, rank)| rank);
    let is_rank = rank.is_none_or(|rank| endpoint.rank().is_some_and(|r| r.to_string() == rank));
    is_rank && endpoint.authority().as_str() == authority_of(name)
}

fn pool_config<'a>(model: &str, state: &'a State) -> Option<&'a PoolConfig> {
    state.config.pools.iter().find(|pool| pool.model == model)
}

/// A pool with its endpoints.
pub(crate) fn pool(pool: &Pool, state: &State) -> Value {
    let model = pool.model();
    let (overlay, config) = (&state.overlay, pool_config(model, state));
    let ready = pool.is_ready();
    let members = pool.members();
    let endpoints: Vec<Value> =
        members.iter().map(|member| endpoint(pool, member, state)).collect();
    json!({
        "model": model,
        "aliases": config.map_or(&[][..], |config| &config.aliases),
        "policy": pool.policy(),
        "splits": pool.split().is_some(),
        "warnings": warnings(pool),
        "ready": ready,
        "why_not_ready": (!ready).then(|| pool.why_none(model)),
        "origin": if overlay.made_pool(model) { "admin" } else { "file" },
        "patched": overlay.patched_pool(model),
        "ignored": overlay.ignored_pool(model),
        "endpoints": endpoints,
        "routing": routing(model, state),
    })
}

/// What to know of how a pool is made up.
fn warnings(pool: &Pool) -> Vec<&'static str> {
    pool.split_state().warning().into_iter().collect()
}

/// The warnings of all pools, with their names: a change to an engine can concern any.
pub(crate) fn all_warnings(fleet: &Fleet) -> Vec<String> {
    let named = |pool: &std::sync::Arc<Pool>| {
        let model = pool.model().to_owned();
        warnings(pool).into_iter().map(move |why| format!("pool `{model}`: {why}"))
    };
    fleet.pools().iter().flat_map(named).collect()
}

/// An endpoint as one pool has it.
pub(crate) fn endpoint(pool: &Pool, endpoint: &Endpoint, state: &State) -> Value {
    let view = endpoint.view();
    let (model, authority) = (pool.model(), endpoint.authority());
    let config = pool_config(model, state).and_then(|pool| of_engine(pool, authority.as_str()));
    let overlay = &state.overlay;
    let why = pool.exclusion(endpoint, model);
    let card = view.card.as_deref();
    let served = card.and_then(|card| card.models.first()).map(|served| served.id.as_str());
    let made = overlay.made_endpoint(model, authority.as_str());
    let EndpointView { blocks, bytes, trust, .. } = &view;
    let tiers = EndpointView::tiers().into_iter().zip(blocks);
    let tiers: serde_json::Map<String, Value> =
        tiers.map(|(tier, blocks)| (tier.to_owned(), (*blocks).into())).collect();
    json!({
        "name": endpoint.name(),
        "url": endpoint.url(),
        "rank": endpoint.rank(),
        "state": endpoint.state().as_str(),
        "role": endpoint.role().as_str(),
        "weight": view.weight,
        "advised": {
            "weight_percent": view.advice.percent,
            "state": view.advice.state.as_str(),
            "effective_weight": view.effective_weight,
        },
        "group": config.and_then(|config| config.group.as_deref()),
        "eligible": why.is_none() && view.up,
        "why_not": match &why {
            Some(kvasir_fleet::Exclusion::Unreachable(why)) => Some(format!("unreachable: {why}")),
            Some(why) => Some(why.as_str().to_owned()),
            None => (!view.up).then(|| "no_answer_yet".to_owned()),
        },
        "up": view.up,
        "breaker": view.breaker,
        "in_flight": view.in_flight,
        "queued_prefill_tokens": view.queued_prefill_tokens,
        "waiting": view.waiting,
        "running": view.running,
        "kv_usage": view.kv_usage,
        "blocks": view.all_blocks(),
        "blocks_by_tier": tiers,
        "bytes": bytes,
        "trust": trust.state(),
        "trust_reason": trust.reason(),
        "streams": view.streams.iter().map(stream).collect::<Vec<Value>>(),
        "rates": {
            "prefill_tokens_per_s": view.prefill_rate,
            "transfer_tokens_per_s": view.transfer_rate,
        },
        "engine": {
            "kind": card.map(|card| card.kind.as_str()),
            "version": card.and_then(|card| card.version.as_deref()),
            "model": served,
            "block_size": view.block_size,
            "prefix_caching": card.and_then(|card| card.prefix_caching),
        },
        "origin": if made { "admin" } else { "file" },
        "patched": overlay.patched_endpoint(model, authority.as_str()),
        "ignored": overlay.ignored_endpoint(model, authority.as_str()),
    })
}

fn of_engine<'a>(pool: &'a PoolConfig, authority: &str) -> Option<&'a EndpointConfig> {
    pool.endpoints.iter().find(|endpoint| endpoint.url.authority().as_str() == authority)
}

fn stream(stream: &StreamView) -> Value {
    json!({
        "rank": stream.rank,
        "trust": stream.trust.state(),
        "reason": stream.trust.reason(),
        "last_sequence": stream.last_sequence.map(|number| number.to_string()),
        "last_event_age_s": stream.last_event_age_s,
        "batches": stream.batches,
        "events": stream.events,
        "gaps": stream.gaps,
        "replays": stream.replays,
        "replay_failures": stream.replay_failures,
        "restarts": stream.restarts,
        "disconnects": stream.disconnects,
        "schema_errors": stream.schema_errors,
        "first_schema_error": stream.first_schema_error,
        "orphan_blocks": stream.orphans,
        "blocks_left_out": stream.left_out,
        "blocks_given_up": stream.given_up,
        "hash_contract": stream.hash_contract.to_string(),
    })
}

/// How much of all caches is known.
pub(crate) fn inventory(fleet: &Fleet) -> Value {
    let whole = fleet.inventory_view();
    let mut blocks = 0;
    let endpoints: Vec<Value> = fleet
        .endpoints()
        .iter()
        .map(|endpoint| {
            let view = endpoint.view();
            blocks += view.all_blocks();
            json!({
                "name": endpoint.name(),
                "blocks": view.all_blocks(),
                "bytes": view.bytes,
                "trust": view.trust.state(),
                "trust_reason": view.trust.reason(),
            })
        })
        .collect();
    json!({
        "blocks": blocks,
        "bytes": whole.bytes,
        "budget_bytes": whole.budget_bytes,
        "endpoints": endpoints,
    })
}

/// Some blocks of an endpoint.
pub(crate) fn samples(endpoint: &Endpoint, limit: usize) -> Value {
    let view = endpoint.view();
    let shown = |(rank, block): (u32, BlockSample)| {
        let BlockSample { key, depth, tiers } = block;
        let tiers: Vec<&str> = tiers.into_iter().map(kvasir_inventory::Tier::as_str).collect();
        json!({ "rank": rank, "key": format!("{:016x}", key.0), "depth": depth, "tiers": tiers })
    };
    let samples: Vec<Value> = endpoint.sample_blocks(limit).into_iter().map(shown).collect();
    json!({
        "name": endpoint.name(),
        "trust": view.trust.state(),
        "trust_reason": view.trust.reason(),
        "block_size": view.block_size,
        "blocks": view.all_blocks(),
        "samples": samples,
    })
}

/// A model's routing settings, if it has some.
pub(crate) fn routing(model: &str, state: &State) -> Option<Value> {
    let routing = state.overlay.routing(model)?;
    let splits: Option<DisaggregationConfig> =
        pool_config(model, state).and_then(PoolConfig::splits);
    Some(json!({
        "model": model,
        "tenant": DEFAULT_TENANT,
        "mode": routing.mode.as_str(),
        "slo_latency_ms": routing.slo_latency_ms,
        "disaggregate": splits.is_some(),
        "prefill_pool": routing.prefill_pool,
        "decode_pool": routing.decode_pool,
        "updated_at": routing.updated_at,
    }))
}

#[cfg(test)]
mod tests {
    use super::authority_of;

    #[test]
    fn endpoints_are_named_in_several_ways() {
        for name in [
            "h:80",
            "http://h:80",
            "https://h:80/",
            "h:80#1",
            "http://h:80#1",
            "HTTP://H:80",
            "http://h:080",
        ] {
            assert_eq!(authority_of(name), "h:80", "{name}");
        }
        assert_eq!(authority_of("no engine"), "no engine");
    }
}
