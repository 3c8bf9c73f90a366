//! Answers held against what was predicted of them: which ones may be, and by what.

use std::sync::Arc;

use kvasir_fleet::{Decision, Endpoint, Pool, Prediction, Report, Reservation, Unjudged};
use kvasir_prompt::Api;

use crate::access_log::AccessLog;
use crate::usage::Usage;

/// What has to be known of a request when its answer is complete.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    pub(crate) pool: Arc<Pool>,
    /// The model asked for: the pool's, or an adapter.
    pub(crate) model: String,
    pub(crate) api: Api,
    /// Which of the pool's tokenizers counted the prompt.
    pub(crate) loads: u64,
    /// The prompt's tokens as they were counted from its text, where the engine reports that count.
    pub(crate) counted: Option<u64>,
}

/// Whether `usage` of such answers has the tokens of the request's one prompt and nothing else.
/// Rerankers and scorers count pairs; Anthropic's shape leaves cached tokens out; the turns of an
/// engine that calls tools by itself (responses) add up.
pub(crate) fn counts_the_prompt(api: Api) -> bool {
    matches!(api, Api::Completions | Api::Chat | Api::Embeddings)
}

/// What has to be known of a prefill leg when its answer is there: its engine had to hit what was
/// predicted of its side.
#[derive(Clone, Debug)]
pub(crate) struct PrefillJudge {
    judge: Judge,
    prediction: Result<Prediction, Unjudged>,
    request_id: Option<String>,
    /// No engine got the request before.
    first: bool,
    streamed: bool,
}

impl PrefillJudge {
    /// Takes in its answer, which is `complete` or broke; the cached tokens it reports, where it does.
    pub(crate) fn judge(
        &self,
        reservation: &Reservation,
        complete: bool,
        usage: Usage,
    ) -> Option<u64> {
        let judge = &self.judge;
        let (endpoint, api) = (reservation.endpoint(), judge.api.as_str());
        let cached_tokens = resolved(endpoint, api, (complete, self.streamed), usage);
        let report = Report {
            api,
            streamed: self.streamed,
            request_id: self.request_id.as_deref(),
            clean: complete && self.first,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens,
            evicted: reservation.evicted(),
        };
        endpoint.judge(self.prediction, &report);
        judge.count(endpoint, &report);
        learn(reservation, usage.prompt_tokens, cached_tokens);
        cached_tokens
    }
}

/// What was computed in the time to the first data, where the engine says it.
fn learn(reservation: &Reservation, prompt_tokens: Option<u64>, cached_tokens: Option<u64>) {
    if let (Some(prompt), Some(cached)) = (prompt_tokens, cached_tokens) {
        reservation.reported(prompt, cached);
    }
}

/// The cached tokens that an answer reports. Silence means something only where the answer could have
/// spoken.
fn resolved(
    endpoint: &Endpoint,
    api: &'static str,
    (complete, streamed): (bool, bool),
    usage: Usage,
) -> Option<u64> {
    let Usage { prompt_tokens, cached_tokens, .. } = usage;
    if complete && prompt_tokens.is_some() {
        endpoint.reported_cached_tokens(api, streamed, cached_tokens)
    } else {
        cached_tokens
    }
}

impl Judge {
    /// What judges the prefill leg that is sent now, or was sent last, whose answer is `streamed` or not.
    pub(crate) fn of_prefill(
        &self,
        decision: &Decision,
        log: &AccessLog,
        streamed: bool,
    ) -> PrefillJudge {
        let side = decision.prefill.as_ref();
        PrefillJudge {
            judge: self.clone(),
            prediction: side.map_or(Err(Unjudged::Prompt), |side| side.prediction),
            request_id: log.request_id().map(str::to_owned),
            first: log.attempts <= 1,
            streamed,
        }
    }

    /// Takes in a whole or a broken answer; the cached tokens it reports, where it does.
    pub(crate) fn judge(
        &self,
        reservation: &Reservation,
        log: &AccessLog,
        usage: Usage,
    ) -> Option<u64> {
        let endpoint = reservation.endpoint();
        let (complete, split) = (log.is_complete(), log.is_split());
        let api = self.api.as_str();
        // In two legs it is the prefill engine's number: of the decode engine it says nothing.
        let cached_tokens = match (split, log.prefill_reported) {
            (true, Some(reported)) => reported,
            (true, None) => usage.cached_tokens,
            (false, _) => resolved(endpoint, api, (complete, log.stream), usage),
        };
        let report = Report {
            api,
            streamed: log.stream,
            request_id: log.request_id(),
            clean: complete && log.is_first_try(),
            prompt_tokens: usage.prompt_tokens,
            cached_tokens,
            evicted: reservation.evicted(),
        };
        let prediction = log.decision.as_ref().map(|decision| decision.prediction);
        let prediction = match prediction.unwrap_or(Err(Unjudged::Prompt)) {
            // It computed the prompt after all, for which it was not chosen.
            Err(Unjudged::Split) if !split => Err(Unjudged::Attempt),
            prediction => prediction,
        };
        endpoint.judge(prediction, &report);
        // The prefill leg's was counted.
        if !split {
            self.count(endpoint, &report);
            learn(reservation, usage.prompt_tokens, cached_tokens);
        }
        cached_tokens
    }

    /// The prompt's tokens as an engine counts them.
    fn count(&self, endpoint: &Endpoint, report: &Report<'_>) {
        if let Some(counted) = self.counted {
            let parity = self.pool.token_parity();
            parity.judge(self.loads, &self.model, &endpoint.name(), counted, report);
        }
    }
}
