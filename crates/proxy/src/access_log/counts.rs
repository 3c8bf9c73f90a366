//! The metrics of one request, when it is over.

use std::time::Duration;

use kvasir_fleet::{Decision, Shadow};

use super::{AccessLog, Outcome};
use crate::model_families::ModelFamilies;

impl AccessLog {
    pub(super) fn count(&self, took: Duration) {
        let families = ModelFamilies::of(self.model.as_deref().unwrap_or_default());
        let model = &families.model;
        let outcome = self.outcome.as_str();
        metrics::counter!("kvasir_requests_total",
            "model" => model.clone(), "status" => self.status.to_string(), "outcome" => outcome)
        .increment(1);
        families.ended(took.as_secs_f64());
        if let Outcome::Broken(why) = self.outcome {
            metrics::counter!("kvasir_streams_broken_total",
                "model" => model.clone(), "cause" => why.as_str())
            .increment(1);
        }
        if let Some(plan) = self.plan {
            metrics::counter!("kvasir_pd_requests_total", "model" => model.clone(), "plan" => plan)
                .increment(1);
        }
        let Some((first_data, streamed)) = self.first_data else { return };
        families.first_data(streamed, first_data.as_secs_f64());
        if let Some(seconds) = self.seconds_per_token(took, first_data) {
            families.per_token(seconds);
        }
        if let (Some(claim), Some(reported)) = (&self.claim, self.usage.prompt_tokens)
            && self.is_complete()
            && self.is_first_try()
        {
            claim.judge(reported);
        }
        if let Some(decision) = &self.decision {
            self.count_decision(&families, decision);
            self.count_tokens(&families, decision);
        }
    }

    fn count_decision(&self, families: &ModelFamilies, decision: &Decision) {
        let model = &families.model;
        metrics::counter!("kvasir_decisions_total", "model" => model.clone(),
            "policy" => decision.policy, "reason" => decision.reason.as_str())
        .increment(1);
        if !decision.detail.is_empty() {
            metrics::counter!("kvasir_decision_details_total", "model" => model.clone(),
                "policy" => decision.policy, "detail" => decision.detail)
            .increment(1);
        }
        for (policy, miss) in decision.misses() {
            metrics::counter!("kvasir_guard_misses_total", "model" => model.clone(),
                "policy" => policy, "reason" => miss)
            .increment(1);
        }
        if let Some(Shadow { policy, agrees, overlap }) = decision.shadow {
            let agrees = if agrees { "true" } else { "false" };
            metrics::counter!("kvasir_shadow_decisions_total", "model" => model.clone(),
                "policy" => policy, "agrees" => agrees)
            .increment(1);
            metrics::counter!("kvasir_shadow_predicted_cached_tokens_total",
                "model" => model.clone(), "policy" => policy)
            .increment(overlap.unwrap_or(0).into());
        }
        metrics::counter!("kvasir_prompts_total", "model" => model.clone(),
            "level" => self.level, "tokens" => self.tokens)
        .increment(1);
    }

    fn count_tokens(&self, families: &ModelFamilies, decision: &Decision) {
        let (resident, pending) = self.credit(decision);
        families.tokens(decision.prompt_tokens, resident, pending);
        if let Some(share) = self.overlap_ratio(decision, resident) {
            families.overlap(share);
        }
        // Only answers that carry a count, with a prompt whose tokens are known, can be judged.
        if let Some(cached) = self.usage.cached_tokens
            && self.tokens == "exact"
            && self.comparable
        {
            families.judged(resident, cached);
        }
    }

    /// From an answer's first token to its end, for each token after the first: of streams that say how
    /// many there are.
    fn seconds_per_token(&self, took: Duration, first_data: Duration) -> Option<f64> {
        let streamed = self.first_data.is_some_and(|(_, streamed)| streamed);
        let tokens = self.usage.completion_tokens.filter(|_| streamed && self.is_complete())?;
        let more = u32::try_from(tokens).ok()?.checked_sub(1).filter(|more| *more > 0)?;
        Some(took.saturating_sub(first_data).as_secs_f64() / f64::from(more))
    }

    /// The share of the prompt that is `resident` where it went, of prompts that are known.
    #[expect(clippy::cast_precision_loss, reason = "prompts are far below 2^52 tokens")]
    fn overlap_ratio(&self, decision: &Decision, resident: u64) -> Option<f64> {
        let is_known = self.level != "none" && decision.prompt_tokens > 0;
        is_known.then(|| (resident as f64 / decision.prompt_tokens as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

    use super::*;

    #[test]
    fn the_time_of_a_token_is_that_of_whole_streams_with_a_count() {
        let mut log = AccessLog::begin(Method::POST, "/", HeaderValue::from_static("1"));
        let (took, first) = (Duration::from_secs(9), Duration::from_secs(1));
        let mut of = |streamed, tokens, status| {
            log.first_data = Some((first, streamed));
            log.usage.completion_tokens = tokens;
            log.status = status;
            log.complete();
            log.seconds_per_token(took, first)
        };
        assert_eq!(of(true, Some(5), 200), Some(2.0));
        assert_eq!(of(false, Some(5), 200), None);
        assert_eq!(of(true, None, 200), None);
        assert_eq!(of(true, Some(5), 500), None);
        // One token has none after it, and none have none.
        assert_eq!((of(true, Some(1), 200), of(true, Some(0), 200)), (None, None));
    }
}
