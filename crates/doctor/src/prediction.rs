//! Predicted against reported cached tokens.

use crate::facts::Facts;
use crate::probe::{EVICTED, Outcome, Probed, Step};
use crate::report::{Leg, LegName};

/// A probe whose cached tokens are known from both sides.
#[derive(Clone, Copy, Debug)]
struct Pair<'a> {
    number: usize,
    step: &'a Step,
    predicted: u64,
    reported: u64,
}

/// Adds the leg `prediction`.
pub(crate) fn leg(facts: &Facts, probed: &Probed, legs: &mut Vec<Leg>) {
    legs.push(judge(facts, probed));
}

fn judge(facts: &Facts, probed: &Probed) -> Leg {
    let unknown =
        |finding: String, remedy: &str| Leg::unknown(LegName::Prediction, finding, remedy);
    if !probed.leave {
        return unknown(
            "no prompt was sent".to_owned(),
            "run with --probe: it sends a few short prompts",
        );
    }
    let pairs: Vec<Pair<'_>> = probed.steps.iter().zip(1..).filter_map(Pair::of).collect();
    if let Some(wrong) = pairs.iter().find(|pair| pair.predicted != pair.reported) {
        return differs(facts, probed, wrong);
    }
    let failures = failures(probed);
    if pairs.is_empty() {
        return nothing_compared(probed, failures);
    }
    let (count, sent) = (pairs.len(), probed.steps.len());
    let how = if pairs.iter().all(Pair::is_counted) { " (by the hit counters)" } else { "" };
    let values: Vec<String> = pairs.iter().map(|pair| pair.predicted.to_string()).collect();
    let finding =
        format!("{count} of {sent} probes: predicted = reported{how} ({})", values.join(", "));
    if let Some(failures) = failures {
        let remedy = "see the engine's log for these requests";
        return unknown(format!("{finding}; {failures}"), remedy);
    }
    let hit = pairs.iter().any(|pair| pair.predicted > 0);
    if count < sent {
        let finding = format!("{finding}; {}", silent(probed));
        // Zeros alone prove nothing: the prompts that should have hit may be those not compared.
        return if count >= 2 && hit {
            Leg::ok(LegName::Prediction, finding)
        } else {
            unknown(finding, "run again at a quiet time")
        };
    }
    if hit {
        return Leg::ok(LegName::Prediction, finding);
    }
    nothing_cached(facts, &finding)
}

/// The engine took other parts of a prompt from its cache than the gateway would have said.
fn differs(facts: &Facts, probed: &Probed, wrong: &Pair<'_>) -> Leg {
    let Pair { number, step, predicted, reported } = *wrong;
    let (what, tokens, sent) = (&step.what, step.prompt_tokens, probed.steps.len());
    let finding = format!(
        "probe {number} of {sent} ({what}): predicted {predicted}, reported {reported} of {tokens} \
         tokens"
    );
    let block = facts.cache.hash_block_size.or(facts.cache.block_size).or(facts.card.block_size);
    let (why, remedy) = if predicted < reported {
        (
            "the engine holds more than its events say",
            "see the legs events and wire: events lost, late, or of another engine; or a KV \
             connector that publishes none",
        )
    } else if block.is_some_and(|block| u64::from(block) == predicted - reported) {
        (
            "one block too many: speculative decoding (EAGLE, MTP) drops the last one",
            "harmless; the gateway promises one block too many there",
        )
    } else {
        (
            "the engine used less than its events say it holds",
            "are these the events of this engine? A proxy in front of several engines, or a cache \
             too small for a few prompts, looks like this",
        )
    };
    Leg::off(LegName::Prediction, format!("{finding}: {why}"), remedy)
}

/// Every probe says 0 on both sides.
fn nothing_cached(facts: &Facts, finding: &str) -> Leg {
    if facts.cache.prefix_caching == Some(false) {
        let finding = "prefix caching is off: there is nothing to predict";
        return Leg::unknown(LegName::Prediction, finding, "start with --enable-prefix-caching");
    }
    Leg::off(
        LegName::Prediction,
        format!("{finding}: even a repeated prompt is not cached"),
        "is prefix caching on (--enable-prefix-caching), and the cache larger than a few prompts?",
    )
}

fn nothing_compared(probed: &Probed, failures: Option<String>) -> Leg {
    let reported: Vec<String> = probed
        .steps
        .iter()
        .filter_map(|step| step.outcome.cached())
        .map(|n| n.to_string())
        .collect();
    let (finding, remedy) = if let Some(failures) = failures {
        let unsent = probed.steps.iter().any(|step| step.prompt_tokens == 0);
        let remedy = match unsent {
            true => "raise --max-model-len, or lower --block-size, on the engine",
            false => "see the engine's log for these requests",
        };
        (failures, remedy)
    } else if reported.is_empty() {
        (
            silent(probed),
            "start the engine with --enable-prompt-tokens-details (vLLM) or \
             --enable-cache-report (SGLang), or run again at a quiet time",
        )
    } else {
        let finding = format!(
            "without events nothing is predicted; cached tokens reported: {}",
            reported.join(", ")
        );
        return Leg::unknown(LegName::Prediction, finding, "see the leg events");
    };
    Leg::unknown(LegName::Prediction, finding, remedy)
}

/// Probes that were refused or not answered.
fn failures(probed: &Probed) -> Option<String> {
    let failed = probed.steps.iter().filter_map(|step| match &step.outcome {
        Outcome::Failed(why) => Some(format!("{}: {why}", step.what)),
        _ => None,
    });
    let failed: Vec<String> = failed.collect();
    (!failed.is_empty()).then(|| failed.join("; "))
}

/// Why answered probes say nothing.
fn silent(probed: &Probed) -> String {
    let why = probed.steps.iter().find_map(|step| match &step.outcome {
        Outcome::Silent(why) => Some(*why),
        _ => None,
    });
    match why {
        Some(EVICTED) => "others' requests evicted blocks meanwhile".to_owned(),
        why => {
            let why = why.unwrap_or("nothing was sent");
            format!("cached tokens not reported in answers, and {why}")
        }
    }
}

// === impl Pair ===

impl<'a> Pair<'a> {
    fn of((step, number): (&'a Step, usize)) -> Option<Self> {
        let (predicted, reported) = (step.predicted?, step.outcome.cached()?);
        Some(Self { number, step, predicted, reported })
    }

    fn is_counted(&self) -> bool {
        matches!(self.step.outcome, Outcome::Counted(_))
    }
}

#[cfg(test)]
mod tests;
