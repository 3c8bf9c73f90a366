//! The connections' metric families, in Prometheus' text form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::upstream::{OriginStats, Upstream};

const RESULTS: [&str; 5] = ["ok", "pool", "dns", "tcp", "tls"];

/// Appends the families of all `upstreams` together, by engine.
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
    let mut family = |name: &str, kind: &str, help: &str, rows: &Rows<'_>| {
        let _ = writeln!(page, "# HELP kvasir_upstream_{name} {help}");
        let _ = writeln!(page, "# TYPE kvasir_upstream_{name} {kind}");
        for (url, stats) in &all {
            for (label, value) in rows(stats) {
                let _ = match label {
                    Some((key, word)) => writeln!(
                        page,
                        "kvasir_upstream_{name}{{endpoint=\"{url}\",{key}=\"{word}\"}} {value}"
                    ),
                    None => {
                        writeln!(page, "kvasir_upstream_{name}{{endpoint=\"{url}\"}} {value}")
                    }
                };
            }
        }
    };
    family("connections", "gauge", "Connections to engines, kept or in use.", &|stats| {
        let (idle, busy) = (stats.idle as u64, stats.busy as u64);
        vec![(Some(("state", "idle")), idle), (Some(("state", "busy")), busy)]
    });
    family("waiting", "gauge", "Requests that wait for a connection.", &|stats| {
        vec![(None, stats.waiting as u64)]
    });
    family("connects_total", "counter", "Connections opened, or why not.", &|stats| {
        let counts = RESULTS.iter().zip(stats.connects);
        counts.map(|(word, count)| (Some(("result", *word)), count)).collect()
    });
    family("reused_total", "counter", "Requests over a connection used before.", &|stats| {
        vec![(None, stats.reused)]
    });
    family("stale_retries_total", "counter", "Requests sent again at once, and why.", &|stats| {
        let all =
            [("unsent", stats.unsent), ("refused", stats.refused), ("repeated", stats.repeated)];
        all.map(|(word, count)| (Some(("request", word)), count)).to_vec()
    });
    let stale: u64 = upstreams.iter().map(|upstream| upstream.stale_names()).sum();
    let name = "kvasir_upstream_stale_names_total";
    let _ =
        writeln!(page, "# HELP {name} Connections to an address that could not be looked up anew.");
    let _ = writeln!(page, "# TYPE {name} counter\n{name} {stale}");
}

/// Label and value of each row.
type Rows<'a> = dyn Fn(&OriginStats) -> Vec<(Option<(&'static str, &'static str)>, u64)> + 'a;
