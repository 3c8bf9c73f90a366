//! Pools for people.

use serde_json::Value;

use super::endpoints;
use crate::gateway::view::{cell, count, list, plain, text};
use crate::table::Table;

/// All pools, one a line; below, why those that are not ready are not.
pub(crate) fn table(document: &Value) -> String {
    let pools = list(document, "pools");
    if pools.is_empty() {
        return "no pools\n".to_owned();
    }
    let mut table = Table::of(&[
        "POOL",
        "POLICY",
        "READY",
        "ELIGIBLE",
        ">IN FLIGHT",
        ">BLOCKS",
        "SPLITS",
        "ROUTING",
        "FROM",
    ]);
    for pool in pools {
        let endpoints = list(pool, "endpoints");
        let eligible = endpoints.iter().filter(|one| one["eligible"] == true).count();
        let sum = |key: &str| endpoints.iter().map(|one| count(one, key)).sum::<u64>().to_string();
        table.row([
            text(pool, "model").to_owned(),
            text(pool, "policy").to_owned(),
            cell(&pool["ready"]),
            format!("{eligible} of {}", endpoints.len()),
            sum("in_flight"),
            sum("blocks"),
            cell(&pool["splits"]),
            text(&pool["routing"], "mode").to_owned(),
            from(pool),
        ]);
    }
    let mut out = table.text();
    for pool in pools {
        if let Some(why) = pool["why_not_ready"].as_str() {
            out.push_str(&format!("{}: {}\n", plain(text(pool, "model")), plain(why)));
        }
    }
    out
}

/// One pool and its endpoints.
pub(super) fn one(pool: &Value) -> String {
    let aliases = cell(&pool["aliases"]);
    let mut out = table(&serde_json::json!({ "pools": [pool] }));
    if !aliases.is_empty() {
        out.push_str(&format!("aliases: {}\n", plain(&aliases)));
    }
    out.push('\n');
    out.push_str(&endpoints::table(pool));
    out
}

/// Where it is from, and what was changed here.
pub(super) fn from(one: &Value) -> String {
    match list(one, "patched") {
        [] => text(one, "origin").to_owned(),
        _ => format!("{} + {}", text(one, "origin"), cell(&one["patched"])),
    }
}
