//! An explanation for people: what is known of the prompt, what was decided and why, stage by stage and
//! endpoint by endpoint.

use serde_json::Value;

use crate::gateway::view::{cell, count, list, plain, text};
use crate::get::endpoints::{first_word, in_full};
use crate::table::Table;

/// Terms that are shown, with their heads; those that no endpoint has are left out.
const TERMS: [(&str, &str); 12] = [
    ("in_flight", ">IN FLIGHT"),
    ("queued_prefill_tokens", ">QUEUED TOKENS"),
    ("waiting", ">WAITING"),
    ("kv_usage", ">KV USED"),
    ("expected_ttft_s", ">TTFT EXPECTED, S"),
    ("ttft_ms", ">TTFT SEEN, MS"),
    ("prefill_rate", ">PREFILL/S"),
    ("transfer_rate", ">TRANSFER/S"),
    ("recent_work", ">RECENT WORK"),
    ("weight", ">WEIGHT"),
    ("resident_blocks", ">BLOCKS"),
    ("lmcache_occupancy", ">LMCACHE"),
];

/// All of it.
pub(super) fn text_of(explained: &Value) -> String {
    let mut out = decision(explained);
    let stages = stages(list(explained, "stages"));
    if !stages.is_empty() {
        out.push_str(&format!("\nstages\n{stages}"));
    }
    out + "\nendpoints (* chosen; a lower score is better)\n" + &endpoints(explained)
}

fn decision(explained: &Value) -> String {
    let of = |key: &str| text(explained, key).to_owned();
    let tokens = match of("tokens").as_str() {
        "" | "exact" => String::new(),
        why => format!(" ({why})"),
    };
    let chosen = match (of("chosen").as_str(), of("why_none").as_str()) {
        ("", why) => format!("none: {why}"),
        (chosen, _) => chosen.to_owned(),
    };
    let mut reason = of("reason");
    if !of("detail").is_empty() {
        reason = format!("{reason} ({})", of("detail"));
    }
    let prefill = text(&explained["prefill"], "endpoint").to_owned();
    let mut out = String::new();
    for (name, value) in [
        ("model", of("model")),
        ("pool", of("pool")),
        (
            "prompt",
            format!(
                "{} tokens, known as {}{tokens}",
                count(explained, "prompt_tokens"),
                of("level")
            ),
        ),
        ("chosen", chosen),
        ("prefill at", prefill),
        ("plan", of("plan")),
        ("not split", of("not_split")),
        ("policy", of("policy")),
        ("why", reason),
        ("runner-up", of("runner_up")),
        ("shadow", of("shadow")),
    ] {
        if !value.is_empty() {
            out.push_str(&format!("{name:<11}{}\n", plain(&value)));
        }
    }
    out
}

fn stages(stages: &[Value]) -> String {
    let mut table = Table::of(&["STAGE", "OUTCOME", ">LEFT", "NO SAY SINCE"]);
    for stage in stages {
        table.row(["stage", "outcome", "left", "miss"].map(|key| cell(&stage[key])));
    }
    if table.is_empty() { String::new() } else { table.text() }
}

fn endpoints(explained: &Value) -> String {
    let candidates = list(explained, "candidates");
    let is_told = |key: &str| {
        candidates.iter().any(|one| one["terms"].get(key).is_some_and(|term| !term.is_null()))
    };
    let terms: Vec<(&str, &str)> = TERMS.into_iter().filter(|(key, _)| is_told(key)).collect();
    let mut head = vec!["", "ENDPOINT", "EXCLUDED", ">HELD", ">PENDING", "TRUST", ">SCORE"];
    head.extend(terms.iter().map(|(_, name)| *name));
    let mut table = Table::of(&head);
    for one in candidates {
        let name = text(one, "endpoint");
        let is_prefill = name == text(&explained["prefill"], "endpoint");
        let mark = match (name == text(explained, "chosen"), is_prefill) {
            (true, _) => "*",
            (_, true) => "p",
            _ => " ",
        };
        let mut row = vec![
            mark.to_owned(),
            name.to_owned(),
            first_word(text(one, "excluded")).to_owned(),
            count(one, "overlap").to_string(),
            count(one, "pending").to_string(),
            text(one, "trust").to_owned(),
            cell(&one["score"]),
        ];
        row.extend(terms.iter().map(|(key, _)| cell(&one["terms"][*key])));
        table.row(row);
    }
    let why = candidates.iter().map(|one| (text(one, "endpoint"), text(one, "excluded")));
    table.text() + &in_full(why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_chosen_is_marked_and_terms_nobody_has_are_left_out() {
        let endpoint = |name: &str, excluded: Value, overlap: u32| {
            json!({"endpoint": name, "excluded": excluded, "overlap": overlap, "pending": 0,
                   "trust": "exact", "score": 0.5, "terms": {"in_flight": 3, "waiting": null}})
        };
        let text = text_of(&json!({
            "model": "m", "pool": "m", "prompt_tokens": 64, "level": "tokens", "tokens": "exact",
            "chosen": "http://a", "policy": "latency", "reason": "least_latency_warm", "detail": null,
            "stages": [{"stage": "eligible", "outcome": "kept", "left": 1, "miss": null}],
            "candidates": [endpoint("http://a", Value::Null, 48), endpoint("http://b", json!("drain"), 0)],
        }));
        assert!(text.contains("prompt     64 tokens, known as tokens\n"), "{text}");
        assert!(
            text.contains("*  http://a  -           48        0  exact  0.500          3\n"),
            "{text}"
        );
        assert!(text.contains("   http://b  drain"), "{text}");
        assert!(!text.contains("WAITING"), "{text}");
        let none = text_of(&json!({"chosen": null, "why_none": "all are full"}));
        assert!(none.contains("chosen     none: all are full"), "{none}");
    }
}
