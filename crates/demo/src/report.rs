//! From measurements to the numbers that are reported.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::client::Answer;

/// The middle and the tail of a distribution, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// What 99 of 100 do not exceed.
    pub p99: f64,
}

impl Percentiles {
    /// By nearest rank: each is one of the values. All 0 where there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = values.into_iter().collect();
        sorted.sort_unstable();
        let rank = |percent: usize| {
            let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(place).map_or(0.0, |value| value.as_secs_f64() * 1e3)
        };
        Self { p50: rank(50), p99: rank(99) }
    }

    fn json(self) -> Value {
        json!({ "p50": thousandths(self.p50), "p99": thousandths(self.p99) })
    }
}

/// One policy's numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// The policy's name.
    pub policy: String,
    /// Prompt tokens of all answers.
    pub prompt_tokens: u64,
    /// Cached prompt tokens as the gateway predicted them.
    pub predicted: u64,
    /// Cached prompt tokens as the engines reported them.
    pub reported: u64,
    /// Time to the first text.
    pub ttft: Percentiles,
    /// Time to the end of the answer.
    pub e2e: Percentiles,
    /// Answers by endpoint, in the order the endpoints were given.
    pub requests: Vec<(String, u64)>,
}

impl PolicyReport {
    /// Boils answers down. `endpoints` are listed also if none of them is theirs; answers of
    /// others are added behind them.
    #[must_use]
    pub fn new(policy: &str, endpoints: &[String], answers: &[Answer]) -> Self {
        let mut requests: Vec<(String, u64)> =
            endpoints.iter().map(|endpoint| (endpoint.clone(), 0)).collect();
        for answer in answers {
            let endpoint = answer.endpoint.as_deref().unwrap_or("unknown");
            match requests.iter_mut().find(|(known, _)| known == endpoint) {
                Some((_, count)) => *count += 1,
                None => requests.push((endpoint.to_owned(), 1)),
            }
        }
        Self {
            policy: policy.to_owned(),
            prompt_tokens: answers.iter().map(|answer| answer.prompt_tokens).sum(),
            predicted: answers.iter().filter_map(|answer| answer.predicted_tokens).sum(),
            reported: answers.iter().map(|answer| answer.cached_tokens).sum(),
            ttft: Percentiles::of(answers.iter().map(|answer| answer.ttft)),
            e2e: Percentiles::of(answers.iter().map(|answer| answer.e2e)),
            requests,
        }
    }

    /// The part of all prompt tokens that the engines had not to compute, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn token_hit_rate(&self) -> f64 {
        if self.prompt_tokens == 0 { 0.0 } else { self.reported as f64 / self.prompt_tokens as f64 }
    }

    /// All answers.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.requests.iter().map(|(_, count)| count).sum()
    }

    fn json(&self) -> Value {
        let requests: Map<String, Value> =
            self.requests.iter().map(|(url, count)| (url.clone(), (*count).into())).collect();
        json!({
            "token_hit_rate": (self.token_hit_rate() * 1e6).round() / 1e6,
            "ttft_ms": self.ttft.json(),
            "e2e_ms": self.e2e.json(),
            "requests": requests,
            "cached_tokens": { "predicted": self.predicted, "reported": self.reported },
        })
    }
}

/// `{"policies": {NAME: {…}}}`, in the order given.
#[must_use]
pub fn json(reports: &[PolicyReport]) -> Value {
    let policies: Map<String, Value> =
        reports.iter().map(|report| (report.policy.clone(), report.json())).collect();
    json!({ "policies": policies })
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests;
