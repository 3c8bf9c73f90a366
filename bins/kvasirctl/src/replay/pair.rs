//! Prefill and decode in one decision, for a person: what each plan cost, with the terms of both sides.

use std::fmt::Write as _;

use kvasir_balance::record::{ChoiceRecord, DecisionRecord};
use kvasir_balance::{DecodeTerms, PairTerms, PlanCost, PrefillTerms, TransferTerms};

use super::explain::aligned;

/// Nothing where the pool does not split requests.
pub(super) fn to_text(record: &DecisionRecord) -> String {
    let mut text = String::new();
    if record.pairing.is_none() {
        return text;
    }
    for cut in &record.cut {
        let _ = match (&cut.prefill, &cut.decode) {
            (Some(prefill), Some(decode)) => {
                writeln!(text, "no hand-over: from {prefill} to {decode}")
            }
            (Some(prefill), None) => writeln!(text, "no hand-over: from {prefill} to anybody"),
            (None, Some(decode)) => writeln!(text, "no hand-over: from anybody to {decode}"),
            (None, None) => Ok(()),
        };
    }
    match record.pair_terms() {
        Some(terms) => text.push_str(&costs(record, &terms)),
        None => text.push_str(&loads(record)),
    }
    text
}

fn costs(record: &DecisionRecord, terms: &PairTerms) -> String {
    let name = |place: usize| record.endpoints.get(place).map_or("", |e| e.name.as_str());
    let choice = record.choice.as_ref();
    let mut text = "plans, in seconds:\n".to_owned();
    text.push_str(&aligned(&[
        ("", each(&terms.plans, |plan| mark(choice.is_some_and(|c| c.plan == plan.plan), '*'))),
        ("plan", each(&terms.plans, |plan| plan.plan.to_owned())),
        (
            "computes",
            each(&terms.plans, |plan| name(plan.prefill.unwrap_or(plan.place)).to_owned()),
        ),
        ("answers", each(&terms.plans, |plan: &PlanCost| name(plan.place).to_owned())),
        ("cost", each(&terms.plans, |plan| seconds(plan.cost_s))),
    ]));
    if !terms.prefill.is_empty() {
        let is_it = |place| choice.and_then(|c| c.prefill.as_deref()) == Some(name(place));
        text.push_str(&aligned(&[
            ("", each(&terms.prefill, |p| mark(is_it(p.place), '>'))),
            ("prefill", each(&terms.prefill, |p| name(p.place).to_owned())),
            ("overlap", each(&terms.prefill, |p| p.overlap.to_string())),
            ("wait", each(&terms.prefill, |p| seconds(p.wait_s))),
            ("own", each(&terms.prefill, |p| seconds(p.own_s))),
            ("pressure", each(&terms.prefill, |p| format!("{:.2}", p.pressure))),
            ("turn", each(&terms.prefill, |p: &PrefillTerms| seconds(p.turn_s))),
            ("cost", each(&terms.prefill, |p| seconds(p.cost_s))),
        ]));
    }
    if !terms.decode.is_empty() {
        text.push_str(&decode(terms, choice, name));
    }
    if terms.untold > 0 {
        let _ = writeln!(text, "and {} more, which cost more", terms.untold);
    }
    text
}

fn decode<'a>(
    terms: &PairTerms,
    choice: Option<&ChoiceRecord>,
    name: impl Fn(usize) -> &'a str,
) -> String {
    let is_it = |place| choice.is_some_and(|choice| choice.endpoint == name(place));
    let of = |get: fn(&TransferTerms) -> String| each(&terms.decode, |d| get(&d.transfer));
    aligned(&[
        ("", each(&terms.decode, |d| mark(is_it(d.place), '*'))),
        ("decode", each(&terms.decode, |d| name(d.place).to_owned())),
        ("overlap", each(&terms.decode, |d| d.overlap.to_string())),
        ("transfer: tokens", of(|t| t.tokens.to_string())),
        ("fixed", of(|t| seconds(t.fixed_s))),
        ("tokens/s", of(|t| format!("{:.0}", t.rate))),
        ("time", of(|t| seconds(t.cost_s))),
        ("in flight", each(&terms.decode, |d| d.in_flight.to_string())),
        ("load", each(&terms.decode, |d: &DecodeTerms| seconds(d.load_s))),
        ("wait", each(&terms.decode, |d| seconds(d.wait_s))),
        ("pressure", each(&terms.decode, |d| format!("{:.2}", d.pressure))),
        ("room", each(&terms.decode, |d| seconds(d.room_s))),
        ("turn", each(&terms.decode, |d| seconds(d.turn_s))),
        ("cost", each(&terms.decode, |d| seconds(d.cost_s))),
        ("whole", each(&terms.decode, |d| d.whole_s.map_or_else(|| "-".to_owned(), seconds))),
    ])
}

/// Of policies without costs, and pools that go by load.
fn loads(record: &DecisionRecord) -> String {
    let loads = record.decode_loads();
    if loads.is_empty() {
        return String::new();
    }
    let choice = record.choice.as_ref();
    let name = |place: usize| record.endpoints.get(place).map_or("", |e| e.name.as_str());
    let is_it = |place| choice.is_some_and(|choice| choice.endpoint == name(place));
    aligned(&[
        ("", each(&loads, |(place, _)| mark(is_it(*place), '*'))),
        ("decode", each(&loads, |(place, _)| name(*place).to_owned())),
        ("load", each(&loads, |(_, load)| format!("{load:.2}"))),
    ])
}

fn each<T>(all: &[T], cell: impl Fn(&T) -> String) -> Vec<String> {
    all.iter().map(cell).collect()
}

fn mark(is_it: bool, mark: char) -> String {
    if is_it { mark.to_string() } else { String::new() }
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.4}")
}
