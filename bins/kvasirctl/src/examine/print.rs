//! Reports for people, and as JSON for machines.

use std::fmt::Write as _;

use kvasir_doctor::Leg;

use super::round::{Place, Round};
use crate::args::LookArgs;

/// The text for one round: everything the first time, later what changed.
pub(super) fn round(found: &Round, before: Option<&Round>, how: &LookArgs) -> String {
    if how.json {
        let json = found.to_json(how.watch.is_some());
        let text = if how.watch.is_some() { json.to_string() } else { format!("{json:#}") };
        return format!("{text}\n");
    }
    match before {
        None => full(found),
        Some(before) => changes(found, before),
    }
}

fn full(found: &Round) -> String {
    let mut out = String::new();
    for (model, examination) in &found.pools {
        if let Some(model) = model {
            line(&mut out, &format!("pool {model}"));
            out.push('\n');
        }
        for report in &examination.endpoints {
            let none =
                if report.answers { "answers, and refuses to say more" } else { "does not answer" };
            let engine = report.engine.as_deref().unwrap_or(none);
            line(&mut out, &format!("{}  {engine}", report.base_url));
            legs(&mut out, &report.legs);
        }
        if !examination.across.is_empty() {
            line(&mut out, "across the engines");
            legs(&mut out, &examination.across);
        }
    }
    line(&mut out, &found.summary());
    out
}

fn legs(out: &mut String, legs: &[Leg]) {
    for leg in legs {
        line(out, &leg.to_string());
    }
    out.push('\n');
}

fn changes(found: &Round, before: &Round) -> String {
    let mut out = String::new();
    let time = found.time();
    let changed = found.changed_since(before);
    for (place, leg) in &changed {
        line(&mut out, &format!("{time}  {}{leg}", label(*place)));
    }
    for (place, legs) in found.gone_since(before) {
        let legs: Vec<&str> = legs.iter().map(|leg| leg.as_str()).collect();
        line(&mut out, &format!("{time}  {}not looked at: {}", label(place), legs.join(", ")));
    }
    let count = match changed.len() {
        0 => "nothing changed".to_owned(),
        1 => "1 leg changed".to_owned(),
        count => format!("{count} legs changed"),
    };
    line(&mut out, &format!("{time}  {}; {count}", found.summary()));
    out
}

/// The engine a leg belongs to, followed by two spaces.
fn label((model, url): Place<'_>) -> String {
    match (model, url) {
        (_, Some(url)) => format!("{url}  "),
        (Some(model), None) => format!("across pool {model}  "),
        (None, None) => "across the engines  ".to_owned(),
    }
}

/// One line. What engines say is not trusted with the terminal: control characters are escaped.
fn line(out: &mut String, text: &str) {
    for c in text.chars() {
        // Writing to a String cannot fail.
        let _ =
            if c.is_control() { write!(out, "{}", c.escape_default()) } else { write!(out, "{c}") };
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use kvasir_doctor::{Examination, LegName, compare};

    use super::*;

    fn round_of(legs: Vec<Leg>) -> Round {
        let across = compare(Vec::new());
        Round::new(vec![(None, Examination { across: legs, ..across })])
    }

    #[test]
    fn only_what_changed_is_printed() {
        let before = round_of(vec![
            Leg::ok(LegName::Versions, "0.32.0"),
            Leg::ok(LegName::MaxModelLen, "2048"),
            Leg::ok(LegName::BlockSizes, "16"),
        ]);
        let now = round_of(vec![
            Leg::ok(LegName::Versions, "0.32.0"),
            Leg::off(LegName::MaxModelLen, "2048 and 4096", "make them one"),
        ]);
        let text = changes(&now, &before);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].contains("max_model_len   2048 and 4096 -> make them one"), "{text}");
        assert!(lines[1].ends_with("across the engines  not looked at: block_sizes"), "{text}");
        assert!(lines[2].ends_with("1 ok, 0 unknown, 1 off; 1 leg changed"), "{text}");
        assert!(changes(&now, &now).ends_with("nothing changed\n"));
    }

    #[test]
    fn terminals_are_safe_from_engines() {
        let text = full(&round_of(vec![Leg::ok(LegName::Versions, "\u{1b}[2Jx\ny")]));
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2Jx\\ny"), "{text}");
    }
}
