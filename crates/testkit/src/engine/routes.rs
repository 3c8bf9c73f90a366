//! The built-in pages of an engine: health, version, models, metrics, event sources.

use super::config::Model;
use super::metrics::Page;
use super::reply::Reply;
use super::state::State;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

/// Whether this path is a built-in page.
pub(super) fn is_info(path: &str) -> bool {
    matches!(
        path,
        "/health"
            | "/ping"
            | "/version"
            | "/v1/models"
            | "/metrics"
            | "/kv_event_sources"
            | "/reset_prefix_cache"
            | "/kv_cache_events"
            | "/server_info"
            | "/get_server_info"
            | "/props"
    )
}

/// Where an engine tells tokens.
pub(super) const TOKENIZE: &str = "/tokenize";

/// Whether this is a gateway's own question about tokens, which is no client's request.
pub(super) fn is_parity_question(path: &str, headers: &HeaderMap) -> bool {
    let agent = headers.get(http::header::USER_AGENT);
    path == TOKENIZE && agent.is_some_and(|agent| agent == "kvasir-token-parity")
}

/// The answer to such a question, by the engine's tokenizer where it has one.
pub(super) fn tokens(state: &State, body: &[u8]) -> Reply {
    let Some(tokenize) = &state.config.tokenize else { return not_found() };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    match tokenize(&body) {
        Some(ids) => Reply::Json(
            StatusCode::OK,
            json!({"count": ids.len(), "tokens": ids, "token_strs": null}),
        ),
        None => Reply::Json(StatusCode::BAD_REQUEST, json!({"error": {"message": "unknown"}})),
    }
}

/// The answer of a built-in page.
pub(super) fn info(state: &State, method: &Method, path: &str) -> Reply {
    match (method, path) {
        (&Method::POST, "/reset_prefix_cache") => {
            state.reset_cache();
            Reply::status(StatusCode::OK)
        }
        (&Method::POST, "/kv_cache_events") => match state.drain_cache_events() {
            Some(events) => Reply::Json(StatusCode::OK, Value::Array(events)),
            None => not_found(),
        },
        (_, "/kv_cache_events" | "/server_info" | "/get_server_info" | "/props") => not_found(),
        (&Method::GET, "/health" | "/ping") => Reply::status(StatusCode::OK),
        (&Method::GET, "/version") => {
            Reply::Json(StatusCode::OK, json!({"version": state.config.version}))
        }
        (&Method::GET, "/v1/models") => Reply::Json(StatusCode::OK, models(state)),
        (&Method::GET, "/metrics") => text(metrics(state)),
        (&Method::GET, "/kv_event_sources") => match &state.config.kv_event_sources {
            Some(sources) => Reply::Json(StatusCode::OK, sources.clone()),
            None => not_found(),
        },
        _ => Reply::Json(StatusCode::METHOD_NOT_ALLOWED, json!({"detail": "Method Not Allowed"})),
    }
}

fn not_found() -> Reply {
    Reply::Json(StatusCode::NOT_FOUND, json!({"detail": "Not Found"}))
}

fn models(state: &State) -> Value {
    let created = state.started_at() as u64;
    let entry = |m: &Model| {
        json!({"id": m.id, "object": "model", "created": created, "owned_by": "vllm",
            "root": m.root, "parent": m.parent, "max_model_len": m.max_model_len,
            "permission": []})
    };
    let data: Vec<Value> = state.config.models.iter().map(entry).collect();
    json!({"object": "list", "data": data})
}

fn metrics(state: &State) -> String {
    let load = state.load();
    let config = &state.config;
    let used = state.cached_blocks() as f64 / config.gpu_blocks.max(1) as f64;
    Page {
        model: config.models.first().map_or("", |m| m.id.as_str()),
        start_time: state.started_at(),
        running: load.running.unwrap_or(state.ledger.active() as u64),
        waiting: load.waiting,
        kv_usage: load.kv_usage.unwrap_or(used),
        asleep: load.asleep,
        counters: state.counters(),
        block_size: config.block_size,
        gpu_blocks: config.gpu_blocks,
    }
    .render()
}

fn text(body: String) -> Reply {
    let plain = HeaderValue::from_static("text/plain; version=1.0.0; charset=utf-8");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, plain)]);
    Reply::Status(StatusCode::OK, headers, Bytes::from(body))
}
