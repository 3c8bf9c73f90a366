//! The life of a request.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::Either;
use hyper::body::Incoming;
use kvasir_fleet::Decision;
use kvasir_prompt::Api;

use crate::access_log::AccessLog;
use crate::app::{App, Now};
use crate::attempts::{Answered, try_engines};
use crate::keys::Shown;
use crate::listen::Client;
use crate::moment::Awaited;
use crate::owners::Owner;
use crate::plan::{Plan, waits};
use crate::refusal::Refusal;
use crate::relay::{AnswerBody, Relay, Source, is_event_stream};
use crate::request_id::REQUEST_ID;
use crate::route::{Route, route};
use crate::spans::Step;
use crate::{debug_token, headers, incoming, keys, local_routes, request_body, request_id};

/// Answers one request of `client`.
pub(crate) async fn handle(
    client: &Arc<Client>,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    let (mut parts, body) = request.into_parts();
    let id = request_id::of(&mut parts.headers);
    let ends_connection = incoming::ends_connection(&parts);
    let mut response = answer_to(client, parts, body, &id).await;
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if ends_connection {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn answer_to(
    client: &Arc<Client>,
    mut parts: Parts,
    body: Incoming,
    id: &HeaderValue,
) -> Response<AnswerBody> {
    let app = &client.app;
    let now = &*app.now();
    let route = route(&parts.method, parts.uri.path(), &now.settings.forward_paths);
    let admitted =
        incoming::read(&mut parts, client, now).and_then(|()| admit(now, &mut parts, route));
    if admitted.is_ok() {
        match route {
            Route::Models => return local_routes::models(&now.fleet),
            Route::Health => return local_routes::health(),
            Route::Ready => return local_routes::ready(&now.fleet, app.is_stopping()),
            Route::Metrics => return local_routes::metrics(app.metrics()),
            Route::Options { allow } => return local_routes::options(allow),
            Route::Api(_)
            | Route::Stored
            | Route::Forward
            | Route::WrongMethod { .. }
            | Route::Unknown => {}
        }
    }
    let debugs = debug_token::take_out(&mut parts.headers, &now.settings);
    let mut log = AccessLog::begin(parts.method.clone(), parts.uri.path(), id.clone());
    log.observer.clone_from(&app.observer);
    if let Some(spans) = &app.spans
        && admitted.is_ok()
    {
        let pattern = route.pattern(parts.uri.path());
        log.trace = spans.begin(&mut parts.headers, pattern, client.scheme);
    }
    let refused = match (admitted, route) {
        (Err(refusal), _) => Some(refusal),
        (Ok(()), Route::WrongMethod { allow }) => {
            Some(Refusal::WrongMethod { method: parts.method.to_string(), allow })
        }
        (Ok(()), Route::Unknown) => Some(Refusal::NoSuchPath(parts.uri.path().to_owned())),
        (Ok(()), _) => None,
    };
    let found = match refused {
        Some(refusal) => {
            request_body::discard(body, waits(&parts.headers));
            log.note(Step::Received);
            Err(refusal)
        }
        None => tokio::select! {
            biased;
            () = app.cut.wait() => Err(Refusal::Stopping),
            found = find_answer(app, now, &mut parts, body, route.api(), &mut log) => found,
        },
    };
    match found {
        Ok((plan, answered)) => {
            let told = answered.pool.decision_headers().unwrap_or(now.settings.decision_headers);
            answer(app, route, &plan, answered, log, told || debugs)
        }
        Err(refusal) => {
            log.refused(&refusal);
            refusal.response()
        }
    }
}

/// Reads the request, and has engines begin to answer it.
async fn find_answer(
    app: &App,
    now: &Now,
    parts: &mut Parts,
    body: Incoming,
    api: Option<Api>,
    log: &mut AccessLog,
) -> Result<(Plan, Answered), Refusal> {
    let plan = Plan::read(app, now, parts, body, api, log).await?;
    let answered = try_engines(app, now.settings.retries, parts, &plan, log).await?;
    Ok((plan, answered))
}

/// Lets a request in by its API key, where keys are asked for.
fn admit(now: &Now, parts: &mut Parts, route: Route) -> Result<(), Refusal> {
    let Some(keys) = now.settings.client_keys.as_ref().filter(|_| !route.is_open()) else {
        return Ok(());
    };
    keys.check(&parts.headers)
        .map_err(|shown| Refusal::Unauthorized { shown: shown == Shown::Unknown })?;
    keys::take_out(&mut parts.headers);
    Ok(())
}

/// The engine's answer, on its way; whether it `tells` how the engine was chosen.
fn answer(
    app: &App,
    route: Route,
    plan: &Plan,
    answered: Answered,
    mut log: AccessLog,
    tells: bool,
) -> Response<AnswerBody> {
    let Answered { mut head, first, rest, endpoint, pool, decision, mut reservation, ride } =
        answered;
    headers::to_client(&mut head.headers);
    let (is_stream, is_open) = (is_event_stream(&head), Source::is_open(&head));
    if let Some(reservation) = &mut reservation {
        if !head.status.is_success() {
            reservation.uncounted();
            reservation.not_computed();
        }
        reservation.first_data(is_stream && head.status.is_success());
    }
    log.first_data(is_stream);
    log.status = head.status.as_u16();
    if tells {
        add_header(&mut head.headers, "x-kvasir-endpoint", endpoint.url());
        if let Some(rank) = endpoint.rank() {
            add_header(&mut head.headers, "x-kvasir-rank", &rank.to_string());
        }
        if let Some(prefill) = log.prefill_endpoint.as_ref().filter(|_| log.is_split()) {
            add_header(&mut head.headers, "x-kvasir-prefill-endpoint", prefill);
        }
        add_header(&mut head.headers, "x-kvasir-reason", &reason(&decision, &log));
    }
    // The engine may keep what it answers.
    let stores = matches!(route, Route::Api(Api::Responses)) && head.status.is_success();
    let stores = stores.then(|| {
        let owner = Owner { model: pool.model().into(), url: endpoint.url().into() };
        (Arc::clone(&app.owners), owner)
    });
    let api = if route == Route::Stored { Some(Api::Responses) } else { route.api() };
    let source = Source { first, rest, api, is_open, ride };
    let judge = plan.judge.clone();
    let cut = Awaited::new(Arc::clone(&app.cut));
    let relay = Relay::new(source, reservation, pool.timeouts(), stores, judge, cut, log);
    Response::from_parts(head, Either::Right(Box::new(relay)))
}

/// The text of `x-kvasir-reason`.
fn reason(decision: &Decision, log: &AccessLog) -> String {
    let AccessLog { level, tokens, waited, .. } = log;
    let Decision { id, policy, reason, detail, overlap, pending, trust, prompt_tokens, .. } =
        decision;
    let id = id.map(|id| format!("; decision={id}")).unwrap_or_default();
    let pending = if *pending > 0 { format!("; pending={pending}") } else { String::new() };
    let detail = if detail.is_empty() { String::new() } else { format!("; detail={detail}") };
    let miss = decision.misses().next().map(|(_, miss)| format!("; miss={miss}"));
    let miss = miss.unwrap_or_default();
    let waited = waited.map(|waited| format!("; waited_ms={}", waited.as_millis()));
    let waited = waited.unwrap_or_default();
    let plan = log.plan.map(|plan| format!("; plan={plan}")).unwrap_or_default();
    let decode_by = log.decode_by(decision).map(|by| format!("; decode_by={by}"));
    let decode_by = decode_by.unwrap_or_default();
    let prefill = log
        .prefill_side(decision)
        .map(|side| format!("; prefill_overlap={}", side.overlap.resident()));
    let prefill = prefill.unwrap_or_default();
    format!(
        "policy={policy}; reason={}{detail}{miss}; overlap={}{pending}; prompt={prompt_tokens}; level={level}; \
         tokens={tokens}; trust={trust}{plan}{decode_by}{prefill}{id}{waited}",
        reason.as_str(),
        overlap.resident(),
    )
}

fn add_header(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
