//! The connections' metric families, in Prometheus' text form.

use std::collections::BTreeMap;

use kvasir_metrics::{header, sample};

use crate::upstream::{OriginStats, Upstream};

const RESULTS: [&str; 5] = ["ok", "pool", "dns", "tcp", "tls"];

/// Appends the families of all `upstreams` together, by engine.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn render(page: &mut String, upstreams: &[&Upstream]) {
    let mut all: BTreeMap<String, OriginStats> = BTreeMap::new();
    for one in upstreams.iter().flat_map(|upstream| upstream.stats()) {
        let sum = all.entry(one.url.clone()).or_default();
        sum.idle += one.idle;
        sum.busy += one.busy;
        sum.waiting += one.waiting;
        sum.connects.iter_mut().zip(one.connects).for_each(|(sum, more)| *sum += more);
        sum.reused += one.reused;
        sum.unsent += one.unsent;
        sum.refused += one.refused;
        sum.repeated += one.repeated;
    }
    let mut family = |name: &str, rows: &Rows<'_>| {
        header(page, name);
        for (url, stats) in &all {
            for (label, value) in rows(stats) {
                let labels: Vec<(&str, &str)> =
                    [("endpoint", &**url)].into_iter().chain(label).collect();
                sample(page, name, &labels, value as f64);
            }
        }
    };
    family("kvasir_upstream_connections", &|stats| {
        let (idle, busy) = (stats.idle as u64, stats.busy as u64);
        vec![(Some(("state", "idle")), idle), (Some(("state", "busy")), busy)]
    });
    family("kvasir_upstream_waiting", &|stats| vec![(None, stats.waiting as u64)]);
    family("kvasir_upstream_connects_total", &|stats| {
        let counts = RESULTS.iter().zip(stats.connects);
        counts.map(|(word, count)| (Some(("result", *word)), count)).collect()
    });
    family("kvasir_upstream_reused_total", &|stats| vec![(None, stats.reused)]);
    family("kvasir_upstream_stale_retries_total", &|stats| {
        let all =
            [("unsent", stats.unsent), ("refused", stats.refused), ("repeated", stats.repeated)];
        all.map(|(word, count)| (Some(("request", word)), count)).to_vec()
    });
    let stale: u64 = upstreams.iter().map(|upstream| upstream.stale_names()).sum();
    header(page, "kvasir_upstream_stale_names_total");
    sample(page, "kvasir_upstream_stale_names_total", &[], stale as f64);
}

/// Label and value of each row.
type Rows<'a> = dyn Fn(&OriginStats) -> Vec<(Option<(&'static str, &'static str)>, u64)> + 'a;
