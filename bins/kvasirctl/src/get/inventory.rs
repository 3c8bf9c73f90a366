//! What is known of caches, for people.

use serde_json::Value;

use crate::gateway::view::{bytes, cell, count, list, plain, text, trust};
use crate::table::Table;

/// How much is known of each endpoint.
pub(super) fn table(document: &Value) -> String {
    let mut table = Table::of(&["ENDPOINT", ">BLOCKS", ">BYTES", "TRUST"]);
    for one in list(document, "endpoints") {
        table.row([
            text(one, "name").to_owned(),
            cell(&one["blocks"]),
            bytes(count(one, "bytes")),
            trust(one, "trust", "trust_reason"),
        ]);
    }
    let budget = match count(document, "budget_bytes") {
        0 => String::new(),
        budget => format!(" of {}", bytes(budget)),
    };
    let all = bytes(count(document, "bytes"));
    format!("{}{} blocks in all, {all}{budget}\n", table.text(), count(document, "blocks"))
}

/// Some blocks of one endpoint.
pub(super) fn samples(document: &Value) -> String {
    let mut table = Table::of(&["KEY", ">DEPTH", ">RANK", "TIERS"]);
    let samples = list(document, "samples");
    for one in samples {
        let row = ["key", "depth", "rank", "tiers"].map(|key| cell(&one[key]));
        table.row(row);
    }
    format!(
        "{}{} of {} blocks of {} tokens; trust is {} ({})\n",
        table.text(),
        samples.len(),
        count(document, "blocks"),
        plain(&cell(&document["block_size"])),
        plain(&trust(document, "trust", "trust_reason")),
        plain(text(document, "name")),
    )
}
