//! One decision for a person.

use std::fmt::Write as _;
use std::time::Duration;

use kvasir_balance::record::{
    ChoiceRecord, DecisionRecord, EndpointRecord, Line, OutcomeRecord, Start,
};
use kvasir_balance::{Exclusion, Role};
use kvasir_prompt::CivilTime;
use serde_json::json;

use super::read::each_line;
use super::{Found, pair};
use crate::args::ReplayArgs;
use crate::{Ended, say};

/// Numbers begin anew with every run: so many decisions of one number are shown.
const MAX_SHOWN: usize = 100;

struct Shown {
    place: String,
    start: Start,
    record: DecisionRecord,
    outcome: Option<OutcomeRecord>,
    /// Whether its run goes on.
    open: bool,
}

/// Finds and shows the decisions of this number.
pub(super) fn run(args: &ReplayArgs, id: u64) -> Found {
    let mut found: Vec<Shown> = Vec::new();
    let mut current: Option<Start> = None;
    each_line(&args.files, |place, line| {
        match line {
            Line::Start(start) => {
                let same = |shown: &Shown| {
                    start.continues > 0
                        && (start.seed, &start.model) == (shown.start.seed, &shown.start.model)
                };
                found.iter_mut().for_each(|shown| shown.open &= same(shown));
                current = Some(start.clone());
            }
            Line::Decision(record) if record.id == id && found.len() < MAX_SHOWN => {
                let start = current.clone().ok_or("the log does not begin with a line `start`")?;
                let (record, outcome) = (record.clone(), None);
                found.push(Shown { place: place.shown(), start, record, outcome, open: true });
            }
            Line::Outcome(outcome) if outcome.of == id => {
                if let Some(shown) = found.iter_mut().find(|shown| shown.open) {
                    shown.outcome = Some(*outcome);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    if found.is_empty() {
        say(&format!("no decision {id} in these files"));
        return Ok((String::new(), Ended::Status(1)));
    }
    let text = if args.json {
        let one = |shown: &Shown| {
            let Shown { place, start, record, outcome, .. } = shown;
            json!({
                "at": place, "start": start, "decision": record, "outcome": outcome,
                "pair": record.pair(),
            })
        };
        format!("{:#}\n", json!(found.iter().map(one).collect::<Vec<_>>()))
    } else {
        found.iter().map(to_text).collect::<Vec<_>>().join("\n")
    };
    Ok((text, Ended::Done))
}

fn to_text(shown: &Shown) -> String {
    let Shown { place, start, record, outcome, .. } = shown;
    let mut text = head(place, start, record);
    text.push_str(&table(record));
    text.push('\n');
    match &record.choice {
        Some(choice) => text.push_str(&chosen(choice)),
        None => text.push_str("no endpoint could be chosen\n"),
    }
    text.push_str(&pair::to_text(record));
    let after = |outcome: &OutcomeRecord| {
        Duration::from_micros(outcome.at_us.saturating_sub(record.at_us)).as_secs_f64()
    };
    let became = match outcome {
        Some(outcome) if outcome.answered => {
            format!("the endpoint began to answer after {:.3} s", after(outcome))
        }
        Some(outcome) => {
            format!("no answer of the endpoint counted; known after {:.3} s", after(outcome))
        }
        None if record.choice.is_none() => return text,
        None => "what became of it is not in these files".to_owned(),
    };
    let _ = writeln!(text, "{became}");
    text
}

/// Whether an endpoint failed this request before.
fn was_tried(record: &DecisionRecord) -> bool {
    let tried = Exclusion::Tried.as_str();
    record.endpoints.iter().any(|endpoint| endpoint.exclusion.as_deref() == Some(tried))
}

fn head(place: &str, start: &Start, record: &DecisionRecord) -> String {
    let mut text = format!("decision {} of pool {}", record.id, start.model);
    let at = Duration::from_micros(record.at_us);
    match start.clock_unix_ms {
        Some(ms) => {
            let time = CivilTime::from_unix(Duration::from_millis(ms).saturating_add(at));
            let CivilTime { year, month, day, hour, minute, second, microsecond } = time;
            let _ = write!(
                text,
                ", {year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{microsecond:06} UTC"
            );
        }
        None => {
            let _ = write!(text, ", {:.6} s after the beginning", at.as_secs_f64());
        }
    }
    if let Some(id) = &record.request_id {
        let _ = write!(text, ", request {id}");
    }
    if let Some(waited) = record.waited_ms {
        let _ = write!(text, ", after {waited} ms of waiting for room");
    }
    let query = &record.query;
    let attempt = match (record.first_attempt, was_tried(record)) {
        (true, false) => "first attempt",
        (true, true) => "a further attempt: no engine got it before",
        (false, _) => "a further attempt",
    };
    let _ = write!(text, "\n{place}\nprompt {} tokens, {attempt}", query.prompt_tokens);
    for (name, digest) in [
        ("conversation", query.session),
        ("first tokens", query.token_head),
        ("first text", query.text_head),
        ("salt", query.salt),
        ("chance", Some(record.seed)),
    ] {
        if let Some(digest) = digest {
            let _ = write!(text, ", {name} {digest:016x}");
        }
    }
    if let Some(blind) = query.blind {
        let _ = write!(text, ", keys unknown: {}", blind.as_str());
    }
    if let Some(adapter) = &query.adapter {
        let _ = write!(text, ", adapter {adapter}");
    }
    text.push_str("\n\n");
    text
}

/// A column: its title, and what it says of an endpoint; nothing where it has nothing to say.
type Column = (&'static str, fn(&EndpointRecord) -> Option<String>);

const COLUMNS: &[Column] = &[
    ("role", |e| (e.role != Role::Unified).then(|| e.role.as_str().to_owned())),
    ("excluded", |e| e.exclusion.clone()),
    ("device", |e| Some(e.overlap.device.to_string())),
    ("host", |e| above_0(e.overlap.host)),
    ("disk", |e| above_0(e.overlap.disk)),
    ("remote", |e| above_0(e.overlap.remote)),
    ("pending", |e| Some(e.pending.to_string())),
    ("trust", |e| Some(e.trust.clone())),
    ("in flight", |e| Some(e.in_flight.to_string())),
    ("queued", |e| Some(e.queued_prefill_tokens.to_string())),
    ("waiting", |e| Some(e.waiting?.to_string())),
    ("kv", |e| Some(format!("{:.2}", e.kv_usage?))),
    ("lmcache", |e| Some(format!("{:.2}", e.lmcache_occupancy?))),
    ("blocks", |e| {
        Some(format!("{}/{}", shown(e.resident_blocks), shown(e.capacity_blocks?.into())))
    }),
    ("weight", |e| (e.weight != 100).then(|| e.weight.to_string())),
    ("tokens/s", |e| Some(format!("{:.0}", e.prefill_rate))),
    ("kv tokens/s", |e| Some(format!("{:.0}", e.transfer_rate?))),
    ("ttft seen ms", |e| Some(format!("{:.1}", e.ttft_ms?))),
    ("expected ms", |e| Some(format!("{:.1}", e.expected_ttft_s? * 1e3))),
    ("score", |e| Some(format!("{:.4}", e.score?))),
];

fn above_0(tokens: u32) -> Option<String> {
    (tokens > 0).then(|| tokens.to_string())
}

fn shown(count: Option<u64>) -> String {
    count.map_or_else(|| "?".to_owned(), |count| count.to_string())
}

/// Every endpoint, with the columns that say something of any.
fn table(record: &DecisionRecord) -> String {
    let named = |name: Option<&String>, endpoint: &EndpointRecord| name == Some(&endpoint.name);
    let choice = record.choice.as_ref();
    let mark = |endpoint: &EndpointRecord| {
        let marks = [
            (choice.map(|choice| &choice.endpoint), '*'),
            (choice.and_then(|choice| choice.prefill.as_ref()), '>'),
            (choice.and_then(|choice| choice.runner_up.as_ref()), '+'),
            (choice.and_then(|choice| choice.shadow.as_ref()), '~'),
        ];
        marks.into_iter().filter(|(name, _)| named(*name, endpoint)).map(|(_, mark)| mark).collect()
    };
    let endpoints = &record.endpoints;
    let mut columns: Vec<(&str, Vec<String>)> = vec![
        ("", endpoints.iter().map(mark).collect()),
        ("endpoint", endpoints.iter().map(|endpoint| endpoint.name.clone()).collect()),
    ];
    for (title, read) in COLUMNS {
        let cells: Vec<Option<String>> = endpoints.iter().map(read).collect();
        if cells.iter().any(Option::is_some) {
            let cell = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
            columns.push((title, cells.into_iter().map(cell).collect()));
        }
    }
    aligned(&columns)
}

/// Columns side by side, each with its title.
pub(super) fn aligned(columns: &[(&str, Vec<String>)]) -> String {
    let rows = columns.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
    let mut lines = vec![String::new(); rows + 1];
    for (place, (title, cells)) in columns.iter().enumerate() {
        let texts = || std::iter::once(*title).chain(cells.iter().map(String::as_str));
        let width = texts().map(|text| text.chars().count()).max().unwrap_or(0);
        for (line, text) in lines.iter_mut().zip(texts()) {
            // Names to the left, numbers to the right.
            let _ = match place {
                0 | 1 => write!(line, "{text:<width$} "),
                _ => write!(line, " {text:>width$}"),
            };
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn chosen(choice: &ChoiceRecord) -> String {
    let ChoiceRecord { endpoint, policy, reason, detail, plan, prefill, runner_up, shadow, stages } =
        choice;
    let mut text = format!("* chosen: {endpoint}, by {policy}: {reason}");
    if !detail.is_empty() {
        let _ = write!(text, " ({detail})");
    }
    text.push('\n');
    if let Some(prefill) = prefill {
        let _ = writeln!(text, "> the prompt computed by: {prefill}");
    }
    if !plan.is_empty() {
        let _ = writeln!(text, "  plan: {plan}");
    }
    if let Some(runner_up) = runner_up {
        let _ = writeln!(text, "+ runner-up: {runner_up}");
    }
    if let Some(shadow) = shadow {
        let _ = writeln!(text, "~ the shadow policy's choice: {shadow}");
    }
    let width = stages.iter().map(|stage| stage.stage.chars().count()).max().unwrap_or(0);
    for stage in stages {
        let (name, outcome) = (&stage.stage, &stage.outcome);
        let why = if stage.miss.is_empty() { String::new() } else { format!(" ({})", stage.miss) };
        let _ = writeln!(text, "  {name:<width$}  {outcome}{why}, {} left", stage.left);
    }
    text
}
