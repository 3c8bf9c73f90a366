//! How long a step takes.

use std::time::Duration;

/// A roofline of one model on one device, in seconds.
///
/// A step takes `step_overhead`, plus the greater of reading the weights once (`weights`) and
/// computing its tokens (`per_token` each), plus `per_request` for each of its requests, plus reading the cached context of every decoding
/// request (`per_context_token`), plus the attention of prefills (`per_attention_pair`: a chunk of
/// `n` tokens behind `c` others has `n·c + n·(n+1)/2` pairs). All of it divided by `speed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Scheduling, launch and sampling, once a step.
    pub step_overhead: f64,
    /// Reading all weights, once a step.
    pub weights: f64,
    /// Matrix products of one token.
    pub per_token: f64,
    /// Sampling and bookkeeping of one request, once a step.
    pub per_request: f64,
    /// Reading one token of a decoding request's context.
    pub per_context_token: f64,
    /// One query-key pair of a prefill.
    pub per_attention_pair: f64,
    /// How many times faster everything is.
    pub speed: f64,
}

impl CostModel {
    /// 8 billion parameters in 16 bits on a GPU with 2 TB/s and 160 sustained TFLOPS: about
    /// 10,000 prefill tokens a second and 10 ms a decode step. Calculated, not measured.
    pub const MID_GPU: Self = Self {
        step_overhead: 1.5e-3,
        weights: 8.0e-3,
        per_token: 1.0e-4,
        // Lost in the rest, as long as nobody measures it.
        per_request: 0.0,
        per_context_token: 6.5e-8,
        per_attention_pair: 3.5e-9,
        speed: 1.0,
    };

    /// For demonstrations: the same shape at a twentieth of the time.
    pub const DEMO: Self = Self { speed: 20.0, ..Self::MID_GPU };

    /// The same device, `factor` times as fast as it is now.
    #[must_use]
    pub fn faster(self, factor: f64) -> Self {
        Self { speed: self.speed * factor, ..self }
    }

    /// How long a step of this load takes. At most a year, whatever the parameters.
    #[must_use]
    pub fn step(&self, load: &StepLoad) -> Duration {
        let tokens = (load.prefill_tokens + load.decode_requests) as f64;
        let requests = (load.prefill_requests + load.decode_requests) as f64;
        let seconds = self.step_overhead
            + self.weights.max(tokens * self.per_token)
            + requests * self.per_request
            + load.decode_context as f64 * self.per_context_token
            + load.attention_pairs as f64 * self.per_attention_pair;
        const YEAR: f64 = 365.0 * 86_400.0;
        Duration::try_from_secs_f64((seconds / self.speed).clamp(0.0, YEAR)).unwrap_or_default()
    }

    /// The first field that is no cost.
    pub(crate) fn bad_value(&self) -> Option<(&'static str, f64)> {
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return Some(("speed", self.speed));
        }
        [
            ("step_overhead", self.step_overhead),
            ("weights", self.weights),
            ("per_token", self.per_token),
            ("per_request", self.per_request),
            ("per_context_token", self.per_context_token),
            ("per_attention_pair", self.per_attention_pair),
        ]
        .into_iter()
        .find(|(_, value)| !(value.is_finite() && *value >= 0.0))
    }
}

impl Default for CostModel {
    fn default() -> Self {
        Self::MID_GPU
    }
}

/// What one step computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepLoad {
    /// Requests that prefill: prompts, and preempted requests that start over.
    pub prefill_requests: usize,
    /// Tokens they compute; cached ones are not among them.
    pub prefill_tokens: usize,
    /// Query-key pairs of these tokens.
    pub attention_pairs: u64,
    /// Requests that decode one token each.
    pub decode_requests: usize,
    /// Tokens of context they read.
    pub decode_context: u64,
}

impl StepLoad {
    /// Adds `tokens` tokens of a request that has `context` tokens computed already.
    pub(crate) fn add(&mut self, tokens: usize, context: usize, decodes: bool) {
        let (n, c) = (tokens as u64, context as u64);
        if decodes {
            self.decode_requests += 1;
            self.decode_context += c + n;
        } else {
            self.prefill_requests += 1;
            self.prefill_tokens += tokens;
            self.attention_pairs += n * c + n * (n + 1) / 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(prefill: (usize, usize), decodes: &[usize]) -> f64 {
        let mut load = StepLoad::default();
        if prefill.0 > 0 {
            load.add(prefill.0, prefill.1, false);
        }
        decodes.iter().for_each(|&context| load.add(1, context, true));
        CostModel::MID_GPU.step(&load).as_secs_f64()
    }

    #[test]
    fn cost_grows_with_uncached_tokens_batch_and_context() {
        assert!(step((8_000, 0), &[]) > 7.0 * step((1_000, 0), &[]));
        assert!(step((1_000, 20_000), &[]) > step((1_000, 0), &[]));
        assert!(step((0, 0), &[20_000; 64]) > step((0, 0), &[1_000; 64]));
        assert!(step((0, 0), &[1_000; 256]) > step((0, 0), &[1_000; 8]));
        // The weights are read once for the whole batch.
        assert!(step((0, 0), &[100; 64]) < 1.1 * step((0, 0), &[100]));
    }

    #[test]
    fn values_of_the_default_profile() {
        let mut load = StepLoad::default();
        load.add(2_000, 1_000, false);
        load.add(1, 499, true);
        assert_eq!((load.attention_pairs, load.decode_context), (4_001_000, 500));
        let seconds = 1.5e-3 + 2_001.0 * 1e-4 + 500.0 * 6.5e-8 + 4_001_000.0 * 3.5e-9;
        assert!((CostModel::MID_GPU.step(&load).as_secs_f64() - seconds).abs() < 1e-8);
        let slow = CostModel { per_request: 1.0, ..CostModel::MID_GPU };
        assert!((slow.step(&load).as_secs_f64() - seconds - 2.0).abs() < 1e-8);
        let fast = CostModel::MID_GPU.faster(4.0).step(&load).as_secs_f64();
        assert!((fast * 4.0 - seconds).abs() < 1e-7);
        assert_eq!(CostModel::MID_GPU.faster(20.0), CostModel::DEMO);
    }

    #[test]
    fn impossible_costs_are_named() {
        let bad = CostModel { per_token: f64::NAN, ..CostModel::MID_GPU };
        assert_eq!(bad.bad_value().map(|(name, _)| name), Some("per_token"));
        let bad = CostModel { speed: 0.0, ..CostModel::MID_GPU };
        assert_eq!(bad.bad_value(), Some(("speed", 0.0)));
        assert_eq!(CostModel::DEMO.bad_value(), None);
    }
}
