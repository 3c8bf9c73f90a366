//! Families of disaggregated serving: who has which part, and what is kept for decode legs.

use std::sync::Arc;
use std::time::Instant;

use super::{header, labels, sample};
use crate::endpoint::Endpoint;
use crate::pool::Pool;

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn render(page: &mut String, endpoints: &[Arc<Endpoint>], pools: &[Arc<Pool>]) {
    let name = "endpoint_role";
    header(page, name, "gauge", "1 for the part in disaggregated serving, by the configuration.");
    let ranks: Vec<Option<String>> =
        endpoints.iter().map(|endpoint| endpoint.rank().map(|rank| rank.to_string())).collect();
    for (endpoint, rank) in endpoints.iter().zip(&ranks) {
        let mut labels = labels(endpoint.url(), rank.as_deref());
        labels.push(("role", endpoint.role().as_str()));
        sample(page, name, &labels, 1.0);
    }
    let now = Instant::now();
    let counts: Vec<(usize, u64)> =
        endpoints.iter().map(|endpoint| endpoint.leases().count(now)).collect();
    header(page, "pd_leases", "gauge", "Prompts whose blocks are kept for decode legs.");
    for ((endpoint, rank), (live, _)) in endpoints.iter().zip(&ranks).zip(&counts) {
        let labels = labels(endpoint.url(), rank.as_deref());
        sample(page, "pd_leases", &labels, *live as f64);
    }
    let name = "pd_leases_expired_total";
    header(page, name, "counter", "Those that were kept for too short a time to be fetched.");
    for ((endpoint, rank), (_, expired)) in endpoints.iter().zip(&ranks).zip(&counts) {
        sample(page, name, &labels(endpoint.url(), rank.as_deref()), *expired as f64);
    }
    let name = "pool_split";
    header(page, name, "gauge", "1 for whether the pool can split requests, and why not.");
    for pool in pools {
        let labels = [("model", pool.model()), ("state", pool.split_state().as_str())];
        sample(page, name, &labels, 1.0);
    }
}
