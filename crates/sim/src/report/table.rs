//! The comparison as a table, one line a policy, for terminals.

use std::fmt::Write as _;

use super::{Comparison, PolicyReport};

type Column = (&'static str, fn(&PolicyReport) -> String);

const COLUMNS: &[Column] = &[
    ("hit %", |r| format!("{:.1}", r.token_hit_rate * 100.0)),
    ("TTFT", |r| seconds(r.ttft_ms.mean)),
    ("p50", |r| seconds(r.ttft_ms.p50)),
    ("p99", |r| seconds(r.ttft_ms.p99)),
    ("E2E", |r| seconds(r.e2e_ms.mean)),
    ("p99", |r| seconds(r.e2e_ms.p99)),
    ("TPOT", |r| format!("{:.1}", r.tpot_ms.mean)),
    ("req/s", |r| format!("{:.2}", r.throughput_rps)),
    ("max/mean", |r| format!("{:.2}", r.max_over_mean_work)),
    ("spills", |r| r.spills.to_string()),
];

/// One line a policy: hit rate, times (seconds; TPOT in milliseconds), throughput, balance of work.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut text = format!(
        "{}: {} requests, {} replicas, {} gateway{}, arrivals x {}, seed {}; ideal hit rate {:.1} %\n\n",
        comparison.workload,
        comparison.requests,
        comparison.replicas,
        comparison.gateways,
        if comparison.gateways == 1 { "" } else { "s" },
        comparison.time_scale,
        comparison.seed,
        comparison.ideal_hit_rate * 100.0,
    );
    let label = comparison.policies.iter().map(|r| r.policy.len()).max().unwrap_or(0).max(8);
    let _ = write!(text, "{:label$}", "s");
    for (name, _) in COLUMNS {
        let _ = write!(text, "{name:>width$}", width = width(name));
    }
    text.push('\n');
    for report in &comparison.policies {
        let _ = write!(text, "{:label$}", report.policy);
        for (name, cell) in COLUMNS {
            let _ = write!(text, "{:>width$}", cell(report), width = width(name));
        }
        text.push('\n');
    }
    for report in &comparison.policies {
        let PolicyReport { policy, cut_off, failed, refused, .. } = report;
        if cut_off + failed + refused > 0 {
            let _ =
                writeln!(text, "{policy}: {failed} failed, {cut_off} cut off, {refused} refused");
        }
    }
    text
}

/// Seven digits and a space, or the column's name.
fn width(name: &str) -> usize {
    (name.len() + 1).max(8)
}

fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1_000.0)
}
