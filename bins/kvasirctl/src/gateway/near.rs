//! What there is, for a name that there is not.

use std::collections::BTreeSet;

use kvasir_admin_client::{AdminClient, ApiPath};
use kvasir_config::hint;
use serde_json::Value;

/// Names that are listed at most.
const LISTED: usize = 8;

/// What the name in a message of the API (the last one between backticks) may be meant to be, and what
/// there is.
pub(super) async fn names(client: &AdminClient, message: &str) -> Option<String> {
    let name = message.split('`').skip(1).step_by(2).last()?;
    let (what, key) = if message.contains("endpoint") {
        ("endpoints", "name")
    } else if message.contains("pool") || message.contains("model") {
        ("pools", "model")
    } else {
        return None;
    };
    let all = client.get(&ApiPath::of(&[what])).await.ok()?;
    let all: BTreeSet<&str> =
        all[what].as_array()?.iter().filter_map(|one| text(one, key)).collect();
    Some(said(what, name, &all))
}

fn text<'a>(one: &'a Value, key: &str) -> Option<&'a str> {
    one.get(key)?.as_str()
}

/// What may be meant, and what there is.
pub(crate) fn said(what: &str, name: &str, all: &BTreeSet<&str>) -> String {
    let meant = hint(name, all.iter().copied());
    let meant = meant.trim_start_matches(", ");
    let listed: Vec<&str> = all.iter().copied().take(LISTED).collect();
    let more = if all.len() > LISTED { ", …" } else { "" };
    let there = match listed.is_empty() {
        true => format!("there are no {what}"),
        false => format!("the {what} are {}{more}", listed.join(", ")),
    };
    if meant.is_empty() { there } else { format!("{meant} {there}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_comes_first() {
        let all = BTreeSet::from(["org/model-a", "org/other"]);
        let text = said("pools", "org/model-b", &all);
        assert_eq!(text, "did you mean `org/model-a`? the pools are org/model-a, org/other");
        assert_eq!(said("pools", "x", &BTreeSet::new()), "there are no pools");
        let many: Vec<String> = (0..20).map(|n| format!("p{n:02}")).collect();
        let text = said("pools", "zzzzzz", &many.iter().map(String::as_str).collect());
        assert!(text.ends_with("p07, …"), "{text}");
    }
}
