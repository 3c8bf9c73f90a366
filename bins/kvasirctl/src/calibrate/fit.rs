//! The cost model that comes nearest to what was measured.
//!
//! With the knee `K` of a step given (how many tokens take as long to compute as the weights to
//! read, `weights = K · per_token`), every time is linear in the other costs, so that least squares
//! with no cost below 0 finds them. The knee is looked for in a list of values and then between
//! the best one's neighbours. What is made small is the relative error: a short time counts as
//! much as a long one.

mod solve;

use kvasir_engine_sim::CostModel;

use self::solve::{COSTS, Row, non_negative};

/// Values of the knee that are tried before it is looked for in between.
const KNEES: u32 = 60;
/// Halvings of the interval in between.
const REFINEMENTS: u32 = 40;

/// One step, as far as its time depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) requests: f64,
    /// Tokens computed, of prompts and of answers.
    pub(super) tokens: f64,
    /// Query-key pairs of prompts.
    pub(super) pairs: f64,
    /// Tokens of context read for answers.
    pub(super) context: f64,
}

/// A time and what was done in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observation {
    /// Whether a request was sent and its first token received in it.
    pub(super) request: bool,
    pub(super) steps: Vec<Step>,
    pub(super) seconds: f64,
}

/// What was fitted.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    pub(super) cost: CostModel,
    /// Seconds that a request takes besides its steps: HTTP, queues between processes.
    pub(super) request: f64,
    /// Whether a step with several requests tells `per_request` from `step_overhead`. Without one
    /// only their sum means something.
    pub(super) requests_told_apart: bool,
    /// What the model says of each observation.
    pub(super) seconds: Vec<f64>,
}

/// Measurements that no model can be fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FitError {
    #[error("a measured time is not above 0, or no number")]
    BadTime,
    #[error("first tokens of at least three lengths of prompts are needed, there are {0}")]
    Prompts(usize),
    #[error("steps of answers at two or more lengths of context are needed, there are {0}")]
    Contexts(usize),
    #[error("the measurements do not tell costs apart: longer and more different prompts may")]
    Degenerate,
}

/// Fits.
pub(super) fn fit(observations: &[Observation]) -> Result<Fitted, FitError> {
    check(observations)?;
    let largest = observations.iter().flat_map(|o| &o.steps).map(|step| step.tokens);
    let largest = largest.fold(1.0, f64::max);
    let at = |knee: f64| Some((knee, solution(observations, knee)?));
    // From one token to the largest step, evenly in proportion; and no knee at all.
    let knee = |place: u32| largest.powf(f64::from(place) / f64::from(KNEES - 1));
    let tried = std::iter::once(0.0).chain((0..KNEES).map(knee));
    let mut best = tried
        .filter_map(at)
        .min_by(|a, b| a.1.error.total_cmp(&b.1.error))
        .ok_or(FitError::Degenerate)?;
    if best.0 > 0.0 {
        let ratio = largest.powf(1.0 / f64::from(KNEES - 1));
        let (mut low, mut high) = (best.0 / ratio, best.0 * ratio);
        for _ in 0..REFINEMENTS {
            let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            let (Some(left), Some(right)) = (at(left), at(right)) else { break };
            if left.1.error <= right.1.error {
                high = right.0;
            } else {
                low = left.0;
            }
            for found in [left, right] {
                if found.1.error < best.1.error {
                    best = found;
                }
            }
        }
    }
    Ok(fitted(observations, best.0, &best.1))
}

/// The best costs at one knee.
#[derive(Clone, Copy, Debug)]
struct Solution {
    costs: [f64; COSTS],
    /// Sum of squares of relative errors.
    error: f64,
}

fn solution(observations: &[Observation], knee: f64) -> Option<Solution> {
    let rows: Vec<Row> = observations.iter().map(|o| row(o, knee, 1.0 / o.seconds)).collect();
    let (costs, error) = non_negative(&rows)?;
    Some(Solution { costs, error })
}

/// How often each cost occurs in an observation, times a weight.
fn row(observation: &Observation, knee: f64, weight: f64) -> Row {
    let sum = |of: &dyn Fn(&Step) -> f64| observation.steps.iter().map(of).sum::<f64>() * weight;
    Row {
        counts: [
            if observation.request { weight } else { 0.0 },
            sum(&|_| 1.0),
            sum(&|step| step.tokens.max(knee)),
            sum(&|step| step.requests),
            sum(&|step| step.context),
            sum(&|step| step.pairs),
        ],
        value: observation.seconds * weight,
    }
}

fn fitted(observations: &[Observation], knee: f64, solution: &Solution) -> Fitted {
    let [request, step_overhead, per_token, per_request, per_context_token, per_attention_pair] =
        solution.costs;
    let weights = knee * per_token;
    let cost = CostModel {
        step_overhead,
        weights,
        per_token,
        per_request,
        per_context_token,
        per_attention_pair,
        speed: 1.0,
    };
    let said = |o: &Observation| {
        let row = row(o, knee, 1.0);
        row.counts.iter().zip(&solution.costs).map(|(count, cost)| count * cost).sum()
    };
    let requests_told_apart =
        observations.iter().flat_map(|o| &o.steps).any(|step| step.requests > 1.0);
    let seconds = observations.iter().map(said).collect();
    Fitted { cost, request, requests_told_apart, seconds }
}

fn check(observations: &[Observation]) -> Result<(), FitError> {
    if observations.iter().any(|o| !(o.seconds.is_finite() && o.seconds > 0.0)) {
        return Err(FitError::BadTime);
    }
    let different = |mut numbers: Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        // Half a percent more is the same length.
        numbers.dedup_by(|a, b| *a <= *b * 1.005);
        numbers.len()
    };
    let of = |request: bool| observations.iter().filter(move |o| o.request == request);
    let prompts = different(of(true).map(|o| o.steps.iter().map(|s| s.tokens).sum()).collect());
    if prompts < 3 {
        return Err(FitError::Prompts(prompts));
    }
    let contexts = different(of(false).flat_map(|o| o.steps.first()).map(|s| s.context).collect());
    if contexts < 2 {
        return Err(FitError::Contexts(contexts));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
