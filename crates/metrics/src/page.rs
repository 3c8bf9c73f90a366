//! A page of metrics in Prometheus' text format, held against the catalogue.

use std::collections::HashMap;

use crate::families::find;
use crate::family::{Family, Kind};

/// One line with a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The series' name: the family's, or of histograms with `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Its number.
    pub value: f64,
}

/// What a page says.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// HELP and TYPE of each family.
    said: HashMap<String, (String, String)>,
    samples: Vec<Sample>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// The line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let read = match line.strip_prefix("# ") {
                Some(comment) => page.note(comment),
                None => sample(line).map(|sample| page.samples.push(sample)),
            };
            read.ok_or_else(|| format!("cannot be read: {line}"))?;
        }
        Ok(page)
    }

    /// The lines with numbers.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The names of the families there are numbers of.
    pub fn families(&self) -> impl Iterator<Item = &'static str> {
        self.samples.iter().filter_map(|sample| Some(family_of(&sample.name)?.0.name))
    }

    /// Everything in which it differs from the catalogue: families that are not in it, kinds, HELP,
    /// labels, and values of closed sets. Empty where it does not.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, (help, kind)) in &self.said {
            match find(name) {
                None => found.push(format!("{name} is not in the catalogue")),
                Some(family) if kind != family.kind.as_str() || *help != family.help() => {
                    found.push(format!("{name} is said to be a {kind}: {help}"));
                }
                Some(_) => {}
            }
        }
        for sample in &self.samples {
            match family_of(&sample.name) {
                None => found.push(format!("{} is not in the catalogue", sample.name)),
                Some((family, is_bucket)) => {
                    if !self.said.contains_key(family.name) {
                        found.push(format!("{} has no HELP and TYPE", family.name));
                    }
                    found.extend(labels(family, is_bucket, sample));
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    fn note(&mut self, comment: &str) -> Option<()> {
        let mut parts = comment.splitn(3, ' ');
        let (what, name) = (parts.next()?, parts.next()?);
        let text = parts.next().unwrap_or_default().to_owned();
        let said = self.said.entry(name.to_owned()).or_default();
        match what {
            "HELP" => said.0 = text,
            "TYPE" => said.1 = text,
            _ => return None,
        }
        Some(())
    }
}

/// The family of a series, and whether it is a bucket.
fn family_of(series: &str) -> Option<(&'static Family, bool)> {
    if let Some(family) = find(series).filter(|f| !matches!(f.kind, Kind::Histogram(_))) {
        return Some((family, false));
    }
    let (name, part) = series.rsplit_once('_')?;
    let family = find(name).filter(|f| matches!(f.kind, Kind::Histogram(_)))?;
    matches!(part, "bucket" | "sum" | "count").then_some((family, part == "bucket"))
}

/// Labels of a series that differ from the family's.
fn labels(family: &Family, is_bucket: bool, sample: &Sample) -> Vec<String> {
    let mut found = Vec::new();
    let name = family.name;
    for (key, value) in &sample.labels {
        match family.label(key) {
            None if is_bucket && key == "le" => {}
            None => found.push(format!("{name} has no label {key}")),
            Some(label) if !label.allows(value) => {
                found.push(format!("{name}: {key}=\"{value}\" is none of {:?}", label.values));
            }
            Some(_) => {}
        }
    }
    let has = |label: &str| sample.labels.iter().any(|(key, _)| key == label);
    let missing = family.labels.iter().filter(|label| !label.optional && !has(label.name));
    found.extend(missing.map(|label| format!("{name} comes without the label {}", label.name)));
    found
}

/// `name{key="value",…} number`, `name number`.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((key.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.trim_start().parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(text: &str) -> Vec<String> {
        Page::parse(text).expect("a page").differences()
    }

    #[test]
    fn a_page_of_the_catalogue_does_not_differ() {
        let text = "# HELP kvasir_admission_waiting Requests that wait now.\n\
                    # TYPE kvasir_admission_waiting gauge\n\
                    kvasir_admission_waiting{model=\"a\\\"b\\\\c\\nd, {e}\"} 1.5\n\n\
                    # HELP kvasir_request_seconds From the request's head to the end of the answer.\n\
                    # TYPE kvasir_request_seconds histogram\n\
                    kvasir_request_seconds_bucket{model=\"m\",le=\"0.1\"} 1\n\
                    kvasir_request_seconds_sum{model=\"m\"} 2\n\
                    kvasir_request_seconds_count{model=\"m\"} 1\n";
        assert_eq!(differences(text), Vec::<String>::new());
        let page = Page::parse(text).expect("a page");
        assert_eq!(page.samples()[0].labels, [("model".to_owned(), "a\"b\\c\nd, {e}".to_owned())]);
        assert!(page.families().any(|name| name == "kvasir_request_seconds"));
    }

    #[test]
    fn every_difference_is_told() {
        let said = "# HELP kvasir_stream_gaps_total Gaps in the sequence of event batches.\n\
                    # TYPE kvasir_stream_gaps_total";
        let of = |kind: &str, series: &str| differences(&format!("{said} {kind}\n{series}\n"));
        assert!(of("counter", "kvasir_stream_gaps_total{endpoint=\"e\"} 1").is_empty());
        let wrong = [
            ("gauge", "kvasir_stream_gaps_total{endpoint=\"e\"} 1", "is said to be a gauge"),
            ("counter", "kvasir_stream_gaps_total{} 1", "without the label endpoint"),
            ("counter", "kvasir_stream_gaps_total{endpoint=\"e\",x=\"y\"} 1", "no label x"),
            ("counter", "kvasir_nothing_total 1", "not in the catalogue"),
            ("counter", "kvasir_pool_ready{model=\"m\"} 1", "no HELP"),
            ("counter", "kvasir_accept_pauses_total{reason=\"whim\"} 1", "is none of"),
            ("counter", "kvasir_request_seconds{model=\"m\"} 1", "not in the catalogue"),
            ("counter", "kvasir_request_seconds_sum{model=\"m\",le=\"1\"} 1", "no label le"),
        ];
        for (kind, series, why) in wrong {
            let found = of(kind, series);
            assert!(found.iter().any(|told| told.contains(why)), "{series}: {found:?}");
        }
        assert!(Page::parse("kvasir_x{a=\"b} 1").is_err());
    }
}
