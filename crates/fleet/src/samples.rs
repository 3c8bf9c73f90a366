//! Lines of a Prometheus text page.

/// One line of a page: a series and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The family's name, with the suffix of histograms.
    pub name: &'a str,
    labels: &'a str,
    /// The value; never NaN or infinite.
    pub value: f64,
}

/// The series of a Prometheus text page; lines that are not understood are skipped.
pub fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter_map(Sample::parse)
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let name_end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(name_end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inner) => inner.split_at(labels_end(inner)?),
            None => ("", rest),
        };
        let mut words = rest.trim_start_matches('}').split_ascii_whitespace();
        let value: f64 = words.next()?.parse().ok()?;
        value.is_finite().then_some(Self { name, labels, value })
    }

    /// The raw value of a label, escapes and all.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.labels().find_map(|(name, value)| (name == key).then_some(value))
    }

    /// The labels and their raw values, in order.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (label, after) = next_label(rest)?;
            rest = after;
            Some(label)
        })
    }
}

/// Where the closing brace is; braces inside quoted values do not count.
fn labels_end(inner: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The first label with its value, and what follows.
fn next_label(labels: &str) -> Option<((&str, &str), &str)> {
    let (name, after) = labels.split_once("=\"")?;
    let end = after
        .char_indices()
        .scan(false, |escaped, (at, c)| {
            let ends = c == '"' && !*escaped;
            *escaped = c == '\\' && !*escaped;
            Some((at, ends))
        })
        .find_map(|(at, ends)| ends.then_some(at))?;
    let (value, after) = after.split_at(end);
    let name = name.trim_start_matches([',', ' ']);
    Some(((name, value), after.strip_prefix('"').unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_in_order_with_their_raw_values() {
        let page = "f{a=\"1\",b=\"x,y=\\\"}\" , c=\"\"} 1\n";
        let sample = samples(page).next().unwrap();
        let labels: Vec<_> = sample.labels().collect();
        assert_eq!(labels, [("a", "1"), ("b", "x,y=\\\"}"), ("c", "")]);
        assert_eq!(sample.label("c"), Some(""));
        assert_eq!(sample.label("d"), None);
    }
}
