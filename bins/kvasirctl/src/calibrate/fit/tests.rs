use kvasir_balance::Rng;
use kvasir_engine_sim::CostModel;

use super::*;
use crate::calibrate::measure::chunks;

const TRUTH: CostModel = CostModel {
    step_overhead: 2e-3,
    weights: 9e-3,
    per_token: 7e-5,
    per_request: 4e-4,
    per_context_token: 3e-7,
    per_attention_pair: 6e-9,
    speed: 1.0,
};
const REQUEST: f64 = 1.3e-3;

fn seconds(cost: &CostModel, request: bool, steps: &[Step]) -> f64 {
    let of = |step: &Step| {
        cost.step_overhead
            + cost.weights.max(step.tokens * cost.per_token)
            + step.requests * cost.per_request
            + step.context * cost.per_context_token
            + step.pairs * cost.per_attention_pair
    };
    steps.iter().map(of).sum::<f64>() + if request { REQUEST } else { 0.0 }
}

/// First tokens and steps as they are measured, each time as `noise` changes it.
fn observations(cost: &CostModel, mut noise: impl FnMut(f64) -> f64) -> Vec<Observation> {
    let mut all = Vec::new();
    for prompt in [8, 100, 500, 1_000, 2_000, 4_000, 8_000] {
        let steps = chunks(prompt, 2_048);
        let seconds_ = noise(seconds(cost, true, &steps));
        all.push(Observation { request: true, steps, seconds: seconds_ });
        for answers in [1.0, 8.0] {
            let context = answers * (f64::from(prompt) + 12.0);
            let steps = vec![Step { requests: answers, tokens: answers, pairs: 0.0, context }];
            let seconds = noise(seconds(cost, false, &steps));
            all.push(Observation { request: false, steps, seconds });
        }
    }
    all
}

fn parts(cost: &CostModel, request: f64) -> [f64; 7] {
    let CostModel { step_overhead, weights, per_token, .. } = *cost;
    let CostModel { per_request, per_context_token, per_attention_pair, .. } = *cost;
    [step_overhead, weights, per_token, per_request, per_context_token, per_attention_pair, request]
}

/// A step of one answer, its context aside.
fn once(cost: &CostModel) -> f64 {
    cost.step_overhead + cost.weights + cost.per_request
}

#[test]
fn exact_times_give_the_model_back() {
    let heavy = CostModel { step_overhead: 0.0, weights: 0.05, ..TRUTH };
    for truth in [TRUTH, heavy] {
        let found = fit(&observations(&truth, |t| t)).unwrap();
        let pairs = parts(&found.cost, found.request).into_iter().zip(parts(&truth, REQUEST));
        for (found, true_) in pairs {
            assert!((found - true_).abs() <= 1e-3 * true_.max(1e-4), "{found} {true_}");
        }
    }
}

#[test]
fn noise_moves_the_model_little() {
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let found = fit(&observations(&TRUTH, |t| t * (0.98 + 0.0004 * rng.below(101) as f64)));
        let found = found.unwrap();
        let cost = found.cost;
        for (found, true_, tolerance) in [
            (cost.per_token, TRUTH.per_token, 0.1),
            (cost.per_attention_pair, TRUTH.per_attention_pair, 0.15),
            (cost.per_context_token, TRUTH.per_context_token, 0.15),
            (once(&cost), once(&TRUTH), 0.03),
        ] {
            assert!((found / true_ - 1.0).abs() < tolerance, "seed {seed}: {found} {true_}");
        }
    }
}

#[test]
fn without_steps_of_several_requests_only_a_sum_is_found() {
    let mut all = observations(&TRUTH, |t| t);
    assert!(fit(&all).unwrap().requests_told_apart);
    all.retain(|o| o.steps.iter().all(|step| step.requests < 2.0));
    let found = fit(&all).unwrap();
    assert!(!found.requests_told_apart);
    assert!((once(&found.cost) / once(&TRUTH) - 1.0).abs() < 1e-3, "{found:?}");
}

#[test]
fn no_cost_is_below_nothing() {
    // Shorter than in proportion: an attention of less than nothing would fit best.
    let mut all = observations(&TRUTH, |t| t);
    for o in all.iter_mut().filter(|o| o.request) {
        o.seconds = o.seconds.sqrt();
    }
    let found = fit(&all).unwrap();
    assert!(parts(&found.cost, found.request).iter().all(|cost| *cost >= 0.0), "{found:?}");
    assert!(found.cost.per_attention_pair.abs() < 1e-12, "{found:?}");
}

#[test]
fn what_cannot_be_fitted_is_said() {
    let all = observations(&TRUTH, |t| t);
    let refused = |keep: &dyn Fn(&Observation) -> bool| {
        let some: Vec<Observation> = all.iter().filter(|o| keep(o)).cloned().collect();
        fit(&some).unwrap_err()
    };
    assert_eq!(refused(&|_| false), FitError::Prompts(0));
    let short = |o: &Observation| o.steps.iter().map(|s| s.tokens).sum::<f64>() < 150.0;
    assert_eq!(refused(&|o| !o.request || short(o)), FitError::Prompts(2));
    assert_eq!(refused(&|o| o.request), FitError::Contexts(0));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(fit(&observations(&TRUTH, |_| bad)).unwrap_err(), FitError::BadTime);
    }
}
