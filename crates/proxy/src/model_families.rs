//! Metrics with no label but the model: registered when a model's first request needs them, and kept.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use metrics::{Counter, Histogram, SharedString};
use parking_lot::RwLock;

/// Models come from the configuration and, as adapters, from engines. Of more, nothing is kept.
const MOST_MODELS: usize = 1024;

static KNOWN: LazyLock<RwLock<HashMap<Box<str>, Arc<ModelFamilies>>>> =
    LazyLock::new(RwLock::default);

/// One model's metrics: each is registered with its first use, so that none shows which nothing was
/// counted in.
#[derive(Debug)]
pub(crate) struct ModelFamilies {
    /// The model's name, as a label's value that is cloned without copying it.
    pub(crate) model: SharedString,
    tokenize: OnceLock<Histogram>,
    request: OnceLock<Histogram>,
    first_data: OnceLock<[Histogram; 2]>,
    per_token: OnceLock<Histogram>,
    overlap: OnceLock<Histogram>,
    tokens: OnceLock<[Counter; 3]>,
    judged: OnceLock<[Counter; 2]>,
}

impl ModelFamilies {
    /// Those of a model.
    pub(crate) fn of(model: &str) -> Arc<Self> {
        if let Some(known) = KNOWN.read().get(model) {
            return Arc::clone(known);
        }
        let fresh = Arc::new(Self::new(model));
        let mut known = KNOWN.write();
        if known.len() < MOST_MODELS {
            known.insert(model.into(), Arc::clone(&fresh));
        }
        fresh
    }

    fn new(model: &str) -> Self {
        Self {
            model: SharedString::from(Arc::<str>::from(model)),
            tokenize: OnceLock::new(),
            request: OnceLock::new(),
            first_data: OnceLock::new(),
            per_token: OnceLock::new(),
            overlap: OnceLock::new(),
            tokens: OnceLock::new(),
            judged: OnceLock::new(),
        }
    }

    fn histogram(&self, kept: &OnceLock<Histogram>, name: &'static str, value: f64) {
        kept.get_or_init(|| metrics::histogram!(name, "model" => self.model.clone())).record(value);
    }

    fn counter(&self, name: &'static str) -> Counter {
        metrics::counter!(name, "model" => self.model.clone())
    }

    /// Seconds from a body to token ids.
    pub(crate) fn tokenized(&self, seconds: f64) {
        self.histogram(&self.tokenize, "kvasir_tokenize_seconds", seconds);
    }

    /// Seconds from a request's head to the end of its answer.
    pub(crate) fn ended(&self, seconds: f64) {
        self.histogram(&self.request, "kvasir_request_seconds", seconds);
    }

    /// Seconds from a request's head to its answer's first data.
    pub(crate) fn first_data(&self, streamed: bool, seconds: f64) {
        let of = |stream: &'static str| {
            metrics::histogram!("kvasir_first_data_seconds",
                "model" => self.model.clone(), "stream" => stream)
        };
        // One that never streams shows no series of streams but an empty one.
        let kept = self.first_data.get_or_init(|| [of("false"), of("true")]);
        kept[usize::from(streamed)].record(seconds);
    }

    /// Seconds for one token of an answer.
    pub(crate) fn per_token(&self, seconds: f64) {
        self.histogram(&self.per_token, "kvasir_time_per_output_token_seconds", seconds);
    }

    /// The share of a prompt that was taken for cached.
    pub(crate) fn overlap(&self, share: f64) {
        self.histogram(&self.overlap, "kvasir_overlap_ratio", share);
    }

    /// Tokens of a prompt, those taken for cached, and those being computed beyond them.
    pub(crate) fn tokens(&self, prompt: u64, predicted: u64, pending: u64) {
        let names = [
            "kvasir_prompt_tokens_total",
            "kvasir_predicted_cached_tokens_total",
            "kvasir_pending_cached_tokens_total",
        ];
        let kept = self.tokens.get_or_init(|| names.map(|name| self.counter(name)));
        kept.iter().zip([prompt, predicted, pending]).for_each(|(one, more)| one.increment(more));
    }

    /// Tokens taken for cached, and those the engine says were.
    pub(crate) fn judged(&self, predicted: u64, reported: u64) {
        let names = ["kvasir_judged_predicted_tokens_total", "kvasir_judged_reported_tokens_total"];
        let kept = self.judged.get_or_init(|| names.map(|name| self.counter(name)));
        kept.iter().zip([predicted, reported]).for_each(|(one, more)| one.increment(more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_metrics_are_made_once_and_of_too_many_models_nothing_is_kept() {
        let first = ModelFamilies::of("a model of this test");
        assert!(Arc::ptr_eq(&first, &ModelFamilies::of("a model of this test")));
        for n in 0..2 * MOST_MODELS {
            drop(ModelFamilies::of(&format!("model {n}")));
        }
        assert!(KNOWN.read().len() <= MOST_MODELS);
        assert!(Arc::ptr_eq(&first, &ModelFamilies::of("a model of this test")));
    }
}
