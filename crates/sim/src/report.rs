//! What a simulation showed: numbers per policy, and the forms they are put out in.

mod csv;
mod json;
mod plot;
mod table;

use kvasir_balance::PairPlan;
use serde::Serialize;

use crate::options::{Fleet, Options};
use crate::policies::SimPolicy;
use crate::prepared::Prepared;
use crate::record::{Ended, Outcome, Record};
use crate::workload::Workload;

pub use self::csv::csv;
pub use self::json::json;
pub use self::plot::plot;
pub use self::table::table;

/// Several policies, one workload.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The workload's name.
    pub workload: String,
    /// Its requests.
    pub requests: usize,
    /// Engine replicas; those of the largest fleet, where several are compared.
    pub replicas: usize,
    /// Gateways.
    pub gateways: usize,
    /// How many times as fast the arrivals were.
    pub time_scale: f64,
    /// The seed.
    pub seed: u64,
    /// The part of all prompt tokens that one infinite cache would hit.
    pub ideal_hit_rate: f64,
    /// Whether fleets are compared: then reports are told apart by them, too.
    pub by_fleet: bool,
    /// One report a policy, in the order asked for; of several fleets all of the first one first.
    pub policies: Vec<PolicyReport>,
}

/// Mean and percentiles (nearest rank) of a time, in milliseconds; 0 without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
}

/// What one policy made of the workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    /// The policy's name.
    #[serde(skip)]
    pub policy: String,
    /// The fleet it chose in.
    #[serde(skip)]
    pub fleet: Fleet,
    /// The part of all prompt tokens that engines found in their caches.
    pub token_hit_rate: f64,
    /// The part that one infinite cache would have found.
    pub ideal_hit_rate: f64,
    /// The part that the gateways expected to be found.
    pub predicted_hit_rate: f64,
    /// From arrival to the first token.
    pub ttft_ms: Spread,
    /// From arrival to the last token.
    pub e2e_ms: Spread,
    /// Between two tokens of an answer, on average over the answer.
    pub tpot_ms: Spread,
    /// Between two tokens of an answer, of all answers: one that is held up for a moment shows here.
    /// Percentiles are at most a thousandth too low.
    pub itl_ms: Spread,
    /// Answers a second, from the first arrival to the last answer.
    pub throughput_rps: f64,
    /// How requests were served, in a fleet that splits them.
    pub plans: Plans,
    /// Prompts that were handed over there.
    pub hand_overs: HandOvers,
    /// Work of the busiest replica over the mean. Work is prompt tokens computed.
    pub max_over_mean_work: f64,
    /// Prompt tokens computed, all replicas together.
    pub work_tokens: u64,
    /// Requests sent elsewhere than to the holder of the longest known prefix.
    pub spills: u64,
    /// Requests for which more than a block too much was expected.
    pub over_predicted: u64,
    /// Requests for which more than a block too little was expected.
    pub under_predicted: u64,
    /// Requests answered in full.
    pub answered: u64,
    /// Tokens of these answers.
    pub answer_tokens: u64,
    /// Requests cut off by the end of their engine.
    pub cut_off: u64,
    /// Requests that found no engine.
    pub failed: u64,
    /// Requests that an engine did not take.
    pub refused: u64,
    /// Times a request was sent to another engine after a failure.
    pub retries: u64,
    /// Requests put back by engines for want of cache.
    pub preemptions: u64,
    /// Prompt tokens computed by each replica.
    pub work_by_replica: Vec<u64>,
    /// Requests answered by each replica; of a prefill replica, whose prompts it computed.
    pub requests_by_replica: Vec<u64>,
    /// Seconds each replica computed.
    pub busy_seconds_by_replica: Vec<f64>,
    /// All times to the first token in milliseconds, ascending.
    #[serde(skip)]
    pub ttfts: Vec<f64>,
    /// All times to the last token in milliseconds, ascending.
    #[serde(skip)]
    pub e2es: Vec<f64>,
}

/// How requests were served in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plans {
    /// In two legs.
    pub split: u64,
    /// By a decode engine that held enough.
    pub decode_holds: u64,
    /// By a unified engine.
    pub unified: u64,
    /// By a decode engine, as no prefill engine could.
    pub no_prefill: u64,
}

/// Prompts that were handed over from one engine to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HandOvers {
    /// Prompt tokens that travelled.
    pub tokens: u64,
    /// Prompts that were kept until their time was over.
    pub leases_expired: u64,
    /// Prompts that were still kept when the last request ended.
    pub leases_left: u64,
}

impl Comparison {
    pub(crate) fn new(
        workload: &Workload,
        options: &Options,
        ideal_hit_rate: f64,
        policies: Vec<PolicyReport>,
    ) -> Self {
        let largest = policies.iter().map(|report| report.fleet.replicas()).max();
        Self {
            workload: workload.name.clone(),
            requests: workload.requests.len(),
            replicas: largest.unwrap_or_else(|| options.all_replicas()),
            gateways: options.gateways,
            time_scale: options.time_scale,
            seed: options.seed,
            ideal_hit_rate,
            by_fleet: options.fleet().splits(),
            policies,
        }
    }
}

impl Spread {
    /// Of numbers in ascending order.
    #[must_use]
    pub fn of(sorted: &[f64]) -> Self {
        let rank = |part: f64| {
            // Nearest rank; the product is at most the length.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let sum: f64 = sorted.iter().sum();
        let mean = if sorted.is_empty() { 0.0 } else { sum / sorted.len() as f64 };
        Self { mean, p50: rank(0.5), p90: rank(0.9), p99: rank(0.99) }
    }
}

impl Plans {
    fn of(records: &[Record]) -> Self {
        let mut plans = Self::default();
        for plan in records.iter().filter_map(|record| record.plan) {
            *match plan {
                PairPlan::Split => &mut plans.split,
                PairPlan::DecodeHolds => &mut plans.decode_holds,
                PairPlan::Unified => &mut plans.unified,
                // Every simulated request may be split.
                PairPlan::NoPrefill | PairPlan::NotSplit => &mut plans.no_prefill,
            } += 1;
        }
        plans
    }

    /// Each with its name.
    pub(crate) fn named(self) -> [(&'static str, u64); 4] {
        let Self { split, decode_holds, unified, no_prefill } = self;
        [
            (PairPlan::Split.as_str(), split),
            (PairPlan::DecodeHolds.as_str(), decode_holds),
            (PairPlan::Unified.as_str(), unified),
            (PairPlan::NoPrefill.as_str(), no_prefill),
        ]
    }
}

impl PolicyReport {
    /// What it is called beside others: the policy, and the fleet where fleets are compared.
    #[must_use]
    pub fn label(&self, comparison: &Comparison) -> String {
        match comparison.by_fleet {
            true => format!("{} {}", self.policy, self.fleet),
            false => self.policy.clone(),
        }
    }

    pub(crate) fn new(
        policy: &SimPolicy,
        fleet: Fleet,
        prepared: &Prepared<'_>,
        outcome: &Outcome,
    ) -> Self {
        let records = &outcome.records;
        let begun =
            || records.iter().zip(&prepared.prompt_tokens).filter(|(r, _)| r.first.is_some());
        let prompts: u64 = begun().map(|(_, tokens)| tokens).sum();
        let part = |tokens: u64| if prompts == 0 { 0.0 } else { tokens as f64 / prompts as f64 };
        let count = |is: &dyn Fn(&Record) -> bool| records.iter().filter(|r| is(r)).count() as u64;
        let ended = |how: Ended| count(&|record| record.ended == how);
        let block = prepared.block_size;
        let work: Vec<u64> = outcome.replicas.iter().map(|r| r.work_tokens).collect();
        let answered = || records.iter().filter(|record| record.ended == Ended::Answered);
        let ttfts = ascending(begun().filter_map(|(r, _)| Some(ms(r.first? - r.arrived))));
        let e2es = ascending(answered().map(|r| ms(r.ended_at.saturating_sub(r.arrived))));
        let tpots = ascending(answered().filter(|r| r.outputs > 1).filter_map(|r| {
            Some(ms(r.ended_at.saturating_sub(r.first?)) / f64::from(r.outputs - 1))
        }));
        Self {
            policy: policy.name(),
            fleet,
            token_hit_rate: part(begun().map(|(r, _)| u64::from(r.cached)).sum()),
            ideal_hit_rate: prepared.ideal_hit_rate,
            predicted_hit_rate: part(begun().map(|(r, _)| u64::from(r.predicted)).sum()),
            ttft_ms: Spread::of(&ttfts),
            e2e_ms: Spread::of(&e2es),
            tpot_ms: Spread::of(&tpots),
            itl_ms: outcome.gaps.spread(),
            throughput_rps: throughput(records),
            plans: Plans::of(records),
            hand_overs: HandOvers {
                tokens: outcome.hand_overs.tokens,
                leases_expired: outcome.hand_overs.expired,
                leases_left: outcome.hand_overs.kept,
            },
            max_over_mean_work: max_over_mean(&work),
            work_tokens: work.iter().sum(),
            spills: count(&|record| record.spilled),
            over_predicted: count(&|r| r.first.is_some() && r.predicted > r.cached + block),
            under_predicted: count(&|r| r.first.is_some() && r.cached > r.predicted + block),
            answered: ended(Ended::Answered),
            answer_tokens: answered().map(|record| u64::from(record.outputs)).sum(),
            cut_off: ended(Ended::CutOff),
            failed: ended(Ended::Failed),
            refused: ended(Ended::Refused),
            retries: records.iter().map(|r| u64::from(r.attempts.saturating_sub(1))).sum(),
            preemptions: outcome.replicas.iter().map(|r| r.preemptions).sum(),
            requests_by_replica: outcome.replicas.iter().map(|r| r.requests).collect(),
            busy_seconds_by_replica: outcome.replicas.iter().map(|r| r.busy_seconds).collect(),
            work_by_replica: work,
            ttfts,
            e2es,
        }
    }
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

fn ascending(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

fn throughput(records: &[Record]) -> f64 {
    let answered = || records.iter().filter(|record| record.ended == Ended::Answered);
    let first = records.iter().map(|record| record.arrived).min().unwrap_or(0);
    let last = answered().map(|record| record.ended_at).max().unwrap_or(0);
    let seconds = last.saturating_sub(first) as f64 / 1e9;
    if seconds > 0.0 { answered().count() as f64 / seconds } else { 0.0 }
}

fn max_over_mean(work: &[u64]) -> f64 {
    let (most, sum) = (work.iter().copied().max().unwrap_or(0), work.iter().sum::<u64>());
    if sum == 0 { 0.0 } else { most as f64 * work.len() as f64 / sum as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let numbers: Vec<f64> = (1..=200).map(f64::from).collect();
        let spread = Spread::of(&numbers);
        assert_eq!(spread, Spread { mean: 100.5, p50: 100.0, p90: 180.0, p99: 198.0 });
        assert_eq!(Spread::of(&[3.0]), Spread { mean: 3.0, p50: 3.0, p90: 3.0, p99: 3.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn the_busiest_replica_over_the_mean() {
        assert!((max_over_mean(&[10, 20, 30]) - 1.5).abs() < 1e-9);
        assert!(max_over_mean(&[0, 0]).abs() < 1e-9);
    }
}
