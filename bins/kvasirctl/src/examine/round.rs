//! What one look at all engines gave.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvasir_doctor::{Examination, Leg, LegName, Verdict};
use serde_json::{Map, Value, json};

/// One look: an examination for each pool, or one for engines of no pool.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) pools: Vec<(Option<String>, Examination)>,
    /// When it was through, since 1970.
    at: Duration,
}

/// Where a leg belongs: the pool, and the engine's URL or none for legs across engines.
pub(super) type Place<'a> = (Option<&'a str>, Option<&'a str>);

impl Round {
    pub(super) fn new(pools: Vec<(Option<String>, Examination)>) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { pools, at }
    }

    /// The worst of all legs.
    pub(super) fn verdict(&self) -> Verdict {
        Verdict::worst(self.pools.iter().map(|(_, examination)| examination.verdict))
    }

    /// Every leg and where it belongs.
    pub(super) fn legs(&self) -> impl Iterator<Item = (Place<'_>, &Leg)> {
        self.pools.iter().flat_map(|(model, examination)| {
            let model = model.as_deref();
            let within = examination.endpoints.iter().flat_map(move |report| {
                let place = (model, Some(report.base_url.as_str()));
                report.legs.iter().map(move |leg| (place, leg))
            });
            within.chain(examination.across.iter().map(move |leg| ((model, None), leg)))
        })
    }

    /// The legs that were not there before, or said something else.
    pub(super) fn changed_since(&self, before: &Self) -> Vec<(Place<'_>, &Leg)> {
        let known: Vec<(Place<'_>, &Leg)> = before.legs().collect();
        let same = |place: &Place<'_>, leg: &Leg| {
            known.iter().any(|(there, old)| {
                there == place
                    && (old.leg, old.verdict, &old.finding) == (leg.leg, leg.verdict, &leg.finding)
            })
        };
        self.legs().filter(|(place, leg)| !same(place, leg)).collect()
    }

    /// The legs that were there before and were not looked at now, by where they belong.
    pub(super) fn gone_since<'a>(&self, before: &'a Self) -> Vec<(Place<'a>, Vec<LegName>)> {
        let mut gone: Vec<(Place<'a>, Vec<LegName>)> = Vec::new();
        for (place, leg) in before.legs() {
            if self.legs().any(|(there, now)| there == place && now.leg == leg.leg) {
                continue;
            }
            match gone.last_mut().filter(|(there, _)| *there == place) {
                Some((_, legs)) => legs.push(leg.leg),
                None => gone.push((place, vec![leg.leg])),
            }
        }
        gone
    }

    /// Such as `off: 9 ok, 1 unknown, 2 off`.
    pub(super) fn summary(&self) -> String {
        let count = |verdict| self.legs().filter(|(_, leg)| leg.verdict == verdict).count();
        let [ok, unknown, off] = [Verdict::Ok, Verdict::Unknown, Verdict::Off].map(count);
        format!("{}: {ok} ok, {unknown} unknown, {off} off", self.verdict())
    }

    /// The time of day in UTC.
    pub(super) fn time(&self) -> String {
        let seconds = self.at.as_secs() % 86_400;
        format!("{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
    }

    /// The examination, or one for each pool. `timed` adds when it was.
    pub(super) fn to_json(&self, timed: bool) -> Value {
        let mut object = Map::new();
        if timed {
            object.insert("at".to_owned(), self.at.as_secs().into());
        }
        match self.pools.as_slice() {
            [(None, examination)] => object.extend(fields(examination)),
            pools => {
                object.insert("verdict".to_owned(), self.verdict().as_str().into());
                let pools = pools.iter().map(|(model, examination)| {
                    let mut pool = Map::from_iter([("model".to_owned(), json!(model))]);
                    pool.extend(fields(examination));
                    Value::Object(pool)
                });
                object.insert("pools".to_owned(), pools.collect());
            }
        }
        Value::Object(object)
    }
}

fn fields(examination: &Examination) -> Map<String, Value> {
    match serde_json::to_value(examination) {
        Ok(Value::Object(fields)) => fields,
        // Names, verdicts and texts always make an object.
        _ => Map::new(),
    }
}
