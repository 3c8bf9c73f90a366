//! The last half hour in steps of ten seconds, by pool: how many requests, how long they took, and what
//! of their prompts was cached.
//!
//! Times are counted in classes each of which is an eighth wider than the last, so that a percentile is right to
//! a sixteenth, whatever the number of requests.

use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::recent::Decided;

/// Seconds of a step.
const STEP_S: u64 = 10;
/// Steps that are kept: half an hour.
const KEPT_STEPS: u64 = 180;
/// Pools that are told apart; further ones are not followed.
const MAX_POOLS: usize = 64;
/// Classes of times: the first ends at 0.1 ms, the last holds all from 100 minutes on.
const CLASSES: usize = 160;
/// Milliseconds at which the first class ends.
const FIRST_MS: f64 = 0.1;
/// How many times as far each class ends as the one before it.
const RATIO: f64 = 1.12;

/// How often times were in each class.
#[derive(Clone, Debug)]
struct Times {
    count: u64,
    classes: Box<[u32; CLASSES]>,
}

/// What ended within one step.
#[derive(Clone, Debug, Default)]
struct Step {
    requests: u64,
    failed: u64,
    prompt_tokens: u64,
    predicted_tokens: u64,
    judged: Judged,
    first_data: Times,
    total: Times,
}

/// Of answers that report cached tokens that can be compared.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    requests: u64,
    prompt_tokens: u64,
    predicted_tokens: u64,
    reported_tokens: u64,
}

/// Steps of each pool, with their numbers since 1970, oldest first; those without requests are left out.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<BTreeMap<String, VecDeque<(u64, Step)>>>);

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Timeline {
    pub(crate) fn count(&self, decided: &Decided) {
        self.count_at(decided, now_s());
    }

    fn count_at(&self, decided: &Decided, now_s: u64) {
        let number = now_s / STEP_S;
        let mut pools = self.0.lock();
        if !pools.contains_key(&decided.pool) {
            forget_before(&mut pools, number);
            if pools.len() >= MAX_POOLS {
                return;
            }
        }
        let steps = pools.entry(decided.pool.clone()).or_default();
        // A clock that was put back counts on in the latest step.
        if steps.back().is_none_or(|(latest, _)| *latest < number) {
            steps.push_back((number, Step::default()));
            while steps.front().is_some_and(|(oldest, _)| oldest + KEPT_STEPS <= number) {
                steps.pop_front();
            }
        }
        if let Some((_, step)) = steps.back_mut() {
            step.count(decided);
        }
    }

    /// For the API: of one pool, or of all together.
    pub(crate) fn shown(&self, pool: Option<&str>) -> Value {
        self.shown_at(pool, now_s())
    }

    fn shown_at(&self, pool: Option<&str>, now_s: u64) -> Value {
        let mut together: BTreeMap<u64, Step> = BTreeMap::new();
        {
            let pools = self.0.lock();
            let asked = pools.iter().filter(|(name, _)| pool.is_none_or(|pool| pool == *name));
            let oldest = (now_s / STEP_S + 1).saturating_sub(KEPT_STEPS);
            for (number, step) in asked.flat_map(|(_, steps)| steps) {
                if *number >= oldest {
                    together.entry(*number).or_default().add(step);
                }
            }
        }
        let steps = together.iter().map(|(number, step)| step.shown(number * STEP_S));
        json!({
            "now_unix_s": now_s,
            "step_s": STEP_S,
            "kept_s": KEPT_STEPS * STEP_S,
            "steps": steps.collect::<Vec<Value>>(),
        })
    }
}

/// Pools without a request for as long as steps are kept make room.
fn forget_before(pools: &mut BTreeMap<String, VecDeque<(u64, Step)>>, number: u64) {
    pools.retain(|_, steps| steps.back().is_some_and(|(latest, _)| latest + KEPT_STEPS > number));
}

impl Step {
    fn count(&mut self, decided: &Decided) {
        self.requests += 1;
        let is_whole = matches!(decided.outcome, "complete" | "client_left");
        self.failed += u64::from(!is_whole || decided.status >= 500);
        self.prompt_tokens = self.prompt_tokens.saturating_add(decided.prompt_tokens);
        self.predicted_tokens = self.predicted_tokens.saturating_add(decided.overlap);
        if let (Some(reported), true) = (decided.reported_cached_tokens, decided.comparable) {
            self.judged.add(Judged {
                requests: 1,
                prompt_tokens: decided.prompt_tokens,
                predicted_tokens: decided.overlap,
                reported_tokens: reported,
            });
        }
        if let Some(ms) = decided.first_data_ms {
            self.first_data.count(ms);
        }
        self.total.count(decided.total_ms);
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.predicted_tokens = self.predicted_tokens.saturating_add(other.predicted_tokens);
        self.judged.add(other.judged);
        self.first_data.add(&other.first_data);
        self.total.add(&other.total);
    }

    fn shown(&self, start_unix_s: u64) -> Value {
        let Judged { requests, prompt_tokens, predicted_tokens, reported_tokens } = self.judged;
        json!({
            "start_unix_s": start_unix_s,
            "requests": self.requests,
            "failed": self.failed,
            "prompt_tokens": self.prompt_tokens,
            "predicted_cached_tokens": self.predicted_tokens,
            "judged": {
                "requests": requests,
                "prompt_tokens": prompt_tokens,
                "predicted_cached_tokens": predicted_tokens,
                "reported_cached_tokens": reported_tokens,
            },
            "first_data_ms": self.first_data.shown(),
            "total_ms": self.total.shown(),
        })
    }
}

impl Judged {
    fn add(&mut self, other: Self) {
        for (into, from) in [
            (&mut self.requests, other.requests),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.predicted_tokens, other.predicted_tokens),
            (&mut self.reported_tokens, other.reported_tokens),
        ] {
            *into = into.saturating_add(from);
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self { count: 0, classes: Box::new([0; CLASSES]) }
    }
}

impl Times {
    fn count(&mut self, ms: f64) {
        let ends = std::iter::successors(Some(FIRST_MS), |end| Some(end * RATIO));
        let class = ends.take(CLASSES - 1).position(|end| ms <= end).unwrap_or(CLASSES - 1);
        if let Some(known) = self.classes.get_mut(class) {
            *known = known.saturating_add(1);
            self.count += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        for (into, from) in self.classes.iter_mut().zip(other.classes.iter()) {
            *into = into.saturating_add(*from);
        }
    }

    /// The middle of the class that so many hundredths of the times lie in or below; `None` of none.
    fn percentile(&self, hundredths: u64) -> Option<f64> {
        let rank = (self.count * hundredths).div_ceil(100).max(1);
        let mut end = FIRST_MS;
        let mut below = 0;
        for in_class in self.classes.iter() {
            below += u64::from(*in_class);
            if below >= rank {
                return Some(end / RATIO.sqrt());
            }
            end *= RATIO;
        }
        None
    }

    fn shown(&self) -> Option<Value> {
        let (p50, p95) = (self.percentile(50)?, self.percentile(95)?);
        let rounded = |ms: f64| (ms * 100.0).round() / 100.0;
        Some(json!({"count": self.count, "p50": rounded(p50), "p95": rounded(p95)}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(pool: &str, first_data_ms: f64, outcome: &'static str) -> Decided {
        Decided {
            pool: pool.to_owned(),
            prompt_tokens: 100,
            overlap: 64,
            reported_cached_tokens: Some(48),
            comparable: true,
            outcome,
            first_data_ms: Some(first_data_ms),
            total_ms: 10.0 * first_data_ms,
            ..Decided::default()
        }
    }

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        for scale in [0.2, 3.0, 170.0, 30_000.0] {
            let mut times = Times::default();
            (1..=100).for_each(|n| times.count(scale * f64::from(n)));
            for (hundredths, exact) in [(50, 50.0 * scale), (95, 95.0 * scale)] {
                let found = times.percentile(hundredths).unwrap();
                assert!((found / exact - 1.0).abs() < 0.0625, "{scale} {hundredths}: {found}");
            }
        }
        assert_eq!(Times::default().percentile(50), None);
    }

    #[test]
    fn times_beyond_every_class_are_counted_in_the_last() {
        let mut times = Times::default();
        [0.0, f64::MAX, f64::INFINITY, f64::NAN].into_iter().for_each(|ms| times.count(ms));
        assert_eq!((times.count, times.classes[0], times.classes[CLASSES - 1]), (4, 1, 3));
    }

    #[test]
    fn steps_are_of_one_pool_or_of_all_and_old_ones_go() {
        let timeline = Timeline::default();
        timeline.count_at(&decided("a", 20.0, "complete"), 1000);
        timeline.count_at(&decided("b", 20.0, "engine_broke_off"), 1009);
        timeline.count_at(&decided("a", 20.0, "client_left"), 1010);
        let all = timeline.shown_at(None, 1011);
        assert_eq!(all["steps"].as_array().unwrap().len(), 2);
        let first = &all["steps"][0];
        assert_eq!((&first["start_unix_s"], &first["requests"]), (&json!(1000), &json!(2)));
        assert_eq!((&first["failed"], &all["steps"][1]["failed"]), (&json!(1), &json!(0)));
        assert_eq!(first["judged"]["reported_cached_tokens"], 96);
        assert_eq!(first["judged"]["prompt_tokens"], 200);
        assert_eq!(first["first_data_ms"]["count"], 2);
        assert_eq!(timeline.shown_at(Some("b"), 1011)["steps"].as_array().unwrap().len(), 1);
        assert_eq!(timeline.shown_at(Some("c"), 1011)["steps"], json!([]));
        let later = 1000 + KEPT_STEPS * STEP_S;
        let kept = timeline.shown_at(None, later);
        assert_eq!(kept["steps"].as_array().unwrap().len(), 1);
        timeline.count_at(&decided("a", 20.0, "complete"), later);
        assert_eq!(timeline.0.lock()["a"].len(), 2);
    }

    #[test]
    fn pools_are_bounded_and_idle_ones_make_room() {
        let timeline = Timeline::default();
        (0..1000).for_each(|n| timeline.count_at(&decided(&n.to_string(), 1.0, ""), 1000));
        assert_eq!(timeline.0.lock().len(), MAX_POOLS);
        timeline.count_at(&decided("new", 1.0, ""), 1000 + KEPT_STEPS * STEP_S);
        assert_eq!(timeline.0.lock().keys().collect::<Vec<_>>(), ["new"]);
    }
}
