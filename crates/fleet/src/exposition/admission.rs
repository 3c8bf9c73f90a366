//! Families of pools that do not take everything at once: what [`crate::admission`] counts.

use std::sync::Arc;

use kvasir_metrics::{header, sample};

use crate::admission::Door;
use crate::pool::Pool;

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn render(page: &mut String, pools: &[Arc<Pool>]) {
    let doors: Vec<(&str, &Door)> =
        pools.iter().filter_map(|pool| Some((pool.model(), &**pool.door()?))).collect();
    if doors.is_empty() {
        return;
    }
    header(page, "kvasir_admission_waiting");
    for (model, door) in &doors {
        sample(page, "kvasir_admission_waiting", &[("model", model)], door.waiting() as f64);
    }
    header(page, "kvasir_admission_total");
    for (model, door) in &doors {
        let tally = door.tally();
        for (outcome, count) in [
            ("served", tally.served),
            ("overloaded", tally.overloaded),
            ("queue_full", tally.queue_full),
            ("queue_timeout", tally.waited_too_long),
            ("nobody", tally.nobody),
            ("client_left", tally.left),
        ] {
            let labels = [("model", *model), ("outcome", outcome)];
            sample(page, "kvasir_admission_total", &labels, count as f64);
        }
    }
    header(page, "kvasir_admission_unread_headers_total");
    for (model, door) in &doors {
        for (header, count) in ["priority", "timeout"].into_iter().zip(door.unread_ever()) {
            let labels = [("model", *model), ("header", header)];
            sample(page, "kvasir_admission_unread_headers_total", &labels, count as f64);
        }
    }
    header(page, "kvasir_admission_limit");
    for (model, door) in &doors {
        limits(page, model, door);
    }
}

#[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
fn limits(page: &mut String, model: &str, door: &Door) {
    let (limits, queue) = (door.spec().limits, door.spec().queue);
    let each = limits.endpoint;
    for (scope, limit, value) in [
        ("pool", "requests", limits.pool.requests.map(f64::from)),
        ("pool", "prefill_tokens", limits.pool.prefill_tokens.map(|most| most as f64)),
        ("pool", "queue_places", Some(queue.places as f64)),
        ("endpoint", "requests", each.most.requests.map(f64::from)),
        ("endpoint", "prefill_tokens", each.most.prefill_tokens.map(|most| most as f64)),
        ("endpoint", "kv_usage", each.kv_usage),
    ] {
        if let Some(value) = value {
            let labels = [("model", model), ("scope", scope), ("limit", limit)];
            sample(page, "kvasir_admission_limit", &labels, value);
        }
    }
}
