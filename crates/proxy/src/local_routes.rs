//! What is answered from own state: models, health, readiness, metrics.

use std::iter;

use http::{HeaderValue, Response, StatusCode, header};
use kvasir_fleet::{Fleet, ParityPart, Pool, TokenState};
use serde_json::{Value, json};

use crate::relay::{AnswerBody, whole};

/// `GET /v1/models`: every pool's model, its other names and the adapters its engines have loaded.
pub(crate) fn models(fleet: &Fleet) -> Response<AnswerBody> {
    let data: Vec<Value> = fleet.pools().iter().flat_map(|pool| pool_models(pool)).collect();
    json_answer(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// `GET /health`: this process runs.
pub(crate) fn health() -> Response<AnswerBody> {
    json_answer(StatusCode::OK, &json!({ "status": "ok" }))
}

/// `GET /readyz`: some pool can take a request, and the gateway is not about to stop. One engine more
/// or less makes no difference, nor does a pool that has none: it is named.
pub(crate) fn ready(fleet: &Fleet, stopping: bool) -> Response<AnswerBody> {
    let pools: serde_json::Map<String, Value> =
        fleet.pools().iter().map(|pool| (pool.model().to_owned(), pool_state(pool))).collect();
    let without = fleet.pools().iter().filter(|pool| !pool.is_ready());
    let without: Vec<&str> = without.map(|pool| pool.model()).collect();
    let ready = !stopping && without.len() < fleet.pools().len();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut state = json!({ "ready": ready, "without_endpoint": without, "pools": pools });
    if stopping {
        state["stopping"] = true.into();
    }
    json_answer(status, &state)
}

/// `GET /metrics`.
pub(crate) fn metrics(page: String) -> Response<AnswerBody> {
    let mut response = Response::new(whole(page));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// `OPTIONS`: which methods a path has. Nothing is said of other origins: browsers are no clients
/// here.
pub(crate) fn options(allow: &'static str) -> Response<AnswerBody> {
    let mut response = Response::new(whole(String::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn pool_models(pool: &Pool) -> Vec<Value> {
    let cards: Vec<_> = pool.members().iter().filter_map(|member| member.card()).collect();
    let called = |name: &str| cards.iter().flat_map(|card| &card.models).find(|m| m.id == name);
    let base = called(pool.model());
    let aliases = pool.aliases().iter().map(String::as_str);
    let entry = |name| {
        let told = called(name).or(base);
        json!({
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "kvasir",
            "root": told.and_then(|model| model.root.clone()),
            "parent": null,
            "max_model_len": told.and_then(|model| model.max_model_len),
        })
    };
    let mut entries: Vec<Value> = iter::once(pool.model()).chain(aliases).map(entry).collect();
    let mut names: Vec<&str> =
        cards.iter().flat_map(|card| &card.adapters).map(|a| a.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    entries.extend(names.into_iter().map(|name| {
        json!({
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "kvasir",
            "root": null,
            "parent": pool.model(),
            "max_model_len": null,
        })
    }));
    entries
}

fn pool_state(pool: &Pool) -> Value {
    let endpoints: serde_json::Map<String, Value> = pool
        .members()
        .iter()
        .map(|member| {
            let state = match pool.exclusion(member, pool.model()) {
                Some(why) => why.as_str(),
                None if member.has_answered() => "ready",
                None => "no_answer_yet",
            };
            (member.name(), state.into())
        })
        .collect();
    let parity: serde_json::Map<String, Value> = ParityPart::ALL
        .iter()
        .map(|part| (part.as_str().to_owned(), pool.token_oracle().state(*part).as_str().into()))
        .collect();
    let ready = pool.is_ready();
    let mut state = json!({ "ready": ready, "endpoints": endpoints, "tokenizer_parity": parity });
    if let Some(parity) = parity_state(pool) {
        state["parity"] = parity;
    }
    state
}

/// Where engines and predictions differ, with an example each; `None` where nothing was seen.
fn parity_state(pool: &Pool) -> Option<Value> {
    let members = pool.members();
    let hits = members.iter().filter_map(|member| Some((member.name(), member.over_predicted()?)));
    let hits: serde_json::Map<String, Value> = hits.collect();
    let states = pool.token_parity().states();
    let tokens = states.iter().filter(|state| state.example.is_some()).map(TokenState::shown);
    let tokens: Vec<Value> = tokens.collect();
    let seen = !hits.is_empty() || !tokens.is_empty();
    seen.then(|| json!({ "over_predicted": hits, "token_counts": tokens }))
}

fn json_answer(status: StatusCode, value: &Value) -> Response<AnswerBody> {
    let mut response = Response::new(whole(value.to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
