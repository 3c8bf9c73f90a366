//! What would be decided about a request, without sending it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode, header};
use kvasir_balance::record::{ChoiceRecord, EndpointRecord};
use kvasir_fleet::{Exclusion, Explained, NoRoom};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access_log::AccessLog;
use crate::app::{App, Permits};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::route::{Route, route};

/// Why a request cannot be explained: what the gateway would answer it with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotExplain {
    /// The status of that answer.
    pub status: StatusCode,
    /// The error's code.
    pub code: &'static str,
    /// What is wrong, for people.
    pub message: String,
}

/// The bounds of what is explained at one time: one request, and whatever of one that nobody waits for
/// any more is still being computed.
#[derive(Debug)]
pub(crate) struct Explaining {
    place: Semaphore,
    permits: Permits,
}

impl Default for Explaining {
    fn default() -> Self {
        Self { place: Semaphore::new(1), permits: Permits::new(1) }
    }
}

impl Explaining {
    /// The place for one, if it is free.
    fn begin(&self) -> Option<(SemaphorePermit<'_>, &Permits)> {
        let place = self.place.try_acquire().ok()?;
        let Permits { tokenizers, readers } = &self.permits;
        let is_free = [tokenizers, readers].iter().all(|left| left.available_permits() > 0);
        is_free.then_some((place, &self.permits))
    }
}

impl App {
    /// What would be decided now about a request with this body to `path`, an API's path: its model,
    /// what is known of its prompt, every stage, and every endpoint with what speaks against it, what
    /// it holds and what the policy made of that. Nothing is sent, committed, learned, pinned or logged.
    ///
    /// # Errors
    /// What the gateway would answer itself: a path or model that is not known, a body that cannot be
    /// read; and `busy` where another request is being explained.
    pub async fn explain(
        &self,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Value, CannotExplain> {
        let now = &*self.now();
        let mut log = AccessLog::unwritten();
        let unknown = || Refusal::NoSuchPath(path.to_owned());
        headers.remove(header::AUTHORIZATION);
        let request = Request::builder().method(Method::POST).uri(path).body(());
        let (mut parts, ()): (Parts, ()) = request.map_err(|_| cannot(&unknown()))?.into_parts();
        parts.headers = headers;
        let api = match route(&parts.method, parts.uri.path(), &now.settings.forward_paths) {
            Route::Api(api) => Some(api),
            Route::Stored | Route::Forward => None,
            _ => return Err(cannot(&unknown())),
        };
        if body.len() > now.settings.max_body_bytes {
            return Err(cannot(&Refusal::TooLarge { limit: now.settings.max_body_bytes }));
        }
        let Some((_place, permits)) = self.explaining.begin() else { return Err(busy()) };
        let plan = Plan::of(self, now, &parts, (body, permits), api, &mut log).await;
        let plan = plan.map_err(|refusal| cannot(&refusal))?;
        let (pool, model) = (Arc::clone(&plan.resolved.pool), plan.model.clone());
        let evidence = plan.evidence_in(&pool, None);
        let owned = plan.owner.as_ref().map(|owner| pool.explain(&model, &evidence, Some(owner)));
        let explained = match owned {
            Some(explained) if explained.no_room != Some(NoRoom::Nobody) => explained,
            _ => pool.explain(&model, &evidence, None),
        };
        let mut answer = shown(&explained);
        answer["model"] = model.into();
        answer["pool"] = pool.model().into();
        answer["level"] = log.level.into();
        answer["tokens"] = log.tokens.into();
        answer["token_source"] = log.token_source.into();
        answer["not_split"] = log.not_split.into();
        if explained.record.choice.is_none() {
            answer["why_none"] = match explained.no_room {
                Some(NoRoom::Nobody) | None => pool.why_none(&plan.model).into(),
                Some(_) => "all endpoints that could serve it are at their limits".into(),
            };
        }
        Ok(answer)
    }
}

/// Explaining takes a processor away from requests: one at a time is enough for people.
fn busy() -> CannotExplain {
    let message = "another request is being explained: ask again".to_owned();
    CannotExplain { status: StatusCode::SERVICE_UNAVAILABLE, code: "busy", message }
}

fn cannot(refusal: &Refusal) -> CannotExplain {
    let (status, code) = (refusal.status(), refusal.code());
    CannotExplain { status, code, message: refusal.message() }
}

/// The fields that come from the decision.
fn shown(explained: &Explained) -> Value {
    let Explained { record, exclusions, .. } = explained;
    let choice = record.choice.as_ref();
    let candidates: Vec<Value> = record
        .endpoints
        .iter()
        .enumerate()
        .map(|(place, endpoint)| {
            candidate(endpoint, exclusions.get(place).and_then(Option::as_ref))
        })
        .collect();
    let stages: Vec<Value> = choice.map_or_else(Vec::new, |choice| {
        let stage = |s: &kvasir_balance::record::StageRecord| {
            json!({"stage": s.stage, "outcome": s.outcome, "left": s.left, "miss": text(&s.miss)})
        };
        choice.stages.iter().map(stage).collect()
    });
    let side = |name: &str| record.endpoints.iter().find(|endpoint| endpoint.name == name);
    let prefill = choice.and_then(|choice| choice.prefill.as_deref()).and_then(side);
    let word = |read: fn(&ChoiceRecord) -> &str| choice.and_then(|choice| text(read(choice)));
    json!({
        "prompt_tokens": record.query.prompt_tokens,
        "chosen": word(|choice| &choice.endpoint),
        "plan": word(|choice| &choice.plan),
        "policy": word(|choice| &choice.policy),
        "reason": word(|choice| &choice.reason),
        "detail": word(|choice| &choice.detail),
        "runner_up": choice.and_then(|choice| choice.runner_up.as_deref()),
        "shadow": choice.and_then(|choice| choice.shadow.as_deref()),
        "stages": stages,
        "candidates": candidates,
        "prefill": prefill.map(|endpoint| candidate(endpoint, None)),
        "pair": record.pair(),
    })
}

/// One endpoint: what speaks against it, what it holds, and the terms policies weigh.
fn candidate(endpoint: &EndpointRecord, why: Option<&Exclusion>) -> Value {
    let excluded = match why {
        Some(Exclusion::Unreachable(why)) => Some(format!("unreachable: {why}")),
        Some(why) => Some(why.as_str().to_owned()),
        None => endpoint.exclusion.clone(),
    };
    let EndpointRecord { name, overlap, pending, trust, score, role, .. } = endpoint;
    json!({
        "endpoint": name,
        "excluded": excluded,
        "role": role.as_str(),
        "overlap": overlap.resident(),
        "tiers": overlap,
        "pending": pending,
        "trust": trust,
        "terms": {
            "in_flight": endpoint.in_flight,
            "queued_prefill_tokens": endpoint.queued_prefill_tokens,
            "recent_work": endpoint.recent_work,
            "waiting": endpoint.waiting,
            "kv_usage": endpoint.kv_usage,
            "prefill_rate": endpoint.prefill_rate,
            "fetch_rate": endpoint.fetch_rate,
            "transfer_rate": endpoint.transfer_rate,
            "ttft_ms": endpoint.ttft_ms,
            "expected_ttft_s": endpoint.expected_ttft_s,
            "weight": endpoint.weight,
            "capacity_blocks": endpoint.capacity_blocks,
            "resident_blocks": endpoint.resident_blocks,
            "lmcache_occupancy": endpoint.lmcache_occupancy,
        },
        "score": score,
    })
}

fn text(word: &str) -> Option<&str> {
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_is_explained_at_a_time() {
        let explaining = Explaining::default();
        let first = explaining.begin().unwrap();
        assert!(explaining.begin().is_none());
        // Somebody who left: what was begun for them goes on.
        let left = Arc::clone(&first.1.tokenizers).try_acquire_owned().unwrap();
        drop(first);
        assert!(explaining.begin().is_none());
        drop(left);
        assert!(explaining.begin().is_some());
    }
}
