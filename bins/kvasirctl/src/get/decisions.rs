//! Single decisions, for people.

use serde_json::Value;

use crate::gateway::view::{cell, count, list, text};
use crate::table::Table;

/// One a line, newest first.
pub(crate) fn table(document: &Value) -> String {
    let decisions = list(document, "decisions");
    if decisions.is_empty() {
        return "no decisions yet\n".to_owned();
    }
    let mut table = Table::of(&[
        "TIME",
        "MODEL",
        "ENDPOINT",
        "POLICY",
        "REASON",
        ">HELD",
        ">PROMPT",
        ">REPORTED",
        ">FIRST DATA",
        ">STATUS",
        "OUTCOME",
    ]);
    for one in decisions {
        table.row([
            time(text(one, "time")).to_owned(),
            text(one, "model").to_owned(),
            endpoint(one),
            text(one, "policy").to_owned(),
            reason(one),
            count(one, "overlap").to_string(),
            count(one, "prompt_tokens").to_string(),
            cell(&one["reported_cached_tokens"]),
            one["first_data_ms"].as_f64().map_or_else(String::new, |ms| format!("{ms:.0} ms")),
            cell(&one["status"]),
            text(one, "outcome").to_owned(),
        ]);
    }
    table.text()
}

/// Without the day and below the second.
fn time(full: &str) -> &str {
    let time = full.split_once('T').map_or(full, |(_, time)| time);
    time.split(['.', 'Z']).next().unwrap_or(time)
}

/// Who answered, and who computed the prompt where that is another.
fn endpoint(one: &Value) -> String {
    match text(one, "prefill_endpoint") {
        "" => text(one, "endpoint").to_owned(),
        prefill => format!("{prefill} > {}", text(one, "endpoint")),
    }
}

fn reason(one: &Value) -> String {
    match text(one, "detail") {
        "" => text(one, "reason").to_owned(),
        detail => format!("{} ({detail})", text(one, "reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_of_the_day() {
        assert_eq!(time("2026-01-02T03:04:05.678Z"), "03:04:05");
        assert_eq!(time("2026-01-02T03:04:05Z"), "03:04:05");
        assert_eq!(time("odd"), "odd");
    }
}
