//! A metrics page in Prometheus' text form, read strictly.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// The samples of one page.
#[derive(Clone, Debug)]
pub(crate) struct MetricsPage {
    samples: Vec<Sample>,
    types: BTreeMap<String, String>,
}

impl MetricsPage {
    /// Panics at anything a scraper would refuse: lines that are no samples, families without a
    /// type or in two pieces, one series twice. Also where it differs from the catalogue.
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "no newline at the end");
        let differences = kvasir_metrics::Page::parse(text).unwrap().differences();
        assert!(differences.is_empty(), "not as in the catalogue: {differences:#?}");
        let mut page = Self { samples: Vec::new(), types: BTreeMap::new() };
        let mut series = BTreeSet::new();
        let mut family = String::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                let fresh = page.types.insert(name.to_owned(), kind.to_owned()).is_none();
                assert!(fresh, "family {name} comes twice");
                name.clone_into(&mut family);
            } else if !line.starts_with('#') {
                let sample = sample(line);
                let suffix = sample.name.strip_prefix(&family);
                let allowed = match page.types.get(&family).map(String::as_str) {
                    Some("histogram") => ["_bucket", "_sum", "_count"].as_slice(),
                    Some("summary") => ["", "_sum", "_count"].as_slice(),
                    Some(_) => [""].as_slice(),
                    None => panic!("{line}: before any # TYPE"),
                };
                assert!(suffix.is_some_and(|s| allowed.contains(&s)), "{line}: in {family}");
                assert!(
                    series.insert((sample.name.clone(), sample.labels.clone())),
                    "{line} twice"
                );
                page.samples.push(sample);
            }
        }
        page
    }

    /// The sum over all series of this name that have these labels; `None` if there are none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut values = self.find(name, labels).map(|sample| sample.value).peekable();
        values.peek()?;
        Some(values.sum())
    }

    /// A label of the only series of this name that has these labels.
    #[track_caller]
    pub(crate) fn label(&self, name: &str, labels: &[(&str, &str)], wanted: &str) -> String {
        let found: Vec<&Sample> = self.find(name, labels).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].labels[wanted].clone()
    }

    pub(crate) fn kind(&self, family: &str) -> Option<&str> {
        self.types.get(family).map(String::as_str)
    }

    fn find<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let has = |(key, value): &(&str, &str)| {
                sample.labels.get(*key).is_some_and(|found| found == value)
            };
            sample.name == name && labels.iter().all(has)
        })
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    assert!(!name.is_empty() && name.chars().all(valid), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            let (value, after) = quoted(after);
            let fresh = labels.insert(key.to_owned(), value).is_none();
            assert!(fresh && !key.is_empty() && key.chars().all(valid), "{line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.trim().parse().unwrap_or_else(|_| panic!("{line}: no number"));
    Sample { name: name.to_owned(), labels, value }
}

/// A value up to its closing quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                other => panic!("escape {other:?} in {text}"),
            },
            c => value.push(c),
        }
    }
    panic!("no closing quote in {text}")
}
