//! Weights that a controller advises, right or wrong: what they cost under the default policy, and what they
//! do under one that goes by weights.

use super::*;

const ENGINES: usize = 3;
/// By then every endpoint was asked 200 times and more.
const WARM: usize = 1_200;
const ALL: usize = 3_000;

/// Prompts of 500 tokens, three fifths of what engines of speeds 1, 2 and 4 can compute.
fn prompts(count: usize) -> Workload {
    let one = |n: u64| asked(n as f64 * 0.118, &[(1_000 + n, 496)], 4);
    workload((0..count as u64).map(one).collect())
}

fn advised(percents: [u8; ENGINES]) -> Options {
    let mut options = simple(ENGINES);
    options.engine.speeds = vec![1.0, 2.0, 4.0];
    options.advised = percents.to_vec();
    options
}

/// The mean time to first token of those after the first, in milliseconds.
fn after_warm_up(percents: [u8; ENGINES]) -> f64 {
    let options = advised(percents);
    let [warm, all] = [WARM, ALL].map(|count| play_one(&prompts(count), &options, "latency"));
    assert_eq!((warm.answered, all.answered), (WARM as u64, ALL as u64));
    let least = warm.requests_by_replica.iter().min().copied();
    assert!(least.is_some_and(|least| least >= 200), "{:?}", warm.requests_by_replica);
    let sum = |report: &PolicyReport, count: usize| report.ttft_ms.mean * count as f64;
    (sum(&all, ALL) - sum(&warm, WARM)) / (ALL - WARM) as f64
}

/// Were rates expected by advised weights, the swapped ones would cost five times as much.
#[test]
fn no_advice_costs_more_than_a_quarter_under_the_default_policy() {
    let neutral = after_warm_up([100, 100, 100]);
    for percents in [[25, 50, 100], [100, 50, 25], [100, 1, 1], [1, 1, 100], [1, 100, 100]] {
        let mean = after_warm_up(percents);
        assert!(mean <= 1.25 * neutral, "{percents:?}: {mean} ms, {neutral} ms by neutral weights");
    }
}

#[test]
fn work_follows_advice_under_a_policy_that_goes_by_weights() {
    let report = play_one(&prompts(700), &advised([25, 50, 100]), "weighted");
    assert_eq!(report.requests_by_replica, [100, 200, 400]);
    let report = play_one(&prompts(700), &advised([100, 100, 100]), "weighted");
    assert!(report.requests_by_replica.iter().all(|count| (233..=234).contains(count)));
}
