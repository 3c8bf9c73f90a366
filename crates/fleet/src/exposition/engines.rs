//! Families of engines, whichever endpoints they are: what happened there, by kind.

use std::collections::HashSet;
use std::sync::Arc;

use kvasir_metrics::{header, sample};

use crate::endpoint::Endpoint;

/// One endpoint of each engine.
pub(super) fn one_each(endpoints: &[Arc<Endpoint>]) -> Vec<&Endpoint> {
    let mut seen = HashSet::new();
    endpoints.iter().map(|endpoint| &**endpoint).filter(|one| seen.insert(one.url())).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn render(page: &mut String, engines: &[&Endpoint]) {
    let name = "kvasir_endpoint_breaker";
    header(page, name);
    for endpoint in engines {
        let labels = [("endpoint", endpoint.url()), ("state", endpoint.breaker().as_str())];
        sample(page, name, &labels, 1.0);
    }
    let name = "kvasir_breaker_transitions_total";
    header(page, name);
    for endpoint in engines {
        for ((to, reason), count) in endpoint.engine().breaker_transitions() {
            let labels = [("endpoint", endpoint.url()), ("to", to), ("reason", reason)];
            sample(page, name, &labels, count as f64);
        }
    }
    let name = "kvasir_failed_attempts_total";
    header(page, name);
    for endpoint in engines {
        for (cause, count) in endpoint.engine().failed_attempts() {
            let labels = [("endpoint", endpoint.url()), ("cause", cause)];
            sample(page, name, &labels, count as f64);
        }
    }
    let name = "kvasir_trust_transitions_total";
    header(page, name);
    for endpoint in engines {
        for (change, count) in endpoint.engine().trust_changes().ever() {
            let rank = change.rank.map_or_else(|| "all".to_owned(), |rank| rank.to_string());
            let labels = [
                ("endpoint", endpoint.url()),
                ("rank", &rank),
                ("from", &change.from),
                ("to", &change.to),
                ("reason", change.reason),
            ];
            sample(page, name, &labels, count as f64);
        }
    }
}
