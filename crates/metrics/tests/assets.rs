//! Dashboard and alert rules name families and labels of the catalogue only, and every alert is tested.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kvasir_metrics::{Family, Kind, find};
use serde_json::Value;

/// Labels that Prometheus adds.
const ADDED: [&str; 3] = ["job", "instance", "le"];

fn read(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring");
    fs::read_to_string(dir.join(name)).unwrap()
}

fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// The family of a series in an expression.
fn family(series: &str) -> Option<&'static Family> {
    let ends = ["_bucket", "_sum", "_count"];
    let histogram = ends.iter().find_map(|end| find(series.strip_suffix(end)?));
    let histogram = histogram.filter(|family| matches!(family.kind, Kind::Histogram(_)));
    histogram.or_else(|| find(series).filter(|f| !matches!(f.kind, Kind::Histogram(_))))
}

/// What is wrong with the names and labels in an expression (`PromQL`, or text with some in it).
fn faults(text: &str) -> Vec<String> {
    let (mut found, mut families) = (Vec::new(), Vec::new());
    for (at, _) in text.match_indices("kvasir_") {
        if text[..at].chars().next_back().is_some_and(|char| is_word(char) || char == '-') {
            continue;
        }
        let end = text[at..].find(|char| !is_word(char)).map_or(text.len(), |end| at + end);
        let series = &text[at..end];
        let Some(family) = family(series) else {
            found.push(format!("{series} is not in the catalogue"));
            continue;
        };
        families.push(family);
        if let Some(matchers) = text[end..].strip_prefix('{') {
            let matchers = matchers.split('}').next().unwrap_or_default();
            found.extend(matchers_in(matchers).into_iter().filter_map(|m| wrong(family, m)));
        }
    }
    for grouped in groups(text) {
        let known = |family: &&Family| family.label(grouped).is_some();
        if !ADDED.contains(&grouped) && !families.iter().any(known) {
            found.push(format!("no family of it has the label {grouped}: {text}"));
        }
    }
    found
}

/// Label, operator, value.
type Matcher<'a> = (&'a str, &'a str, &'a str);

fn matchers_in(text: &str) -> Vec<Matcher<'_>> {
    let parts: Vec<&str> = text.split('"').collect();
    parts
        .chunks(2)
        .filter_map(|pair| {
            let [before, value] = pair else { return None };
            let before = before.trim_start_matches([',', ' ']).trim_end_matches('\\');
            let end = before.find(|char| !is_word(char))?;
            Some((&before[..end], before[end..].trim(), value.trim_end_matches('\\')))
        })
        .collect()
}

fn wrong(family: &Family, (name, operator, value): Matcher<'_>) -> Option<String> {
    let Some(label) = family.label(name) else {
        let is_added = ADDED.contains(&name);
        return (!is_added).then(|| format!("{} has no label {name}", family.name));
    };
    if value.contains('$') || value.contains('.') || label.values.is_empty() {
        return None;
    }
    let is_pattern = operator.contains('~');
    let mut words = if is_pattern { value.split('|').collect() } else { vec![value] };
    words.retain(|word| !label.allows(word));
    (!words.is_empty()).then(|| format!("{}: {name} is never {words:?}", family.name))
}

/// The labels in `by (…)` and `on (…)`.
fn groups(text: &str) -> Vec<&str> {
    let opened = [" by (", " on ("].iter().flat_map(|word| text.match_indices(word));
    let inside = opened.map(|(at, word)| &text[at + word.len()..]);
    inside
        .flat_map(|rest| rest.split(')').next().unwrap_or_default().split(','))
        .map(str::trim)
        .filter(|label| !label.is_empty())
        .collect()
}

/// All strings under this key, however deep.
fn under<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                match inner {
                    Value::String(text) if name == key => found.push(text),
                    inner => under(inner, key, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| under(inner, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_families_of_the_catalogue() {
    let dashboard: Value = serde_json::from_str(&read("kvasir-dashboard.json")).unwrap();
    let mut expressions = Vec::new();
    under(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 50, "no expressions were found");
    let found: Vec<String> = expressions.into_iter().flat_map(faults).collect();
    assert!(found.is_empty(), "{found:#?}");
    let mut queries = Vec::new();
    under(&dashboard, "query", &mut queries);
    let found: Vec<String> = queries.into_iter().flat_map(faults).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Each rule from its name on.
fn rules(text: &str) -> Vec<(&str, &str)> {
    let rules = text.split("- alert: ").skip(1);
    rules.map(|rule| rule.split_once('\n').unwrap()).collect()
}

#[test]
fn the_alerts_ask_for_families_of_the_catalogue_and_say_what_comes_next() {
    let text = read("kvasir-alerts.yaml");
    let rules = rules(&text);
    assert!(rules.len() > 20, "no rules were found");
    for (name, rule) in rules {
        let found = faults(rule);
        assert!(found.is_empty(), "{name}: {found:#?}");
        assert!(rule.contains("          summary: "), "{name} has no summary");
        let said = rule.split("description: ").nth(1).unwrap_or_default();
        let next = said.split("Next: ").nth(1).unwrap_or_default();
        assert!(next.contains('`'), "{name} does not say which command comes next");
    }
}

#[test]
fn every_alert_has_a_test() {
    let (text, tests) = (read("kvasir-alerts.yaml"), read("kvasir-alerts-test.yaml"));
    let names: BTreeSet<&str> = rules(&text).into_iter().map(|(name, _)| name).collect();
    let tested = tests.lines().filter_map(|line| line.trim().strip_prefix("- alertname: "));
    assert_eq!(names, tested.collect());
    let found: Vec<String> = tests
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- series: '"))
        .flat_map(faults)
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn faults_are_found() {
    let fine = "sum by (model) (rate(kvasir_requests_total{status=~\"5..\"}[5m])) > 0";
    assert_eq!(faults(fine), Vec::<String>::new());
    for (text, why) in [
        ("kvasir_request_total", "not in the catalogue"),
        ("kvasir_request_seconds > 1", "not in the catalogue"),
        ("kvasir_pool_ready{modell=\"m\"}", "no label modell"),
        ("kvasir_endpoint_breaker{state=\"opened\"}", "never"),
        ("kvasir_endpoint_trust{state=~\"suspect|lost\"}", "never"),
        ("sum by (rank) (kvasir_pool_ready)", "no family of it"),
    ] {
        let found = faults(text);
        assert!(found.iter().any(|told| told.contains(why)), "{text}: {found:?}");
    }
}
