//! What is said of one family, and how it is written down.

/// How a family's numbers are to be read, as Prometheus names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows, until the process begins anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size. These are the upper ends of its buckets, without the infinite one.
    Histogram(&'static [f64]),
}

/// One label of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// All values it can have; empty where they come from the configuration or from engines.
    pub values: &'static [&'static str],
    /// Whether a series may be without it.
    pub optional: bool,
}

/// One family of metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// Its whole name.
    pub name: &'static str,
    /// How its numbers are to be read.
    pub kind: Kind,
    /// Its labels, in the order they are shown in.
    pub labels: &'static [Label],
    /// What it says, in Markdown, with links as they are in `docs`. The first sentence is its HELP.
    pub meaning: &'static str,
}

/// Units that stand at the end of a name, before `_total`: what they are called, and what they look like.
const UNITS: [(&str, &str); 7] = [
    ("_timestamp_seconds", "seconds since 1970"),
    ("_tokens_per_second", "tokens per second"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
    ("_blocks", "blocks"),
    ("_ratio", "0 to 1"),
];
/// Of families whose name has no unit at its end.
const OTHERS: [(&str, &str); 6] = [
    ("kvasir_controller_alpha", "0 to 1"),
    ("kvasir_endpoint_advised_percent", "percent"),
    ("kvasir_endpoint_weight", "percent of a full endpoint's load"),
    ("kvasir_endpoint_block_size", "tokens"),
    ("kvasir_endpoint_kv_usage", "0 to 1"),
    ("kvasir_admission_limit", "that of the limit"),
];

// === impl Kind ===

impl Kind {
    /// The word in a page's TYPE line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

// === impl Label ===

impl Label {
    /// One whose values nobody lists here.
    pub(crate) const fn any(name: &'static str) -> Self {
        Self { name, values: &[], optional: false }
    }

    /// One with these values.
    pub(crate) const fn of(name: &'static str, values: &'static [&'static str]) -> Self {
        Self { name, values, optional: false }
    }

    /// The same, which series may be without.
    pub(crate) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Whether it can have this value.
    #[must_use]
    pub fn allows(&self, value: &str) -> bool {
        self.values.is_empty() || self.values.contains(&value)
    }
}

// === impl Family ===

impl Family {
    /// What a page says in its HELP line: the meaning's first sentence as plain text.
    #[must_use]
    pub fn help(&self) -> String {
        let text = plain(self.meaning);
        match text.find(". ") {
            Some(end) => text[..=end].to_owned(),
            None => text,
        }
    }

    /// The unit of its numbers.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        if let Some((_, unit)) = OTHERS.iter().find(|(name, _)| *name == self.name) {
            return unit;
        }
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        UNITS.iter().find(|(end, _)| name.ends_with(end)).map_or("1", |(_, unit)| unit)
    }

    /// Its label of this name.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'static Label> {
        self.labels.iter().find(|label| label.name == name)
    }
}

/// Text without the marks of Markdown: of links their text, and no backticks.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, target) = rest.split_at(at);
        let words = before.rfind('[').unwrap_or(before.len());
        plain.push_str(&before[..words]);
        plain.push_str(before.get(words + 1..).unwrap_or_default());
        rest = target.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain.replace('`', "")
}

pub(crate) const fn counter(
    name: &'static str,
    labels: &'static [Label],
    meaning: &'static str,
) -> Family {
    Family { name, kind: Kind::Counter, labels, meaning }
}

pub(crate) const fn gauge(
    name: &'static str,
    labels: &'static [Label],
    meaning: &'static str,
) -> Family {
    Family { name, kind: Kind::Gauge, labels, meaning }
}

pub(crate) const fn histogram(
    name: &'static str,
    buckets: &'static [f64],
    labels: &'static [Label],
    meaning: &'static str,
) -> Family {
    Family { name, kind: Kind::Histogram(buckets), labels, meaning }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_first_sentence_without_marks() {
        let of = |meaning| counter("kvasir_x_total", &[], meaning).help();
        assert_eq!(of("Changes of [it](a.md#b) to `x`. More."), "Changes of it to x.");
        assert_eq!(of("One (0.5) only."), "One (0.5) only.");
    }

    #[test]
    fn units_are_those_of_names() {
        let of = |name| gauge(name, &[], "").unit();
        assert_eq!(of("kvasir_prompt_tokens_total"), "tokens");
        assert_eq!(of("kvasir_config_loaded_timestamp_seconds"), "seconds since 1970");
        assert_eq!(of("kvasir_requests_total"), "1");
        assert_eq!(of("kvasir_endpoint_kv_usage"), "0 to 1");
    }
}
