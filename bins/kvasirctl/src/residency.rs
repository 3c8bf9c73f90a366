//! `kvasirctl residency`: what a recording shows.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;

use anyhow::{Context as _, Result, anyhow};
use kvasir_doctor::{BlocksByTier, Capture, Predicted, ReplayFound, Residency, Step, residency};
use serde_json::{Value, json};

use crate::Ended;
use crate::args::ResidencyArgs;

/// Reads, plays and prints.
pub(crate) fn run(args: &ResidencyArgs) -> Result<Ended> {
    let name = args.capture.display().to_string();
    let file = File::open(&args.capture).with_context(|| name.clone())?;
    let capture = Capture::read(BufReader::new(file)).map_err(|e| anyhow!("{name}:{e}"))?;
    let found = residency(&capture).with_context(|| name.clone())?;
    let text = if args.json { as_json(&name, &found)? } else { as_tables(&name, &found) };
    crate::output::write(&text)?;
    Ok(Ended::Done)
}

fn as_json(name: &str, found: &Residency) -> Result<String> {
    let mut object = json!({ "capture": name });
    if let (Value::Object(object), Value::Object(fields)) =
        (&mut object, serde_json::to_value(found)?)
    {
        object.extend(fields);
    }
    Ok(format!("{}\n", serde_json::to_string_pretty(&object)?))
}

fn as_tables(name: &str, found: &Residency) -> String {
    let mut text = name.to_owned();
    if let Some(engine) = &found.engine {
        text = format!("{text}: {engine}");
    }
    let width = |names: &mut dyn Iterator<Item = &str>| {
        names.map(|name| name.chars().count()).max().unwrap_or(0).max(4)
    };
    let steps = width(&mut found.steps.iter().map(|step| step.step.as_str()));
    let trusts = width(&mut found.steps.iter().map(|step| step.trust.as_str()));
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n\n{:steps$}  {:trusts$}  {:>7} {:>7} {:>7} {:>7}",
        "step", "trust", "device", "host", "disk", "remote"
    );
    for step in &found.steps {
        let BlocksByTier { device, host, disk, remote } = step.resident_blocks;
        let _ = writeln!(
            text,
            "{:steps$}  {:trusts$}  {device:>7} {host:>7} {disk:>7} {remote:>7}",
            step.step, step.trust
        );
        details(&mut text, step);
    }
    let requests = width(&mut found.requests.iter().map(|request| request.step.as_str()));
    let _ = writeln!(
        text,
        "\n{:requests$}  {:>7} {:>10} {:>9}",
        "request", "tokens", "predicted", "reported"
    );
    for request in &found.requests {
        let _ = writeln!(text, "{}", line(request, requests));
    }
    for left_out in &found.left_out {
        let _ = writeln!(text, "{:requests$}  not compared: {}", left_out.step, left_out.why);
    }
    let off = found.requests.iter().filter(|request| differs(request)).count();
    let _ = writeln!(text, "\n{} requests compared, {off} differ", found.requests.len());
    text
}

fn details(text: &mut String, step: &Step) {
    for source in &step.sources {
        let blocks = source.resident_blocks;
        let blocks = blocks.device + blocks.host + blocks.disk + blocks.remote;
        let _ = writeln!(text, "    {}: {}, {blocks} blocks", source.source, source.trust);
    }
    for change in &step.changes {
        let forgot = if change.forgot { ", everything forgotten" } else { "" };
        let _ = writeln!(text, "    -> {} ({}{forgot})", change.trust, change.why);
    }
    for replay in &step.replays {
        let ReplayFound { from, batches, as_live, differing, not_live, .. } = replay;
        let end = if replay.ended { "" } else { ", no end" };
        let _ = writeln!(
            text,
            "    replay from {from}: {batches} batches, {as_live} as live, {differing} differing, \
             {not_live} not live{end}"
        );
    }
}

fn line(request: &Predicted, width: usize) -> String {
    let Predicted {
        step,
        prompt_tokens,
        predicted_cached_tokens: predicted,
        reported_cached_tokens: reported,
        ..
    } = request;
    let off = if differs(request) { "  differs" } else { "" };
    let note = request.note.map(|note| format!("  ({note})")).unwrap_or_default();
    format!("{step:width$}  {prompt_tokens:>7} {predicted:>10} {reported:>9}{off}{note}")
}

fn differs(request: &Predicted) -> bool {
    request.predicted_cached_tokens != request.reported_cached_tokens
}
