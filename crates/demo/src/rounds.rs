//! The same comparison several times over: what differs between rounds is noise, what differs
//! between policies beyond that is not.

use serde_json::{Map, Value, json};

use crate::client::Answer;

/// One policy's rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// The policy's name.
    pub policy: String,
    /// Of each round, the part of all prompt tokens that the engines had not to compute.
    pub hit_rates: Vec<f64>,
    /// Of each round, cached prompt tokens as the engines reported them.
    pub cached_tokens: Vec<f64>,
    /// Of each round, the mean time to the first text, in milliseconds.
    pub ttft_means_ms: Vec<f64>,
}

impl Rounds {
    /// None yet.
    #[must_use]
    pub fn new(policy: &str) -> Self {
        Self { policy: policy.to_owned(), ..Self::default() }
    }

    /// Adds a round. One without answers adds nothing.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn add(&mut self, answers: &[Answer]) {
        let prompts: u64 = answers.iter().map(|answer| answer.prompt_tokens).sum();
        let cached: u64 = answers.iter().map(|answer| answer.cached_tokens).sum();
        if prompts == 0 {
            return;
        }
        let ttft: f64 = answers.iter().map(|answer| answer.ttft.as_secs_f64() * 1e3).sum();
        self.hit_rates.push(cached as f64 / prompts as f64);
        self.cached_tokens.push(cached as f64);
        self.ttft_means_ms.push(ttft / answers.len() as f64);
    }
}

/// Mean, least and most; 0 where there are none.
fn spread(numbers: &[f64]) -> [f64; 3] {
    if numbers.is_empty() {
        return [0.0; 3];
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let (least, most) =
        numbers.iter().fold((f64::MAX, f64::MIN), |(a, b), n| (a.min(*n), b.max(*n)));
    [mean, least, most]
}

/// Mean and extremes of each policy's rounds, and the first policy against the last.
#[must_use]
pub fn rounds_table(rounds: &[Rounds]) -> String {
    let count = rounds.iter().map(|policy| policy.hit_rates.len()).max().unwrap_or(0);
    let mut text =
        format!("{:<40}{:>10}{:>10}{:>10}\n", format!("{count} rounds"), "mean", "least", "most");
    for Rounds { policy, hit_rates, cached_tokens, ttft_means_ms } in rounds {
        let percents: Vec<f64> = hit_rates.iter().map(|rate| rate * 100.0).collect();
        for (what, numbers, digits) in [
            ("token hit rate, %", &percents, 1),
            ("cached tokens, reported", cached_tokens, 0),
            ("TTFT mean, ms", ttft_means_ms, 0),
        ] {
            let [mean, least, most] = spread(numbers).map(|n| format!("{n:.digits$}"));
            let label = format!("{policy}: {what}");
            text.push_str(&format!("{label:<40}{mean:>10}{least:>10}{most:>10}\n"));
        }
    }
    if let Some((first, last, hits, ttft)) = against(rounds) {
        text.push_str(&format!(
            "{first} against {last}: {:.1} % of its hit rate, {ttft:.2} times its mean TTFT.\n",
            hits * 100.0
        ));
    }
    text
}

/// The first policy against the last: names, hit rate and mean TTFT as parts of the last one's.
fn against(rounds: &[Rounds]) -> Option<(&str, &str, f64, f64)> {
    let [first, .., last] = rounds else { return None };
    let ratio = |of: fn(&Rounds) -> &[f64]| {
        let ([a, ..], [b, ..]) = (spread(of(first)), spread(of(last)));
        (b > 0.0).then(|| a / b)
    };
    let (hits, ttft) = (ratio(|r| &r.hit_rates)?, ratio(|r| &r.ttft_means_ms)?);
    Some((&first.policy, &last.policy, hits, ttft))
}

/// `{NAME: {"token_hit_rate": [..], "cached_tokens": [..], "ttft_mean_ms": [..]}}`, a number a
/// round.
#[must_use]
pub fn rounds_json(rounds: &[Rounds]) -> Value {
    let policies: Map<String, Value> = rounds
        .iter()
        .map(|policy| {
            let numbers = json!({
                "token_hit_rate": policy.hit_rates,
                "cached_tokens": policy.cached_tokens,
                "ttft_mean_ms": policy.ttft_means_ms,
            });
            (policy.policy.clone(), numbers)
        })
        .collect();
    Value::Object(policies)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn answer(ms: u64, cached_tokens: u64) -> Answer {
        Answer {
            text: String::new(),
            ttft: Duration::from_millis(ms),
            e2e: Duration::from_millis(ms),
            prompt_tokens: 100,
            cached_tokens,
            predicted_tokens: None,
            endpoint: None,
        }
    }

    #[test]
    fn rounds_keep_their_own_numbers() {
        let (mut one, mut two) = (Rounds::new("latency"), Rounds::new("affine"));
        one.add(&[answer(10, 90), answer(30, 70)]);
        one.add(&[answer(40, 60)]);
        one.add(&[]);
        two.add(&[answer(60, 50), answer(60, 90)]);
        assert_eq!(one.hit_rates, [0.8, 0.6]);
        assert_eq!(one.ttft_means_ms, [20.0, 40.0]);
        let rounds = [one, two];
        let text = rounds_table(&rounds);
        assert!(text.starts_with("2 rounds "), "{text}");
        let line = "latency against affine: 100.0 % of its hit rate, 0.50 times its mean TTFT.";
        assert_eq!(text.lines().last(), Some(line));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(rounds_json(&rounds)["latency"]["cached_tokens"], json!([160.0, 60.0]));
        assert_eq!(against(&rounds[..1]), None);
    }
}
