//! The metric families of parity.

use std::sync::Arc;

use kvasir_metrics::{header, sample};

use super::Unjudged;
use super::hits::{Oracle, State, Totals, Verdict};
use crate::endpoint::Endpoint;
use crate::exposition::labels;
use crate::pool::Pool;

const ORACLES: [(Oracle, &str); 2] = [(Oracle::Usage, "usage"), (Oracle::Counters, "counters")];

/// Appends all of them.
pub(crate) fn render(page: &mut String, endpoints: &[Arc<Endpoint>], pools: &[Arc<Pool>]) {
    let known: Vec<Known> = endpoints.iter().map(|endpoint| Known::of(endpoint)).collect();
    render_judged(page, &known);
    render_unjudged(page, &known);
    render_windows(page, &known);
    render_tokens(page, pools);
}

/// What is read off one endpoint at once.
struct Known {
    url: String,
    rank: Option<String>,
    totals: Totals,
    /// Of each oracle: how many are in its window, and how many of them disagree.
    windows: [(u32, u32); ORACLES.len()],
    drops: bool,
}

impl Known {
    fn of(endpoint: &Endpoint) -> Self {
        let read = |state: &State| {
            let windows = ORACLES.map(|(oracle, _)| state.window(oracle));
            let windows = windows.map(|window| (window.len(), window.off()));
            (state.totals, windows, state.drops_last_block())
        };
        let (totals, windows, drops) = endpoint.parity().read(read);
        let rank = endpoint.rank().map(|rank| rank.to_string());
        Self { url: endpoint.url().to_owned(), rank, totals, windows, drops }
    }

    fn with<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut all = labels(&self.url, self.rank.as_deref());
        all.extend(more);
        all
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn render_judged(page: &mut String, known: &[Known]) {
    let found = |known: &Known| [known.totals.usage, known.totals.counters];
    let name = "kvasir_hit_judged_total";
    header(page, name);
    for one in known {
        for ((_, oracle), found) in ORACLES.iter().zip(found(one)) {
            for (verdict, count) in Verdict::ALL.iter().zip(found.verdicts) {
                let more = [("oracle", *oracle), ("verdict", verdict.as_str())];
                sample(page, name, &one.with(&more), count as f64);
            }
        }
    }
    let name = "kvasir_hit_predicted_tokens_total";
    header(page, name);
    for one in known {
        for ((_, oracle), found) in ORACLES.iter().zip(found(one)) {
            sample(page, name, &one.with(&[("oracle", oracle)]), found.predicted as f64);
        }
    }
    let name = "kvasir_hit_reported_tokens_total";
    header(page, name);
    for one in known {
        for ((_, oracle), found) in ORACLES.iter().zip(found(one)) {
            sample(page, name, &one.with(&[("oracle", oracle)]), found.reported as f64);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn render_unjudged(page: &mut String, known: &[Known]) {
    let name = "kvasir_hit_unjudged_total";
    header(page, name);
    for one in known {
        for (why, count) in Unjudged::ALL.iter().zip(one.totals.unjudged) {
            sample(page, name, &one.with(&[("reason", why.as_str())]), count as f64);
        }
    }
    let name = "kvasir_hit_segments_left_out_total";
    header(page, name);
    for one in known {
        for (why, count) in [("foreign", one.totals.foreign), ("void", one.totals.void)] {
            sample(page, name, &one.with(&[("reason", why)]), count as f64);
        }
    }
}

fn render_windows(page: &mut String, known: &[Known]) {
    let name = "kvasir_hit_window_size";
    header(page, name);
    for one in known {
        for ((_, oracle), (len, _)) in ORACLES.iter().zip(one.windows) {
            sample(page, name, &one.with(&[("oracle", oracle)]), f64::from(len));
        }
    }
    let name = "kvasir_hit_window_over";
    header(page, name);
    for one in known {
        for ((_, oracle), (_, off)) in ORACLES.iter().zip(one.windows) {
            sample(page, name, &one.with(&[("oracle", oracle)]), f64::from(off));
        }
    }
    let name = "kvasir_hit_profile_blocks";
    header(page, name);
    for one in known {
        sample(page, name, &one.with(&[]), if one.drops { 1.0 } else { 0.0 });
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn render_tokens(page: &mut String, pools: &[Arc<Pool>]) {
    // An adapter may be of several pools.
    let states: Vec<_> = pools
        .iter()
        .flat_map(|pool| pool.token_parity().states().into_iter().map(|s| (pool.model(), s)))
        .collect();
    let name = "kvasir_token_judged_total";
    header(page, name);
    for (pool, state) in &states {
        for (verdict, count) in [("equal", state.equal), ("different", state.different)] {
            let of = [("pool", *pool), ("model", &*state.model), ("api", state.api)];
            sample(page, name, &[&of[..], &[("verdict", verdict)]].concat(), count as f64);
        }
    }
    let name = "kvasir_token_mismatch";
    header(page, name);
    for (pool, state) in &states {
        let of = [("pool", *pool), ("model", &*state.model), ("api", state.api)];
        sample(page, name, &of, if state.mismatch { 1.0 } else { 0.0 });
    }
}
