//! Answers held against what was predicted of them: which ones may be, and by what.

use std::sync::Arc;

use kvasir_fleet::{Pool, PrefillSide, Report, Reservation, Unjudged};
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

impl Judge {
    /// Takes in a prefill engine's answer, which is never streamed: it had to hit what was predicted
    /// of its side.
    pub(crate) fn judge_prefill(
        &self,
        reservation: &Reservation,
        side: &PrefillSide,
        log: &AccessLog,
        usage: Usage,
    ) {
        let endpoint = reservation.endpoint();
        let Usage { prompt_tokens, cached_tokens } = usage;
        let api = self.api.as_str();
        let cached_tokens = match prompt_tokens {
            Some(_) => endpoint.reported_cached_tokens(api, false, cached_tokens),
            None => cached_tokens,
        };
        let report = Report {
            api,
            streamed: false,
            request_id: log.request_id(),
            clean: log.attempts == 1,
            prompt_tokens,
            cached_tokens,
            evicted: reservation.evicted(),
        };
        endpoint.judge(side.prediction, &report);
    }

    /// Takes in a whole or a broken answer; the cached tokens it reports, where it does.
    pub(crate) fn judge(
        &self,
        reservation: &Reservation,
        log: &AccessLog,
        usage: Usage,
    ) -> Option<u64> {
        let endpoint = reservation.endpoint();
        let Usage { prompt_tokens, cached_tokens } = usage;
        let complete = log.is_complete();
        let api = self.api.as_str();
        // Silence means something only where the answer could have spoken.
        let cached_tokens = if complete && prompt_tokens.is_some() {
            endpoint.reported_cached_tokens(api, log.stream, cached_tokens)
        } else {
            cached_tokens
        };
        let report = Report {
            api,
            streamed: log.stream,
            request_id: log.request_id(),
            clean: complete && log.attempts == 1,
            prompt_tokens,
            cached_tokens,
            evicted: reservation.evicted(),
        };
        let prediction = log.decision.as_ref().map(|decision| decision.prediction);
        endpoint.judge(prediction.unwrap_or(Err(Unjudged::Prompt)), &report);
        if let Some(counted) = self.counted {
            let parity = self.pool.token_parity();
            parity.judge(self.loads, &self.model, &endpoint.name(), counted, &report);
        }
        cached_tokens
    }
}
