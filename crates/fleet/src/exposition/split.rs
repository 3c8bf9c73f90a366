//! Families of disaggregated serving: who has which part, and what is kept for decode legs.

use std::sync::Arc;
use std::time::Instant;

use kvasir_metrics::{header, sample};

use super::engines::one_each;
use super::labels;
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::lease::LeaseCounts;
use crate::pool::Pool;

/// One number of an endpoint's leases.
type Read = fn(&LeaseCounts) -> f64;

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn render(page: &mut String, endpoints: &[Arc<Endpoint>], pools: &[Arc<Pool>]) {
    let name = "kvasir_endpoint_role";
    header(page, name);
    let ranks: Vec<Option<String>> =
        endpoints.iter().map(|endpoint| endpoint.rank().map(|rank| rank.to_string())).collect();
    for (endpoint, rank) in endpoints.iter().zip(&ranks) {
        let mut labels = labels(endpoint.url(), rank.as_deref());
        labels.push(("role", endpoint.role().as_str()));
        sample(page, name, &labels, 1.0);
    }
    let now = Instant::now();
    let counts: Vec<LeaseCounts> =
        endpoints.iter().map(|endpoint| endpoint.leases().count(now)).collect();
    let families: [(&str, Read); 3] = [
        ("kvasir_pd_leases", |c| c.live as f64),
        ("kvasir_pd_leases_expired_total", |c| c.expired as f64),
        ("kvasir_pd_leases_abandoned_total", |c| c.abandoned as f64),
    ];
    for (name, get) in families {
        header(page, name);
        for ((endpoint, rank), counts) in endpoints.iter().zip(&ranks).zip(&counts) {
            sample(page, name, &labels(endpoint.url(), rank.as_deref()), get(counts));
        }
    }
    hand_overs(page, &one_each(endpoints));
    let name = "kvasir_pool_split";
    header(page, name);
    for pool in pools {
        let labels = [("model", pool.model()), ("state", pool.split_state().as_str())];
        sample(page, name, &labels, 1.0);
    }
}

/// How hand-overs of KV went, and what is left out of them now.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn hand_overs(page: &mut String, engines: &[&Endpoint]) {
    let name = "kvasir_pd_failed_hand_overs_total";
    header(page, name);
    by_word(page, name, "part", engines, |engine| {
        engine.hand_over_counts().failures().map(|(part, count)| (part.as_str(), count as f64))
    });
    let name = "kvasir_pd_faults_total";
    header(page, name);
    by_word(page, name, "fault", engines, |engine| {
        engine.hand_over_counts().blames().map(|(fault, count)| (fault.as_str(), count as f64))
    });
    let name = "kvasir_pd_left_out";
    header(page, name);
    by_word(page, name, "fault", engines, |engine| {
        let left_out = engine.hand_overs().left_out(engine.url());
        left_out.map(|(fault, count)| (fault.as_str(), count as f64))
    });
}

fn by_word<const N: usize>(
    page: &mut String,
    name: &str,
    label: &str,
    engines: &[&Endpoint],
    words: impl Fn(&Engine) -> [(&'static str, f64); N],
) {
    for endpoint in engines {
        for (word, count) in words(endpoint.engine()) {
            sample(page, name, &[("endpoint", endpoint.url()), (label, word)], count);
        }
    }
}
