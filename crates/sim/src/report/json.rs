//! The comparison as JSON, for scripts.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Comparison, PolicyReport};
use crate::options::Fleet;

#[derive(Serialize)]
struct Head<'a> {
    workload: &'a str,
    requests: usize,
    replicas: usize,
    gateways: usize,
    time_scale: f64,
    seed: u64,
    ideal_hit_rate: f64,
}

/// One line a policy's number, in an object `policies` by name; where fleets are compared, one such for
/// each in an object `fleets`. Times are in milliseconds.
#[must_use]
pub fn json(comparison: &Comparison) -> String {
    let head = Head {
        workload: &comparison.workload,
        requests: comparison.requests,
        replicas: comparison.replicas,
        gateways: comparison.gateways,
        time_scale: comparison.time_scale,
        seed: comparison.seed,
        ideal_hit_rate: comparison.ideal_hit_rate,
    };
    let mut all = match serde_json::to_value(head) {
        Ok(Value::Object(map)) => map,
        // Plain numbers and text always make an object.
        _ => Map::new(),
    };
    if comparison.by_fleet {
        let mut fleets = Map::new();
        for report in &comparison.policies {
            let name = report.fleet.to_string();
            fleets.entry(name).or_insert_with(|| of_fleet(report.fleet, comparison));
        }
        all.insert("fleets".to_owned(), Value::Object(fleets));
    } else {
        all.insert("policies".to_owned(), policies(comparison.policies.iter()));
    }
    serde_json::to_string_pretty(&Value::Object(all)).unwrap_or_default()
}

fn of_fleet(fleet: Fleet, comparison: &Comparison) -> Value {
    let Fleet { unified, prefill, decode } = fleet;
    let reports = comparison.policies.iter().filter(|report| report.fleet == fleet);
    serde_json::json!({
        "unified": unified,
        "prefill": prefill,
        "decode": decode,
        "policies": policies(reports),
    })
}

fn policies<'a>(reports: impl Iterator<Item = &'a PolicyReport>) -> Value {
    let value = |report: &PolicyReport| {
        (report.policy.clone(), serde_json::to_value(report).unwrap_or(Value::Null))
    };
    Value::Object(reports.map(value).collect())
}
