//! From speeds to weights: relative within a role, smoothed, in bounded steps.
//!
//! For every engine of one role, of those that were heard of lately (fresh or soft-stale):
//!
//! ```text
//! raw = 100 * speed / largest speed          fresh
//! raw = 100                                  soft-stale: it glides to neutral
//! average = raw at first, then alpha * raw + (1 - alpha) * average
//! weight = last weight, while |average - last| < dead band and the average still moves,
//!          else average, at most `max_step` away from the last; at least 1
//! ```
//!
//! Hard-stale engines are left out: the gateway takes what is not named as neutral.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::registry::HostRole;

/// How weights follow speeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightSettings {
    /// The share of what is new in the average, above 0 and at most 1.
    pub alpha: f64,
    /// Points by which the average must differ from the weight to change it.
    pub dead_band: f64,
    /// The most points a weight changes at once.
    pub max_step: f64,
    /// Without a page for so long an engine is soft-stale; three times as long, hard-stale.
    pub stale_budget: Duration,
}

impl Default for WeightSettings {
    fn default() -> Self {
        let stale_budget = Duration::from_secs(15);
        Self { alpha: 0.3, dead_band: 5.0, max_step: 20.0, stale_budget }
    }
}

/// How long ago an engine was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Within the budget, or there is nothing to ask.
    Fresh,
    /// Within three times the budget.
    Soft,
    /// Longer.
    Hard,
}

impl Freshness {
    /// Of an engine whose last page is so old.
    #[must_use]
    pub fn of(age: Duration, budget: Duration) -> Self {
        match age {
            age if age <= budget => Self::Fresh,
            age if age <= budget.saturating_mul(3) => Self::Soft,
            _ => Self::Hard,
        }
    }
}

/// What counts of one engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Its part.
    pub role: HostRole,
    /// Its speed, in the unit of its role.
    pub speed: f64,
    /// How long ago it was heard of.
    pub freshness: Freshness,
}

/// The weights last given, and the averages behind them.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    known: BTreeMap<String, Smoothed>,
}

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    average: f64,
    weight: f64,
}

impl Weights {
    /// The weights now, by engine, 1 to 100. To be asked once an epoch.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 1 to 100")]
    pub fn next(
        &mut self,
        engines: &BTreeMap<String, Speed>,
        settings: &WeightSettings,
    ) -> BTreeMap<String, u32> {
        let mut largest = BTreeMap::<HostRole, f64>::new();
        let heard = |engine: &&Speed| engine.freshness != Freshness::Hard;
        for engine in engines.values().filter(heard) {
            let largest = largest.entry(engine.role).or_insert(engine.speed);
            *largest = largest.max(engine.speed);
        }
        self.known.retain(|name, _| engines.get(name).as_ref().is_some_and(heard));
        let mut weights = BTreeMap::new();
        for (name, engine) in engines.iter().filter(|(_, engine)| heard(engine)) {
            let raw = match engine.freshness {
                Freshness::Fresh => 100.0 * engine.speed / largest[&engine.role],
                Freshness::Soft | Freshness::Hard => 100.0,
            };
            let first = Smoothed { average: raw, weight: raw };
            let known = self.known.entry(name.clone()).or_insert(first);
            known.follow(raw, settings);
            weights.insert(name.clone(), known.weight.round().clamp(1.0, 100.0) as u32);
        }
        weights
    }
}

impl Smoothed {
    fn follow(&mut self, raw: f64, settings: &WeightSettings) {
        self.average += settings.alpha * (raw - self.average);
        let has_settled = (self.average - raw).abs() < 0.5;
        let wanted = if has_settled { raw } else { self.average };
        let change = wanted - self.weight;
        if has_settled || change.abs() >= settings.dead_band {
            self.weight += change.clamp(-settings.max_step, settings.max_step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(of: &[(&str, HostRole, f64, Freshness)]) -> BTreeMap<String, Speed> {
        let speed = |&(name, role, speed, freshness): &(&str, HostRole, f64, Freshness)| {
            (name.to_owned(), Speed { role, speed, freshness })
        };
        of.iter().map(speed).collect()
    }

    fn numbers(weights: &BTreeMap<String, u32>) -> Vec<u32> {
        weights.values().copied().collect()
    }

    use Freshness::{Fresh, Hard, Soft};
    use HostRole::{Decode, Prefill, Unified};

    #[test]
    fn speeds_are_relative_within_a_role_from_the_first_epoch_on() {
        let mut weights = Weights::default();
        let engines = fleet(&[
            ("a", Prefill, 1.0, Fresh),
            ("b", Prefill, 0.5, Fresh),
            ("c", Decode, 30.0, Fresh),
            ("d", Decode, 10.0, Fresh),
            ("e", Unified, 0.001, Fresh),
        ]);
        let settings = WeightSettings::default();
        assert_eq!(numbers(&weights.next(&engines, &settings)), [100, 50, 100, 33, 100]);
        assert_eq!(numbers(&weights.next(&engines, &settings)), [100, 50, 100, 33, 100]);
    }

    #[test]
    fn a_weight_is_never_below_one() {
        let engines = fleet(&[("a", Unified, 1000.0, Fresh), ("b", Unified, 0.1, Fresh)]);
        let first = Weights::default().next(&engines, &WeightSettings::default());
        assert_eq!(numbers(&first), [100, 1]);
    }

    #[test]
    fn a_change_comes_in_bounded_steps_and_all_of_it_in_the_end() {
        let mut weights = Weights::default();
        let settings = WeightSettings { alpha: 1.0, ..WeightSettings::default() };
        let even = fleet(&[("a", Unified, 1.0, Fresh), ("b", Unified, 1.0, Fresh)]);
        assert_eq!(numbers(&weights.next(&even, &settings)), [100, 100]);
        let uneven = fleet(&[("a", Unified, 1.0, Fresh), ("b", Unified, 0.37, Fresh)]);
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(weights.next(&uneven, &settings)["b"]);
        }
        assert_eq!(seen, [80, 60, 40, 37, 37]);
    }

    #[test]
    fn a_moving_average_within_the_dead_band_changes_nothing_until_it_settles() {
        let mut weights = Weights::default();
        let settings = WeightSettings::default();
        let of = |speed: f64| fleet(&[("a", Unified, 1.0, Fresh), ("b", Unified, speed, Fresh)]);
        assert_eq!(weights.next(&of(0.5), &settings)["b"], 50);
        // One epoch of 60: the average is 53, within the band of five.
        assert_eq!(weights.next(&of(0.6), &settings)["b"], 50);
        let mut seen = Vec::new();
        for _ in 0..12 {
            seen.push(weights.next(&of(0.6), &settings)["b"]);
        }
        assert_eq!((seen[0], seen[11]), (55, 60));
    }

    #[test]
    fn who_is_not_heard_of_glides_to_neutral_and_is_then_left_out() {
        let mut weights = Weights::default();
        let settings = WeightSettings::default();
        let of = |freshness| fleet(&[("a", Unified, 1.0, Fresh), ("b", Unified, 0.2, freshness)]);
        assert_eq!(weights.next(&of(Fresh), &settings)["b"], 20);
        let glide: Vec<u32> = (0..20).map(|_| weights.next(&of(Soft), &settings)["b"]).collect();
        assert_eq!((glide[0], glide[1], glide[19]), (40, 60, 100));
        assert_eq!(weights.next(&of(Hard), &settings).get("b"), None);
        assert_eq!(weights.next(&of(Fresh), &settings)["b"], 20, "it begins anew");
    }

    #[test]
    fn the_fastest_counts_while_it_may_come_back_only() {
        let settings = WeightSettings::default();
        let of = |freshness| fleet(&[("a", Unified, 4.0, freshness), ("b", Unified, 1.0, Fresh)]);
        assert_eq!(Weights::default().next(&of(Soft), &settings)["b"], 25);
        assert_eq!(Weights::default().next(&of(Hard), &settings)["b"], 100);
    }

    #[test]
    fn ages_are_fresh_soft_and_hard() {
        let of = |s| Freshness::of(Duration::from_secs(s), Duration::from_secs(15));
        assert_eq!([of(0), of(15), of(16), of(45), of(46)], [Fresh, Fresh, Soft, Soft, Hard]);
    }
}
