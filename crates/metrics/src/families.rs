//! All families, by what they are about.

mod admin;
mod clients;
mod controller;
mod decisions;
mod endpoints;
mod parity;
mod pools;
mod process;
mod requests;
mod split;
mod streams;
mod tokens;
mod words;

use crate::family::Family;

/// Families about one thing.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What they are about.
    pub title: &'static str,
    /// What is to be said of all of them, in Markdown; may be empty.
    pub about: &'static str,
    /// The families, in the order they are shown in.
    pub families: &'static [Family],
}

/// All groups.
pub const GROUPS: &[Group] = &[
    requests::GROUP,
    decisions::GROUP,
    split::GROUP,
    clients::GROUP,
    clients::UPSTREAM,
    endpoints::GROUP,
    streams::GROUP,
    pools::GROUP,
    pools::ADMISSION,
    pools::DECISION_LOG,
    tokens::GROUP,
    parity::GROUP,
    controller::GROUP,
    process::GROUP,
    admin::GROUP,
];

/// All families.
pub fn all() -> impl Iterator<Item = &'static Family> {
    GROUPS.iter().flat_map(|group| group.families)
}

/// The family of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Family> {
    all().find(|family| family.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::family::Kind;

    #[test]
    fn every_family_is_said_once_and_named_as_prometheus_does() {
        let mut seen = HashSet::new();
        for family in all() {
            let name = family.name;
            assert!(seen.insert(name), "{name} twice");
            let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(is_name && name.starts_with("kvasir_"), "{name}");
            let is_counter = family.kind == Kind::Counter;
            assert_eq!(name.ends_with("_total"), is_counter, "{name}: _total is for counters");
            // promtool's check of metrics refuses these words.
            for kind in ["counter", "gauge", "histogram", "summary"] {
                assert!(!name.split('_').any(|word| word == kind), "{name}: {kind} is a kind");
            }
            for end in ["_count", "_sum", "_bucket", "_info"] {
                assert!(!name.ends_with(end), "{name}: {end} is a series of another kind");
            }
        }
    }

    #[test]
    fn every_family_says_what_it_means_in_a_line() {
        for family in all() {
            let (name, help) = (family.name, family.help());
            assert!(help.ends_with('.') && family.meaning.ends_with('.'), "{name}: {help}");
            assert!(help.len() <= 160, "{name}: {} bytes of HELP: {help}", help.len());
            assert!(!family.meaning.contains(['\n', '|']), "{name}: no row of a table");
        }
    }

    #[test]
    fn slow_answers_of_the_admin_api_are_told_apart() {
        let Kind::Histogram(buckets) = find("kvasir_admin_request_seconds").unwrap().kind else {
            panic!("no histogram");
        };
        assert_eq!(buckets.last(), Some(&10.0));
        assert!(buckets.iter().filter(|end| **end > 0.25).count() >= 4, "{buckets:?}");
    }

    #[test]
    fn labels_are_said_once_and_buckets_grow() {
        for family in all() {
            let mut seen = HashSet::new();
            for label in family.labels {
                assert!(seen.insert(label.name), "{}: {} twice", family.name, label.name);
                let values: HashSet<_> = label.values.iter().collect();
                assert_eq!(values.len(), label.values.len(), "{}: {}", family.name, label.name);
            }
            if let Kind::Histogram(buckets) = family.kind {
                assert!(!buckets.is_empty() && buckets.is_sorted(), "{}", family.name);
            }
        }
    }
}
