//! Which engines get a request, until one begins to answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::request::Parts;
use kvasir_fleet::{Chosen, Endpoint, Evidence};
use kvasir_upstream::Started;

use crate::access_log::AccessLog;
use crate::app::App;
use crate::forward::{Failure, Phase, attempt};
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
        match attempt(app, pool, &endpoint, parts, &plan.body, plan.repeatable).await {
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
                failures.note(&endpoint, &failure, began.elapsed());
                tried.push(endpoint);
            }
        }
        let given_up = failures.broken >= MAX_BROKEN || failures.late.is_some();
        if given_up || (failures.broken > 0 && !plan.repeatable) {
            break;
        }
    }
    Err(failures.refusal(&plan.model))
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
    /// An engine took the request and said nothing for as long as is waited for: the client has
    /// waited, and would again.
    late: Option<String>,
}

impl Failures {
    fn note(&mut self, endpoint: &Endpoint, failure: &Failure, after: Duration) {
        let why = failure.why();
        tracing::warn!(endpoint = endpoint.url(), why, "attempt failed before an answer began");
        metrics::counter!("kvasir_failed_attempts_total",
            "endpoint" => endpoint.url().to_owned(), "cause" => failure.phase().as_str())
        .increment(1);
        let why = why.to_owned();
        match failure.phase() {
            // Our own limit: nothing is wrong with the engine.
            Phase::Pool => self.last_refusal = Some(why),
            phase if phase.is_connect() => {
                endpoint.mark_unreachable(&why);
                self.last_refusal = Some(why);
            }
            Phase::FirstData => {
                endpoint.note_answer(true);
                self.late = Some(why);
            }
            _ => {
                endpoint.note_answer(true);
                self.broken += 1;
                // Asked twice already, it is not asked again.
                self.broke_soon = after <= SOON && !failure.was_repeated();
                self.last_break = Some(why);
            }
        }
    }

    /// An engine that took the request weighs more than one that was not there.
    fn refusal(self, model: &str) -> Refusal {
        let model = model.to_owned();
        if let Some(why) = self.late {
            return Refusal::EngineLate { model, phase: Phase::FirstData.as_str(), why };
        }
        match (self.last_break, self.last_refusal) {
            (Some(why), _) => Refusal::EngineBroke { model, why },
            (None, Some(why)) => Refusal::NoEndpoint { model, why },
            (None, None) => Refusal::NoEndpoint { model, why: "none is in service".to_owned() },
        }
    }
}
