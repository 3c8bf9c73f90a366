//! The status page's words are those of the catalogue: none is missing, and none is of nothing.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kvasir_metrics::find;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../admin/src").join(path))
        .unwrap()
}

/// The words of one of the page's tables.
fn table<'a>(script: &'a str, name: &str) -> BTreeSet<&'a str> {
    let (_, rest) = script.split_once(&format!("const {name} = {{")).expect(name);
    let (entries, _) = rest.split_once('}').unwrap();
    let keys = entries.split('\n').flat_map(|line| {
        // On a line of its own each, or several on one.
        let one = if line.starts_with("  ") { 1 } else { usize::MAX };
        line.split(", ").take(one)
    });
    keys.filter_map(|entry| Some(entry.trim().split_once(": ")?.0)).collect()
}

/// The words a label of a family can have.
fn values(family: &str, label: &str) -> BTreeSet<&'static str> {
    let label = find(family).and_then(|family| family.label(label)).expect(family);
    label.values.iter().copied().filter(|word| !word.is_empty()).collect()
}

#[test]
fn the_status_page_has_the_words_of_the_catalogue() {
    let script = read("page/words.js");
    for (name, family, label) in [
        ("REASONS", "kvasir_decisions_total", "reason"),
        ("DETAILS", "kvasir_decision_details_total", "detail"),
        ("MISSES", "kvasir_guard_misses_total", "reason"),
        ("PLANS", "kvasir_pd_requests_total", "plan"),
    ] {
        assert_eq!(table(&script, name), values(family, label), "{name}");
    }
    // States that need no reason have a word too.
    let mut trust = values("kvasir_endpoint_trust", "reason");
    trust.extend(["exact", "catching_up"]);
    assert_eq!(table(&script, "TRUST"), trust);
}

#[test]
fn every_problem_that_is_found_has_a_heading() {
    let script = read("page/words.js");
    let sources = ["views/parity.rs", "views/parity/service.rs"].map(read);
    let shipped = sources.each_ref().map(|source| source.split("#[cfg(test)]").next().unwrap());
    let shipped = shipped.concat();
    let after = |mark: &str| {
        let rests = shipped.split(mark).skip(1);
        rests.map(|rest| rest.split('"').next().unwrap()).collect::<BTreeSet<_>>()
    };
    let headed = table(&script, "CAUSES");
    let found: BTreeSet<&str> = after("cause: \"").union(&after("found(\"")).copied().collect();
    assert!(found.len() >= 4, "no causes were found");
    assert_eq!(found.difference(&headed).collect::<Vec<_>>(), Vec::<&&str>::new());
    for word in headed {
        assert!(shipped.contains(&format!("\"{word}\"")), "{word}: nothing is found to be that");
    }
}

#[test]
fn tables_are_read() {
    let script =
        "const A = {\n  a: \"x, y: z\",\n  b_c: \"d\",\n};\nconst B = { a: \"one\", b: \"two\" };";
    assert_eq!(table(script, "A"), BTreeSet::from(["a", "b_c"]));
    assert_eq!(table(script, "B"), BTreeSet::from(["a", "b"]));
}
