//! The catalogue as a page of the documentation.

use std::fmt::Write as _;

use crate::families::{GROUPS, Group, all};
use crate::family::{Family, Kind, Label};

/// The text of `docs/metrics.md`.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         <!-- Made by `cargo xtask metrics` from crates/metrics/src/families; a test compares. -->\n\n",
    );
    let _ = write!(
        text,
        "All {} families that `GET /metrics` can show. What they tell, and what to do about it, is in\n\
         [observability](observability.md); a dashboard and alert rules are in [monitoring](monitoring/README.md). A label whose \
         values\nare listed has no others. Where none are listed they come from the configuration or from engines (models,\n\
         URLs, ranks, versions), never from requests. \"optional\" is a label that some series are without. Families without a\n\
         series (nothing happened yet, or the part is off) are not on the page.\n",
        all().count(),
    );
    for group in GROUPS {
        section(&mut text, group);
    }
    text
}

fn section(text: &mut String, group: &Group) {
    let _ = write!(text, "\n## {}\n\n", group.title);
    if !group.about.is_empty() {
        let _ = write!(text, "{}\n\n", group.about);
    }
    text.push_str("| family | kind | labels | unit | meaning |\n|---|---|---|---|---|\n");
    for family in group.families {
        row(text, family);
    }
    for family in group.families {
        if let Kind::Histogram(buckets) = family.kind {
            let ends: Vec<String> = buckets.iter().map(ToString::to_string).collect();
            let _ = write!(text, "\nBuckets of `{}`: {}.\n", family.name, ends.join(", "));
        }
    }
}

fn row(text: &mut String, family: &Family) {
    let labels: Vec<String> = family.labels.iter().map(label).collect();
    let labels = if labels.is_empty() { "–".to_owned() } else { labels.join("<br>") };
    let Family { name, kind, meaning, .. } = family;
    let _ = writeln!(
        text,
        "| `{name}` | {} | {labels} | {} | {meaning} |",
        kind.as_str(),
        family.unit(),
    );
}

fn label(label: &Label) -> String {
    let mut text = format!("`{}`", label.name);
    if label.optional {
        text.push_str(" (optional)");
    }
    if !label.values.is_empty() {
        let words: Vec<String> = label
            .values
            .iter()
            .map(|word| if word.is_empty() { "empty".to_owned() } else { format!("`{word}`") })
            .collect();
        let _ = write!(text, ": {}", words.join(", "));
    }
    text
}
