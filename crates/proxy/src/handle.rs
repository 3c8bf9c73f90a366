//! The life of a request.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::Either;
use hyper::body::Incoming;
use kvasir_fleet::{Chosen, Decision, Endpoint, Evidence, Fleet, PromptTokens, Resolved};
use kvasir_prompt::{Api, Envelope};

use crate::access_log::AccessLog;
use crate::app::App;
use crate::forward::{Failure, Started, attempt};
use crate::prompt::{Known, tokenise};
use crate::refusal::Refusal;
use crate::relay::{AnswerBody, Relay};
use crate::route::{Route, route};
use crate::{headers, own, request_body};

/// Engines that may get one request, the first included. Those that cannot be connected to got
/// nothing of it and do not count.
const MAX_ATTEMPTS: u32 = 3;

/// Answers one request.
pub(crate) async fn handle(app: Arc<App>, request: Request<Incoming>) -> Response<AnswerBody> {
    let (parts, body) = request.into_parts();
    let route = route(&parts.method, parts.uri.path(), &app.settings.forward_paths);
    match route {
        Route::Models => return own::models(&app.fleet()),
        Route::Health => return own::health(),
        Route::Ready => return own::ready(&app.fleet()),
        Route::Metrics => return own::metrics(app.metrics()),
        Route::Api(_) | Route::Forward | Route::WrongMethod { .. } | Route::Unknown => {}
    }
    let mut log = AccessLog::begin(parts.method.clone(), parts.uri.path(), &parts.headers);
    let planned = match route {
        Route::Api(api) => plan(&app, &parts, body, Some(api), &mut log).await,
        Route::Forward => plan(&app, &parts, body, None, &mut log).await,
        Route::WrongMethod { allow } => {
            request_body::discard(body, waits(&parts.headers)).await;
            Err(Refusal::WrongMethod { method: parts.method.to_string(), allow })
        }
        _ => {
            request_body::discard(body, waits(&parts.headers)).await;
            Err(Refusal::NoSuchPath(parts.uri.path().to_owned()))
        }
    };
    let refusal = match planned {
        Ok(plan) => match try_engines(&app, &parts, &plan, &mut log).await {
            Ok((started, chosen)) => return answer(&app, started, chosen, log),
            Err(refusal) => refusal,
        },
        Err(refusal) => refusal,
    };
    log.refused(&refusal);
    refusal.response()
}

/// Everything known before an engine is chosen.
struct Plan {
    resolved: Resolved,
    model: String,
    body: Bytes,
    evidence: Evidence,
}

/// Reads the request and gathers what a choice needs. `api` is `None` for paths forwarded as they
/// are.
async fn plan(
    app: &App,
    parts: &Parts,
    body: Incoming,
    api: Option<Api>,
    log: &mut AccessLog,
) -> Result<Plan, Refusal> {
    let limit = app.settings.max_body_bytes;
    let body = request_body::read(body, limit, waits(&parts.headers)).await?;
    log.bytes_in = body.len() as u64;
    let envelope = match api {
        _ if !is_json(&parts.headers) => Envelope::default(),
        Some(_) => Envelope::parse(&body).map_err(|e| Refusal::Malformed(e.to_string()))?,
        // What is sent to other paths may be anything.
        None => Envelope::parse(&body).unwrap_or_default(),
    };
    log.stream = envelope.stream;
    let fleet = app.fleet();
    let (resolved, model) = resolve(&fleet, &envelope, &parts.headers)?;
    log.model = Some(model.clone());
    let known = match api {
        Some(api) if is_json(&parts.headers) => {
            tokenise(&resolved.pool, &app.tokenizer_permits, api, &body).await
        }
        _ => Known::only_size(body.len(), "not_json"),
    };
    log.tokens = known.tokens;
    resolved.pool.note_prompt(known.count);
    let evidence = resolved.pool.evidence(&PromptTokens {
        prompts: known.prompts.as_deref(),
        count: known.count,
        adapter: resolved.adapter.as_deref(),
        salt: envelope.cache_salt.as_deref(),
    });
    Ok(Plan { resolved, model, body, evidence })
}

/// The pool: by the body's `model`, else by the `x-model` header, else the only one.
fn resolve(
    fleet: &Fleet,
    envelope: &Envelope,
    headers: &HeaderMap,
) -> Result<(Resolved, String), Refusal> {
    if fleet.pools().is_empty() {
        return Err(Refusal::NotReady);
    }
    let by_header = || headers.get("x-model").and_then(|value| value.to_str().ok());
    // An engine takes an empty name for its own model.
    let by_body = envelope.model.as_deref().filter(|model| !model.is_empty());
    let Some(model) = by_body.or_else(by_header) else {
        let pool = fleet.only_pool().ok_or(Refusal::NoModel)?;
        let resolved = Resolved { pool: Arc::clone(pool), adapter: None };
        return Ok((resolved, pool.model().to_owned()));
    };
    let resolved = fleet.resolve(model).ok_or_else(|| Refusal::UnknownModel(model.to_owned()))?;
    Ok((resolved, model.to_owned()))
}

/// Chooses and tries, until an engine begins to answer. No endpoint is tried twice while there is
/// another; a lone one gets a second chance only where the connection broke, since a kept-alive
/// connection may have been closed under us.
async fn try_engines(
    app: &App,
    parts: &Parts,
    plan: &Plan,
    log: &mut AccessLog,
) -> Result<(Started, Chosen), Refusal> {
    let pool = &plan.resolved.pool;
    let mut tried: Vec<Arc<Endpoint>> = Vec::new();
    let mut last: Option<Failure> = None;
    let mut broke = 0;
    while broke < MAX_ATTEMPTS {
        let mut chosen = pool.choose(&plan.model, &plan.evidence, &tried);
        if chosen.is_none() && broke == 1 && matches!(last, Some(Failure::Broke(_))) {
            chosen = pool.choose(&plan.model, &plan.evidence, &[]);
        }
        let Some(chosen) = chosen else { break };
        log.attempts += 1;
        let endpoint = Arc::clone(chosen.reservation.endpoint());
        log.endpoint = Some(endpoint.url().to_owned());
        log.decision = Some(chosen.decision.clone());
        match attempt(app, pool, &endpoint, parts, &plan.body).await {
            Ok(started) => {
                endpoint.mark_reachable();
                return Ok((started, chosen));
            }
            Err(failure) => {
                tracing::warn!(
                    endpoint = endpoint.url(),
                    why = failure.why(),
                    "attempt failed before an answer began"
                );
                metrics::counter!("kvasir_failed_attempts_total",
                    "endpoint" => endpoint.url().to_owned(), "cause" => failure.as_str())
                .increment(1);
                match &failure {
                    Failure::Connect(why) => endpoint.mark_unreachable(why),
                    Failure::Broke(_) => broke += 1,
                }
                tried.push(endpoint);
                last = Some(failure);
            }
        }
    }
    Err(out_of_engines(last.as_ref(), plan))
}

fn out_of_engines(last: Option<&Failure>, plan: &Plan) -> Refusal {
    let model = plan.model.clone();
    match last {
        Some(Failure::Broke(why)) => Refusal::EngineBroke { model, why: why.clone() },
        Some(Failure::Connect(why)) => Refusal::NoEndpoint { model, why: why.clone() },
        None => {
            let why = "no engine serves it now".to_owned();
            Refusal::NoEndpoint { model, why }
        }
    }
}

/// The engine's answer, on its way.
fn answer(app: &App, started: Started, chosen: Chosen, mut log: AccessLog) -> Response<AnswerBody> {
    let Started { mut head, first, rest } = started;
    let Chosen { mut reservation, decision } = chosen;
    headers::to_client(&mut head.headers);
    let is_stream = head
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let first_data = reservation.first_data(is_stream && head.status.is_success());
    log.first_data = Some(first_data);
    log.status = head.status.as_u16();
    if app.settings.decision_headers {
        let endpoint = reservation.endpoint().url();
        add_header(&mut head.headers, "x-kvasir-endpoint", endpoint);
        add_header(&mut head.headers, "x-kvasir-reason", &reason(&decision, log.tokens));
    }
    let relay = Relay::new(first, rest, reservation, log);
    Response::from_parts(head, Either::Right(Box::new(relay)))
}

/// The text of `x-kvasir-reason`.
fn reason(decision: &Decision, tokens: &str) -> String {
    let Decision { policy, reason, overlap, trust, prompt_tokens, .. } = decision;
    format!(
        "policy={policy}; reason={}; overlap={}; prompt={prompt_tokens}; tokens={tokens}; \
         trust={trust}",
        reason.as_str(),
        overlap.resident(),
    )
}

fn add_header(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Whether the client waits to be told to send its body.
fn waits(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// Whether the body is JSON that can be read: clients often leave the type out.
fn is_json(headers: &HeaderMap) -> bool {
    let plain = headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    plain
        && kind.is_none_or(|kind| !kind.starts_with(b"multipart/") && !kind.starts_with(b"audio/"))
}
