//! What probes say together.

use super::*;
use crate::facts::plain;
use crate::report::Verdict;

fn step(predicted: Option<u64>, outcome: Outcome) -> Step {
    Step { what: "a prompt".to_owned(), prompt_tokens: 51, predicted, outcome }
}

fn reported(pairs: &[(u64, u64)]) -> Vec<Step> {
    pairs.iter().map(|(p, r)| step(Some(*p), Outcome::Reported(*r))).collect()
}

#[track_caller]
fn says(steps: Vec<Step>, verdict: Verdict, text: &str) {
    let mut facts = plain();
    facts.cache.block_size = Some(16);
    let leg = judge(&facts, &Probed { leave: true, steps });
    assert_eq!(leg.verdict, verdict, "{leg}");
    assert!(leg.to_string().contains(text), "{leg}");
}

#[test]
fn alike_is_ok_and_the_first_difference_is_shown() {
    says(reported(&[(0, 0), (48, 48)]), Verdict::Ok, "2 of 2 probes: predicted = reported (0, 48)");
    let text =
        "probe 2 of 3 (a prompt): predicted 48, reported 0 of 51 tokens: the engine used less";
    says(reported(&[(0, 0), (48, 0), (0, 48)]), Verdict::Off, text);
    says(reported(&[(0, 48)]), Verdict::Off, "holds more than its events say");
    says(reported(&[(48, 32)]), Verdict::Off, "EAGLE");
    says(reported(&[(0, 0), (0, 0)]), Verdict::Off, "even a repeated prompt");
}

#[test]
fn what_cannot_be_compared_is_unknown() {
    says(Vec::new(), Verdict::Unknown, "nothing was sent");
    let silent = step(Some(0), Outcome::Silent("other traffic hides the hits"));
    says(vec![silent.clone()], Verdict::Unknown, "other traffic hides the hits");
    let steps = [reported(&[(0, 0), (48, 48)]), vec![silent]].concat();
    says(steps, Verdict::Ok, "2 of 3 probes");
    // The repeated prompt may be the one that others' traffic hid.
    let hidden = step(Some(48), Outcome::Silent("other traffic hides the hits"));
    let steps = [reported(&[(0, 0), (0, 0)]), vec![hidden]].concat();
    says(steps, Verdict::Unknown, "2 of 3 probes");
    let evicted = step(Some(48), Outcome::Silent(EVICTED));
    let steps = [reported(&[(0, 0)]), vec![evicted]].concat();
    says(steps, Verdict::Unknown, "others' requests evicted blocks");
    let blind = vec![step(None, Outcome::Reported(0)), step(None, Outcome::Reported(48))];
    says(
        blind,
        Verdict::Unknown,
        "without events nothing is predicted; cached tokens reported: 0, 48",
    );
    let failed = step(Some(0), Outcome::Failed("answered 500".to_owned()));
    let steps = [reported(&[(0, 0), (48, 48)]), vec![failed]].concat();
    says(steps, Verdict::Unknown, "a prompt: answered 500");
    let counted = vec![step(Some(0), Outcome::Counted(0)), step(Some(48), Outcome::Counted(48))];
    says(counted, Verdict::Ok, "by the hit counters");
}
