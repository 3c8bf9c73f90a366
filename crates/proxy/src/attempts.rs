//! Which engines get a request, until one begins to answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::request::Parts;
use kvasir_fleet::{Chosen, Endpoint, Evidence};

use crate::access_log::AccessLog;
use crate::app::App;
use crate::forward::{Failure, Started, attempt};
use crate::plan::Plan;
use crate::refusal::Refusal;

/// Engines that may take one request and break off, the first included: a request that kills its
/// engine must not go through the whole pool. Engines that cannot be connected to got nothing of
/// it and do not count.
const MAX_BROKEN: u32 = 2;
/// A lone engine that breaks off this soon may just have closed an idle connection under us; later
/// it was at work on the request.
const SOON: Duration = Duration::from_secs(1);

/// Chooses and tries, until an engine begins to answer. No endpoint is tried twice while there is
/// another.
pub(crate) async fn try_engines(
    app: &App,
    parts: &Parts,
    plan: &Plan,
    log: &mut AccessLog,
) -> Result<(Started, Chosen), Refusal> {
    let pool = &plan.resolved.pool;
    let mut tried: Vec<Arc<Endpoint>> = Vec::new();
    let mut failures = Failures::default();
    loop {
        let evidence = plan.evidence();
        let mut chosen =
            owner(plan, &evidence, &tried).or_else(|| pool.choose(&plan.model, &evidence, &tried));
        if chosen.is_none() && failures.broken == 1 && failures.broke_soon {
            chosen = pool.choose(&plan.model, &evidence, &[]);
        }
        let Some(chosen) = chosen else { break };
        let endpoint = Arc::clone(chosen.reservation.endpoint());
        log.attempts += 1;
        log.endpoint = Some(endpoint.url().to_owned());
        log.rank = endpoint.rank();
        log.decision = Some(chosen.decision.clone());
        if plan.has_extras() {
            endpoint.carried_extras();
        }
        let began = Instant::now();
        match attempt(app, pool, &endpoint, parts, &plan.body).await {
            Ok(started) => {
                endpoint.mark_reachable();
                // A 503 says that the engine is busy, not that it fails.
                let status = started.head.status;
                if status != StatusCode::SERVICE_UNAVAILABLE {
                    endpoint.note_answer(status.is_server_error());
                }
                return Ok((started, chosen));
            }
            Err(failure) => {
                failures.note(&endpoint, failure, began.elapsed());
                tried.push(endpoint);
            }
        }
        if failures.broken >= MAX_BROKEN || (failures.broken > 0 && !plan.repeatable) {
            break;
        }
    }
    Err(failures.refusal(&plan.model, || pool.why_none(&plan.model)))
}

/// The engine that keeps what the request goes on from, if it can be chosen.
fn owner(plan: &Plan, evidence: &Evidence, tried: &[Arc<Endpoint>]) -> Option<Chosen> {
    let owner = plan.owner.as_ref()?;
    // Responses are stored by the server, whichever of its ranks computed them.
    plan.resolved.pool.choose_owner(&plan.model, evidence, tried, owner)
}

/// How the attempts so far went.
#[derive(Debug, Default)]
struct Failures {
    /// Engines that took the request and broke off.
    broken: u32,
    broke_soon: bool,
    last_break: Option<String>,
    last_refusal: Option<String>,
}

impl Failures {
    fn note(&mut self, endpoint: &Endpoint, failure: Failure, after: Duration) {
        let why = failure.why();
        tracing::warn!(endpoint = endpoint.url(), why, "attempt failed before an answer began");
        metrics::counter!("kvasir_failed_attempts_total",
            "endpoint" => endpoint.url().to_owned(), "cause" => failure.as_str())
        .increment(1);
        match failure {
            Failure::Connect(why) => {
                endpoint.mark_unreachable(&why);
                self.last_refusal = Some(why);
            }
            Failure::Broke(why) => {
                endpoint.note_answer(true);
                self.broken += 1;
                self.broke_soon = after <= SOON;
                self.last_break = Some(why);
            }
        }
    }

    /// An engine that took the request weighs more than one that was not there.
    fn refusal(self, model: &str, why_none: impl FnOnce() -> String) -> Refusal {
        let model = model.to_owned();
        match (self.last_break, self.last_refusal) {
            (Some(why), _) => Refusal::EngineBroke { model, why },
            (None, Some(why)) => Refusal::NoEndpoint { model, why },
            (None, None) => Refusal::NoEndpoint { model, why: why_none() },
        }
    }
}
