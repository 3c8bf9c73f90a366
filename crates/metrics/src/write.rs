//! Families on a page in Prometheus' text format, for what is rendered at the scrape.

use std::fmt::{Display, Write as _};

use crate::families::find;

/// Begins a family: HELP and TYPE, as the catalogue has them.
pub fn header(page: &mut String, name: &str) {
    let family = find(name);
    debug_assert!(family.is_some(), "{name} is not in the catalogue");
    if let Some(family) = family {
        describe(page, name, family.kind.as_str(), &family.help());
    }
}

/// HELP and TYPE of a family that is in no catalogue of ours: its name is somebody else's.
pub fn describe(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// One number of a family.
pub fn sample(page: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    page.push_str(name);
    for (i, (key, text)) in labels.iter().enumerate() {
        let before = if i == 0 { '{' } else { ',' };
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(page, "{before}{key}=\"{text}\"");
    }
    let end = if labels.is_empty() { "" } else { "}" };
    let _ = writeln!(page, "{end} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = String::new();
        sample(&mut page, "x", &[("model", "a\"b\\c\nd"), ("k", "v")], 1.5);
        sample(&mut page, "y", &[], 1e15);
        assert_eq!(page, "x{model=\"a\\\"b\\\\c\\nd\",k=\"v\"} 1.5\ny 1000000000000000\n");
    }

    #[test]
    fn help_and_type_are_the_catalogues() {
        let mut page = String::new();
        header(&mut page, "kvasir_endpoint_up");
        assert_eq!(
            page,
            "# HELP kvasir_endpoint_up 1 while the engine answers.\n# TYPE kvasir_endpoint_up gauge\n"
        );
    }
}
