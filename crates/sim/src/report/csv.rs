//! The comparison as CSV, one line a policy and fleet, for spreadsheets.

use super::{Comparison, PolicyReport};

type Column = (&'static str, fn(&PolicyReport) -> String);

const COLUMNS: &[Column] = &[
    ("policy", |r| r.policy.clone()),
    ("token_hit_rate", |r| rate(r.token_hit_rate)),
    ("ideal_hit_rate", |r| rate(r.ideal_hit_rate)),
    ("predicted_hit_rate", |r| rate(r.predicted_hit_rate)),
    ("ttft_mean_ms", |r| ms(r.ttft_ms.mean)),
    ("ttft_p50_ms", |r| ms(r.ttft_ms.p50)),
    ("ttft_p90_ms", |r| ms(r.ttft_ms.p90)),
    ("ttft_p99_ms", |r| ms(r.ttft_ms.p99)),
    ("e2e_mean_ms", |r| ms(r.e2e_ms.mean)),
    ("e2e_p50_ms", |r| ms(r.e2e_ms.p50)),
    ("e2e_p90_ms", |r| ms(r.e2e_ms.p90)),
    ("e2e_p99_ms", |r| ms(r.e2e_ms.p99)),
    ("tpot_mean_ms", |r| ms(r.tpot_ms.mean)),
    ("tpot_p50_ms", |r| ms(r.tpot_ms.p50)),
    ("tpot_p90_ms", |r| ms(r.tpot_ms.p90)),
    ("tpot_p99_ms", |r| ms(r.tpot_ms.p99)),
    ("itl_mean_ms", |r| ms(r.itl_ms.mean)),
    ("itl_p50_ms", |r| ms(r.itl_ms.p50)),
    ("itl_p90_ms", |r| ms(r.itl_ms.p90)),
    ("itl_p99_ms", |r| ms(r.itl_ms.p99)),
    ("throughput_rps", |r| rate(r.throughput_rps)),
    ("max_over_mean_work", |r| rate(r.max_over_mean_work)),
    ("work_tokens", |r| r.work_tokens.to_string()),
    ("spills", |r| r.spills.to_string()),
    ("over_predicted", |r| r.over_predicted.to_string()),
    ("under_predicted", |r| r.under_predicted.to_string()),
    ("answered", |r| r.answered.to_string()),
    ("answer_tokens", |r| r.answer_tokens.to_string()),
    ("cut_off", |r| r.cut_off.to_string()),
    ("failed", |r| r.failed.to_string()),
    ("refused", |r| r.refused.to_string()),
    ("retries", |r| r.retries.to_string()),
    ("preemptions", |r| r.preemptions.to_string()),
    ("fleet", |r| r.fleet.to_string()),
    ("plan_split", |r| r.plans.split.to_string()),
    ("plan_decode_alone", |r| r.plans.decode_alone.to_string()),
    ("plan_unified", |r| r.plans.unified.to_string()),
    ("plan_no_prefill", |r| r.plans.no_prefill.to_string()),
    ("handed_over_tokens", |r| r.hand_overs.tokens.to_string()),
    ("leases_expired", |r| r.hand_overs.leases_expired.to_string()),
    ("leases_left", |r| r.hand_overs.leases_left.to_string()),
];

/// A header and one line a policy and fleet.
#[must_use]
pub fn csv(comparison: &Comparison) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut text = names.join(",");
    text.push('\n');
    for report in &comparison.policies {
        let cells: Vec<String> = COLUMNS.iter().map(|(_, cell)| cell(report)).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

fn rate(number: f64) -> String {
    format!("{number:.4}")
}

fn ms(number: f64) -> String {
    format!("{number:.3}")
}
