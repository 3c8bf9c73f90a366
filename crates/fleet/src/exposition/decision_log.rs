//! Families about the decision logs of pools.

use std::sync::Arc;

use kvasir_metrics::{header, sample};

use crate::decision_log::Account;
use crate::pool::Pool;

/// Renders nothing where no decisions are logged.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn render(page: &mut String, pools: &[Arc<Pool>]) {
    let logs: Vec<(&str, &Arc<Account>)> =
        pools.iter().filter_map(|pool| Some((pool.model(), pool.decision_log()?))).collect();
    if logs.is_empty() {
        return;
    }
    let name = "kvasir_decision_log_state";
    header(page, name);
    for (model, log) in &logs {
        let (state, reason) = log.words();
        sample(page, name, &[("model", model), ("state", state), ("reason", reason)], 1.0);
    }
    let name = "kvasir_decision_log_lines_total";
    header(page, name);
    for (model, log) in &logs {
        sample(page, name, &[("model", model)], log.lines() as f64);
    }
    let name = "kvasir_decision_log_bytes_total";
    header(page, name);
    for (model, log) in &logs {
        sample(page, name, &[("model", model)], log.bytes() as f64);
    }
    let name = "kvasir_decision_log_dropped_total";
    header(page, name);
    for (model, log) in &logs {
        for (reason, lines) in log.dropped() {
            sample(page, name, &[("model", model), ("reason", reason)], lines as f64);
        }
    }
}
