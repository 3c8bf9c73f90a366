//! The comparison as JSON, for scripts.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Comparison;

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

/// One line a policy's number, in an object `policies` by name. Times are in milliseconds.
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
    let policies = comparison
        .policies
        .iter()
        .map(|report| (report.policy.clone(), serde_json::to_value(report).unwrap_or(Value::Null)));
    all.insert("policies".to_owned(), Value::Object(policies.collect()));
    serde_json::to_string_pretty(&Value::Object(all)).unwrap_or_default()
}
