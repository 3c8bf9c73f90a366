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
        label(self.labels, key)
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

/// The raw value of a label; values looked for here hold no escapes.
fn label<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let end = after
            .char_indices()
            .scan(false, |escaped, (at, c)| {
                let ends = c == '"' && !*escaped;
                *escaped = c == '\\' && !*escaped;
                Some((at, ends))
            })
            .find_map(|(at, ends)| ends.then_some(at))?;
        let (value, after) = after.split_at(end);
        if name.trim_start_matches([',', ' ']) == key {
            return Some(value);
        }
        rest = after.strip_prefix('"').unwrap_or("");
    }
}
