//! Counts of decisions, for people.

use serde_json::Value;

use crate::gateway::view::{count, counts, percent, plain};
use crate::table::Table;

/// Pool by pool, and how their decisions fell.
pub(crate) fn table(document: &Value) -> String {
    let mut table = Table::of(&[
        "POOL",
        ">REQUESTS",
        ">HITS",
        ">HIT RATE",
        ">TOKEN HIT RATE",
        ">PREDICTED",
        ">REPORTED",
        ">JUDGED",
    ]);
    let pools = document["pools"].as_object();
    let all = (pools.is_none_or(|pools| pools.len() != 1)).then_some(("all", document));
    let each = pools.into_iter().flatten().map(|(name, pool)| (name.as_str(), pool));
    for (name, pool) in each.chain(all) {
        let judged = &pool["judged"];
        table.row([
            name.to_owned(),
            count(pool, "requests").to_string(),
            count(pool, "hits").to_string(),
            percent(&pool["hit_rate"]),
            percent(&pool["predicted_token_hit_rate"]),
            count(judged, "predicted_cached_tokens").to_string(),
            count(judged, "reported_cached_tokens").to_string(),
            count(judged, "requests").to_string(),
        ]);
    }
    let mut out = table.text();
    for (title, key) in
        [("decisions", "by_decision"), ("reasons", "by_reason"), ("no say", "by_miss")]
    {
        let counts = counts(&document[key]);
        if !counts.is_empty() {
            out.push_str(&format!("{title:<9} {}\n", plain(&counts)));
        }
    }
    out
}
