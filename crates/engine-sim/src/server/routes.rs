//! The paths of the server, other than generation.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Full;
use kvasir_kv_hash::vllm::Version;
use kvasir_prompt::Api;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::body::Payload;
use super::disagg::config::{EngineKind, PdRole};
use super::disagg::serve::serve;
use super::faults::milliseconds;
use super::generate::ask::{Fields, model, object};
use super::generate::generate;
use super::metrics::{Page, RankMetrics, render};
use super::publisher::{HIGH_WATER_MARK, MAX_QUEUE};
use super::refusal::{Refusal, json_response};
use super::state::{Order, State, mix};
use super::text::word;

/// A path that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Generate(Api),
    Tokenize,
    Detokenize,
    Models,
    /// `/health` and `/ping`.
    Health,
    Version,
    Load,
    EventSources,
    ResetPrefixCache,
    Metrics,
    SimFaults,
    SimRestart,
    SimState,
    /// One server fetches a prompt from another.
    KvPull,
    /// SGLang's page about itself.
    ServerInfo,
}

impl Route {
    /// The route of a path, and the path as vLLM's HTTP metrics name it; `None` for those vLLM
    /// leaves out.
    pub(super) fn of(path: &str, state: &State) -> Option<(Self, Option<&'static str>)> {
        Some(match path {
            "/v1/completions" => (Self::Generate(Api::Completions), Some("/v1/completions")),
            "/v1/chat/completions" => (Self::Generate(Api::Chat), Some("/v1/chat/completions")),
            "/tokenize" => (Self::Tokenize, Some("/tokenize")),
            "/detokenize" => (Self::Detokenize, Some("/detokenize")),
            "/v1/models" => (Self::Models, Some("/v1/models")),
            "/health" | "/ping" => (Self::Health, None),
            "/version" => (Self::Version, None),
            "/load" => (Self::Load, None),
            "/metrics" => (Self::Metrics, None),
            // Recorded for 0.32.0, and absent in 0.20.2.
            "/kv_event_sources"
                if state.config.kind == EngineKind::Vllm
                    && state.version >= Version::release(0, 32, 0) =>
            {
                (Self::EventSources, Some("/kv_event_sources"))
            }
            "/reset_prefix_cache" => (Self::ResetPrefixCache, Some("/reset_prefix_cache")),
            "/server_info" | "/get_server_info" if state.config.kind == EngineKind::Sglang => {
                (Self::ServerInfo, None)
            }
            "/sim/kv/pull" if state.config.pd.role.is_some() => (Self::KvPull, None),
            "/sim/faults" if state.config.faults => (Self::SimFaults, None),
            "/sim/restart" if state.config.faults => (Self::SimRestart, None),
            "/sim/state" if state.config.faults => (Self::SimState, None),
            _ => return None,
        })
    }

    /// Whether the path takes this method.
    fn takes(self, method: &Method) -> bool {
        match self {
            Self::Models
            | Self::Version
            | Self::Load
            | Self::EventSources
            | Self::Metrics
            | Self::ServerInfo
            | Self::SimState => method == Method::GET,
            Self::Health | Self::SimFaults => method == Method::GET || method == Method::POST,
            Self::Generate(_)
            | Self::Tokenize
            | Self::Detokenize
            | Self::ResetPrefixCache
            | Self::KvPull
            | Self::SimRestart => method == Method::POST,
        }
    }
}

/// A request whose body has been read.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) method: &'a Method,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Bytes,
}

/// Answers a request.
pub(super) async fn answer(
    state: &Arc<State>,
    route: Route,
    request: Received<'_>,
) -> Response<Payload> {
    if !route.takes(request.method) {
        return detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    }
    let answered = match route {
        Route::Generate(api) => generate(state, api, request.headers, request.body).await,
        other => page(state, other, request).await.map(|page| page.map(Payload::full)),
    };
    answered.unwrap_or_else(|refusal| refusal.response().map(Payload::full))
}

/// What a path gets that is not served.
pub(super) fn not_found() -> Response<Payload> {
    detail(StatusCode::NOT_FOUND, "Not Found")
}

fn detail(status: StatusCode, what: &str) -> Response<Payload> {
    json_response(status, &json!({ "detail": what })).map(Payload::full)
}

type FullPage = Response<Full<Bytes>>;

async fn page(
    state: &Arc<State>,
    route: Route,
    request: Received<'_>,
) -> Result<FullPage, Refusal> {
    let ok = |body: &Value| Ok(json_response(StatusCode::OK, body));
    match route {
        Route::Generate(_) | Route::Health => Ok(Response::new(Full::default())),
        Route::Tokenize => ok(&tokenize(state, request.body).await?),
        Route::Detokenize => ok(&detokenize(state, &request.body)?),
        Route::Models => ok(&models(state)),
        Route::Version => ok(&json!({"version": state.config.version})),
        // It counts only with a flag of vLLM's that is off by default.
        Route::Load => ok(&json!({"server_load": 0})),
        Route::EventSources => ok(&event_sources(state)),
        Route::ResetPrefixCache => reset(state, request.query).await,
        Route::Metrics => Ok(metrics(state)),
        Route::SimFaults if request.method == Method::GET => ok(&state.faults.to_json()),
        Route::SimFaults => {
            let wanted = object(&request.body)?;
            let wanted = wanted.as_object().cloned().unwrap_or_default();
            state.faults.set(&wanted).map_err(Refusal::bad)?;
            ok(&state.faults.to_json())
        }
        Route::SimRestart => restart(state, &request.body),
        Route::KvPull => serve(state, &request.body).await,
        Route::ServerInfo => ok(&server_info(state)),
        Route::SimState => ok(&sim_state(state).await),
    }
}

async fn tokenize(state: &State, bytes: Bytes) -> Result<Value, Refusal> {
    let body = object(&bytes)?;
    model(state, &Fields(&body))?;
    let api = if body.get("messages").is_some() { Api::Chat } else { Api::Completions };
    if api == Api::Completions && !body["prompt"].is_string() {
        return Err(Refusal::bad("`prompt` must be a string.").of("prompt"));
    }
    let tokens = state.text.prompts(api, bytes).await?.pop().unwrap_or_default();
    Ok(json!({"count": tokens.len(), "max_model_len": state.max_model_len(), "tokens": tokens,
        "token_strs": null}))
}

fn detokenize(state: &State, bytes: &[u8]) -> Result<Value, Refusal> {
    let body = object(bytes)?;
    model(state, &Fields(&body))?;
    let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    let tokens =
        body["tokens"].as_array().and_then(|ids| ids.iter().map(id).collect::<Option<Vec<u32>>>());
    let tokens =
        tokens.ok_or_else(|| Refusal::bad("`tokens` must be a list of token ids.").of("tokens"))?;
    Ok(json!({"prompt": tokens.into_iter().map(word).collect::<String>()}))
}

fn models(state: &State) -> Value {
    let created = state.life.lock().started as u64;
    let config = &state.config;
    let root = config.root.as_ref().map(|root| root.to_string_lossy().into_owned());
    let entry = |number: u64,
                 id: &str,
                 root: &str,
                 parent: Option<&str>,
                 longest: Option<usize>| {
        let permission = json!({"id": format!("modelperm-{:016x}", mix(config.seed, !number)),
            "object": "model_permission", "created": created, "allow_create_engine": false,
            "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false,
            "allow_view": true, "allow_fine_tuning": false, "organization": "*", "group": null,
            "is_blocking": false});
        json!({"id": id, "object": "model", "created": created, "owned_by": config.kind.owner(), "root": root,
            "parent": parent, "max_model_len": longest, "permission": [permission]})
    };
    // vLLM's `root` is what it was started with: a path, or the model's name.
    let root = root.as_deref().unwrap_or(&config.model);
    let mut data = vec![entry(0, &config.model, root, None, Some(state.max_model_len()))];
    for (number, (name, path)) in (1..).zip(&config.adapters) {
        data.push(entry(number, name, path, Some(&config.model), None));
    }
    json!({"object": "list", "data": data})
}

/// No events: those published here are vLLM's.
fn server_info(state: &State) -> Value {
    let mode = match state.config.pd.role {
        Some(PdRole::Prefill) => "prefill",
        Some(PdRole::Decode) => "decode",
        _ => "null",
    };
    json!({"version": state.config.version, "page_size": state.engine.block_size,
        "dp_size": state.config.ranks, "kv_events_config": null, "disaggregation_mode": mode,
        "disaggregation_bootstrap_port": state.address.port(),
        "disable_radix_cache": !state.engine.enable_prefix_caching})
}

/// By rank, with the ports that were bound.
fn event_sources(state: &State) -> Value {
    let mut sources = serde_json::Map::new();
    for rank in 0..state.config.ranks {
        let of_rank = |base: &Option<_>| {
            base.as_ref().and_then(|base: &super::address::Base| base.of_rank(rank))
        };
        let Some(endpoint) = of_rank(&state.events) else { continue };
        let source = json!({"enable_kv_cache_events": true, "publisher": "zmq",
            "endpoint": endpoint, "replay_endpoint": of_rank(&state.replay),
            "buffer_steps": state.config.buffer_steps, "hwm": HIGH_WATER_MARK,
            "max_queue_size": MAX_QUEUE, "topic": state.config.topic});
        sources.insert(rank.to_string(), source);
    }
    Value::Object(sources)
}

/// Refused while anything is running, unless the query says otherwise. The event comes with the
/// next step, as in vLLM.
async fn reset(state: &State, query: &str) -> Result<FullPage, Refusal> {
    let running_too = query.split('&').any(|pair| {
        pair.split_once('=').is_some_and(|(key, value)| {
            key == "reset_running_requests" && matches!(value, "true" | "True" | "1")
        })
    });
    let answers: Vec<_> = state.ranks.iter().map(|rank| rank.reset(running_too)).collect();
    let mut success = true;
    for answer in answers {
        success &= answer.await.unwrap_or(false);
    }
    if state.is_modern() {
        return Ok(json_response(StatusCode::OK, &json!({ "success": success })));
    }
    Ok(Response::new(Full::default()))
}

fn metrics(state: &State) -> FullPage {
    let ranks: Vec<RankMetrics> = state.ranks.iter().map(|rank| rank.metrics().clone()).collect();
    let life = state.life.lock().clone();
    let text = render(&Page {
        model: &state.config.model,
        started: life.started,
        engine: &state.engine,
        hash_algorithm: &state.config.hash_algorithm,
        has_adapters: !state.config.adapters.is_empty(),
        ranks: &ranks,
        http: &life.http,
        kind: state.config.kind,
        disagg: state.config.pd.role.map(|_| state.disagg.counts()),
    });
    let mut response = Response::new(Full::from(text));
    let kind = HeaderValue::from_static("text/plain; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Answers before it happens: the connection does not survive it.
fn restart(state: &State, bytes: &[u8]) -> Result<FullPage, Refusal> {
    let body = if bytes.is_empty() { json!({}) } else { object(bytes)? };
    let mut down = Duration::ZERO;
    for (key, value) in body.as_object().into_iter().flatten() {
        match key.as_str() {
            "down_ms" => down = milliseconds(&value.to_string()).map_err(Refusal::bad)?,
            _ => return Err(Refusal::bad(format!("unknown setting `{key}`"))),
        }
    }
    let (done, _) = oneshot::channel();
    let order = Order::Restart { down, done };
    let queued = state.orders.upgrade().is_some_and(|orders| orders.try_send(order).is_ok());
    if !queued {
        return Err(Refusal::busy());
    }
    Ok(json_response(StatusCode::ACCEPTED, &json!({"restarting": true})))
}

/// Hashes are decimal strings: JSON numbers do not hold 64 bits everywhere.
async fn sim_state(state: &State) -> Value {
    let mut ranks = Vec::new();
    for rank in &state.ranks {
        let mut cached = rank.cached().await.unwrap_or_default();
        cached.sort_unstable();
        let blocks: Vec<String> =
            cached.iter().map(|(hash, _)| hash.to_u64().to_string()).collect();
        let metrics = rank.metrics().clone();
        let stats = metrics.stats;
        ranks.push(json!({"running": stats.running, "waiting": stats.waiting,
            "used_blocks": stats.used_blocks, "usable_blocks": stats.usable_blocks,
            "prefix_queries": stats.prefix_queries, "prefix_hits": stats.prefix_hits,
            "external_queries": stats.external_queries, "external_hits": stats.external_hits,
            "held_requests": stats.held_requests, "preemptions": stats.preemptions, "prompt_tokens": stats.prompt_tokens,
            "generation_tokens": stats.generation_tokens, "finished": stats.finished,
            "steps": stats.steps, "events_lost": metrics.events_lost, "cached_blocks": blocks}));
    }
    let started = state.life.lock().started;
    let pd = state.disagg.counts();
    let pd = json!({"leases": pd.leases, "rooms": pd.rooms, "pulls": pd.pulls,
        "expired": pd.expired, "failed": pd.failed, "pulled_tokens": pd.pulled_tokens});
    json!({"process_start_time_seconds": started, "faults": state.faults.to_json(), "pd": pd,
        "ranks": ranks})
}
