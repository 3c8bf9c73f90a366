//! What another policy would have chosen.

use std::collections::BTreeSet;

use kvasir_balance::PolicySpec;
use kvasir_balance::record::{Expected, Line, Memory, WhatIf, WhatIfFound};
use serde_json::{Value, json};

use super::incomplete::Incomplete;
use super::read::each_line;
use super::{Found, count, percent};
use crate::Ended;
use crate::args::ReplayArgs;

/// What cannot be known from a log.
const LIMITS: &str = "Each decision is made by what was known in the log: what other choices would \
    have changed for later ones, in caches and load, is not followed.";

/// Makes all decisions under another policy.
pub(super) fn run(args: &ReplayArgs, policy: &PolicySpec) -> Found {
    let mut what_if = WhatIf::new(policy.clone());
    let mut logged = BTreeSet::new();
    let mut incomplete = Incomplete::default();
    // Decisions by a memory that is not what it would have been, and why.
    let (mut unsure, mut why_unsure) = (0, Memory::Known);
    incomplete.cut_off = each_line(&args.files, |place, line| {
        if let Line::Start(start) = line {
            logged.insert(start.selection.policy.name());
        }
        what_if.line(line).map_err(|error| error.to_string())?;
        let memory = what_if.memory();
        incomplete.note(place, line, memory);
        if matches!(line, Line::Decision(_)) && memory != Memory::Known {
            (unsure, why_unsure) = (unsure + 1, memory);
        }
        Ok(())
    })?;
    let logged: Vec<&str> = logged.into_iter().collect();
    let (found, policy) = (what_if.found(), policy.name());
    let text = if args.json {
        let mut object = to_json(&found, &logged, policy);
        object["decisions_without_memory"] = json!(unsure);
        incomplete.add_to(&mut object);
        format!("{object:#}\n")
    } else {
        let unsure = match unsure {
            0 => String::new(),
            _ => format!(
                "{} by a policy that does not remember all it would: {}\n",
                count(unsure, "decision"),
                why_unsure.why_unknown()
            ),
        };
        incomplete.to_text() + &unsure + &to_text(&found, &logged, policy)
    };
    Ok((text, Ended::Done))
}

fn to_text(found: &WhatIfFound, logged: &[&str], policy: &str) -> String {
    let WhatIfFound { decisions, otherwise, compared, prompt_tokens, logged: was, now } = *found;
    let under = logged.join(", ");
    let mut text = format!(
        "{} written under {under}; {policy} chooses another endpoint in {otherwise} ({})\n\n",
        count(decisions, "decision"),
        percent(otherwise, decisions)
    );
    let tokens = |tokens: u64| format!("{tokens} ({})", percent(tokens, prompt_tokens));
    let seconds = |expected: Expected| mean(expected.ttft_s, compared).map_or("-".to_owned(), ms);
    let rows = [
        ("", "in the log".to_owned(), policy.to_owned()),
        ("expected cached tokens", tokens(was.cached_tokens), tokens(now.cached_tokens)),
        ("pending tokens", tokens(was.pending_tokens), tokens(now.pending_tokens)),
        ("expected time to first token", seconds(was), seconds(now)),
    ];
    for (name, was, now) in rows {
        text.push_str(format!("{name:<30}{was:>24}{now:>24}").trim_end());
        text.push('\n');
    }
    text + &format!("\n{LIMITS}\n")
}

fn to_json(found: &WhatIfFound, logged: &[&str], policy: &str) -> Value {
    let expected = |expected: Expected| {
        json!({
            "expected_cached_tokens": expected.cached_tokens,
            "pending_tokens": expected.pending_tokens,
            "expected_ttft_s": mean(expected.ttft_s, found.compared),
        })
    };
    json!({
        "policy": policy,
        "logged_policies": logged,
        "decisions": found.decisions,
        "otherwise": found.otherwise,
        "compared": found.compared,
        "prompt_tokens": found.prompt_tokens,
        "logged": expected(found.logged),
        "now": expected(found.now),
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}
