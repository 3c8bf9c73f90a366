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
    ("ITL p50", |r| format!("{:.1}", r.itl_ms.p50)),
    ("p99", |r| format!("{:.1}", r.itl_ms.p99)),
    ("req/s", |r| format!("{:.2}", r.throughput_rps)),
    ("max/mean", |r| format!("{:.2}", r.max_over_mean_work)),
    ("spills", |r| r.spills.to_string()),
];

/// One line a policy: hit rate, times (seconds; TPOT and ITL in milliseconds), throughput, balance of work.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let mut text = format!(
        "{}: {} requests, {}{} replicas, {} gateway{}, arrivals x {}, seed {}; ideal hit rate {:.1} %\n\n",
        comparison.workload,
        comparison.requests,
        if comparison.by_fleet { "fleets of up to " } else { "" },
        comparison.replicas,
        comparison.gateways,
        if comparison.gateways == 1 { "" } else { "s" },
        comparison.time_scale,
        comparison.seed,
        comparison.ideal_hit_rate * 100.0,
    );
    let labels: Vec<String> = comparison.policies.iter().map(|r| r.label(comparison)).collect();
    let label = labels.iter().map(String::len).max().unwrap_or(0).max(8);
    let _ = write!(text, "{:label$}", "s");
    for (name, _) in COLUMNS {
        let _ = write!(text, "{name:>width$}", width = width(name));
    }
    text.push('\n');
    for (report, name) in comparison.policies.iter().zip(&labels) {
        let _ = write!(text, "{name:label$}");
        for (name, cell) in COLUMNS {
            let _ = write!(text, "{:>width$}", cell(report), width = width(name));
        }
        text.push('\n');
    }
    for (report, name) in comparison.policies.iter().zip(&labels) {
        let PolicyReport { fleet, cut_off, failed, refused, .. } = report;
        if fleet.splits() {
            let _ = writeln!(text, "{name}: {}", plans(report));
        }
        if cut_off + failed + refused > 0 {
            let _ = writeln!(text, "{name}: {failed} failed, {cut_off} cut off, {refused} refused");
        }
    }
    text
}

/// How requests were served, in parts of all that were.
fn plans(report: &PolicyReport) -> String {
    let named = report.plans.named();
    let all: u64 = named.iter().map(|(_, count)| count).sum();
    let part = |count: u64| count as f64 * 100.0 / all.max(1) as f64;
    let told = named.iter().filter(|(_, count)| *count > 0);
    let told: Vec<String> =
        told.map(|(name, count)| format!("{name} {:.1} %", part(*count))).collect();
    told.join(", ")
}

/// Seven digits and a space, or the column's name.
fn width(name: &str) -> usize {
    (name.len() + 1).max(8)
}

fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1_000.0)
}
