//! Endpoints for people.

use serde_json::Value;

use super::pools::from;
use crate::gateway::view::{bytes, cell, count, list, percent, plain, text, trust};
use crate::table::Table;

/// All endpoints of a document, one a line.
pub(crate) fn table(document: &Value) -> String {
    let endpoints = list(document, "endpoints");
    if endpoints.is_empty() {
        return "no endpoints\n".to_owned();
    }
    let of_pools = endpoints.iter().any(|one| one.get("pool").is_some());
    let head = [
        "POOL",
        "ENDPOINT",
        "STATE",
        "ROLE",
        ">WEIGHT",
        "TAKES REQUESTS",
        ">IN FLIGHT",
        ">WAITING",
        ">KV USED",
        ">BLOCKS",
        "TRUST",
        "ENGINE",
        "FROM",
    ];
    let mut table = Table::of(if of_pools { &head[..] } else { &head[1..] });
    for one in endpoints {
        let row = [
            text(one, "pool").to_owned(),
            text(one, "name").to_owned(),
            text(one, "state").to_owned(),
            text(one, "role").to_owned(),
            cell(&one["weight"]),
            first_word(&takes(one)).to_owned(),
            cell(&one["in_flight"]),
            cell(&one["waiting"]),
            percent(&one["kv_usage"]),
            cell(&one["blocks"]),
            trust(one, "trust", "trust_reason"),
            engine(one),
            from(one),
        ];
        table.row(row.into_iter().skip(usize::from(!of_pools)));
    }
    let why =
        endpoints.iter().filter_map(|one| Some((text(one, "name"), one["why_not"].as_str()?)));
    table.text() + &in_full(why)
}

/// A reason without its details, which would make a column of all of them wide.
pub(crate) fn first_word(reason: &str) -> &str {
    let bare = reason.strip_prefix("no: ").unwrap_or(reason);
    let end = bare.find(": ").unwrap_or(bare.len());
    &reason[..reason.len() - bare.len() + end]
}

/// The details, a line each, for below the table.
pub(crate) fn in_full<'a>(reasons: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let cut = reasons.filter(|(_, why)| first_word(why).len() < why.len());
    let mut lines: Vec<String> =
        cut.map(|(name, why)| format!("{}: {}\n", plain(name), plain(why))).collect();
    // An endpoint of several pools is there several times.
    lines.dedup();
    lines.concat()
}

/// Whether it takes requests, or why not.
pub(crate) fn takes(one: &Value) -> String {
    match one["why_not"].as_str() {
        Some(why) => format!("no: {why}"),
        None => cell(&one["eligible"]),
    }
}

fn engine(one: &Value) -> String {
    let engine = &one["engine"];
    [text(engine, "kind"), text(engine, "version")].join(" ").trim().to_owned()
}

/// All about one endpoint.
pub(super) fn one(one: &Value) -> String {
    let rates = &one["rates"];
    let tokens = |value: &Value| match value.as_f64() {
        Some(rate) => format!("{rate:.0} tokens/s"),
        None => String::new(),
    };
    let mut out = String::new();
    for (name, value) in [
        ("endpoint", text(one, "name").to_owned()),
        ("pool", text(one, "pool").to_owned()),
        ("group", text(one, "group").to_owned()),
        ("state", text(one, "state").to_owned()),
        ("role", text(one, "role").to_owned()),
        ("weight", cell(&one["weight"])),
        ("takes requests", takes(one)),
        ("breaker", text(one, "breaker").to_owned()),
        ("in flight", cell(&one["in_flight"])),
        ("queued prefill", format!("{} tokens", cell(&one["queued_prefill_tokens"]))),
        (
            "waiting, running",
            format!("{}, {}", plain(&cell(&one["waiting"])), plain(&cell(&one["running"]))),
        ),
        ("KV cache used", percent(&one["kv_usage"])),
        ("blocks known", format!("{} ({})", cell(&one["blocks"]), bytes(count(one, "bytes")))),
        ("block size", cell(&one["engine"]["block_size"])),
        ("trust", trust(one, "trust", "trust_reason")),
        ("prefill rate", tokens(&rates["prefill_tokens_per_s"])),
        ("transfer rate", tokens(&rates["transfer_tokens_per_s"])),
        ("engine", engine(one)),
        ("serves", text(&one["engine"], "model").to_owned()),
        ("prefix caching", cell(&one["engine"]["prefix_caching"])),
        ("from", from(one)),
    ] {
        if !value.is_empty() {
            out.push_str(&format!("{name:<17} {}\n", plain(&value)));
        }
    }
    let ranks = list(one, "ranks");
    let streams: Vec<&Value> = match ranks {
        [] => list(one, "streams").iter().collect(),
        _ => ranks.iter().flat_map(|rank| list(rank, "streams")).collect(),
    };
    out + &streams_table(&streams)
}

fn streams_table(streams: &[&Value]) -> String {
    let mut table = Table::of(&[
        ">RANK",
        "EVENTS",
        ">LAST",
        ">AGE",
        ">BATCHES",
        ">GAPS",
        ">REPLAYS",
        ">FAILED",
        ">RESTARTS",
        ">ORPHANS",
        "HASHES",
    ]);
    for one in streams {
        let age = one["last_event_age_s"].as_f64().map(|age| format!("{age:.0} s"));
        table.row([
            cell(&one["rank"]),
            trust(one, "trust", "reason"),
            cell(&one["last_sequence"]),
            age.unwrap_or_default(),
            cell(&one["batches"]),
            cell(&one["gaps"]),
            cell(&one["replays"]),
            cell(&one["replay_failures"]),
            cell(&one["restarts"]),
            cell(&one["orphan_blocks"]),
            text(one, "hash_contract").to_owned(),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.text()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_of_a_reason_stand_below() {
        assert_eq!(first_word("no: unreachable: refused: really"), "no: unreachable");
        assert_eq!((first_word("no: draining"), first_word("yes")), ("no: draining", "yes"));
        let all = [("a", "unreachable: x"), ("a", "unreachable: x"), ("b", "draining")];
        assert_eq!(in_full(all.into_iter()), "a: unreachable: x\n");
    }
}
