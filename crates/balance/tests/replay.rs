//! A log of decisions, read back and made again.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::time::Duration;

use kvasir_balance::record::{
    DecisionRecord, Line, Made, OutcomeRecord, Replay, ReplayError, Start,
};
use kvasir_balance::{
    Blind, Candidate, EndpointId, Exclusion, Load, Members, Moment, Outcome, PolicyKind, Prefix,
    Query, Rng, SelectionSpec, StickyOptions,
};
use kvasir_inventory::{Overlap, Tier, Trust};
use kvasir_kv_hash::BlockKey;
use serde_json::{Value, from_str, to_string, to_value};

const NAMES: [&str; 4] = ["http://a", "http://b", "http://c#0", "http://c#1"];

/// Plays random traffic against a selection and returns its log.
fn log_of(spec: &SelectionSpec, seed: u64) -> Vec<String> {
    let mut selection = spec.build(seed);
    let start = Start { format: 1, model: "m".to_owned(), selection: spec.clone(), seed };
    let mut lines = vec![to_string(&Line::Start(start)).unwrap()];
    let (mut rng, mut world) = (Rng::new(seed), Rng::new(seed ^ 1));
    for id in 0..200_u64 {
        let keys: Vec<BlockKey> =
            (0..8).map(|at| BlockKey(world.below(3) as u64 * 100 + at)).collect();
        let query = Query {
            prompt_tokens: 129,
            session: (world.below(2) == 0).then(|| world.below(9) as u64),
            blind: (world.below(4) == 0).then_some(Blind::NoTokenizer),
            prefix: Prefix {
                keys: &keys,
                tokens_per_key: 16,
                token_head: Some(keys[7].0),
                ..Prefix::default()
            },
        };
        let (candidates, exclusions) = fleet(&mut world);
        let first_attempt = world.below(2) == 0;
        let members = Members { candidates: &candidates, exclusions: &exclusions, first_attempt };
        let made = Made { id, at_us: id * 1_000_000, seed: rng.state() };
        let now = Duration::from_secs(id);
        let decision = selection.select(&query, &members, &mut Moment { now, rng: &mut rng });
        let record = DecisionRecord::new(made, &query, &members, &NAMES, decision.as_ref());
        lines.push(to_string(&Line::Decision(record)).unwrap());
        if let Some(decision) = decision {
            let answered = world.below(4) > 0;
            let endpoint = candidates[decision.index].id;
            selection.observe(&Outcome { query: &query, endpoint, answered, now });
            let outcome = OutcomeRecord { of: id, answered, at_us: id * 1_000_000 };
            lines.push(to_string(&Line::Outcome(outcome)).unwrap());
        }
        if id % 50 == 49 {
            selection.forget(EndpointId::of(NAMES[1]));
            let endpoint = NAMES[1].to_owned();
            lines.push(to_string(&Line::Forget { endpoint }).unwrap());
        }
    }
    lines
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
fn fleet(world: &mut Rng) -> (Vec<Candidate>, Vec<Option<Exclusion>>) {
    let mut candidates = Vec::new();
    let mut exclusions = Vec::new();
    for name in NAMES {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, world.below(4) as u32 * 16);
        overlap.add(Tier::Host, world.below(3) as u32 * 16);
        candidates.push(Candidate {
            id: EndpointId::of(name),
            overlap,
            pending: world.below(2) as u32 * 16,
            trust: Trust::Exact,
            load: Load {
                in_flight: world.below(20) as u32,
                queued_prefill_tokens: world.below(3000) as u64,
                waiting: Some(world.below(5) as u32),
                kv_usage: Some(world.below(1000) as f64 / 999.0),
            },
            prefill_rate: 1000.0 + world.below(1000) as f64 / 7.0,
            ttft_ms: Some(world.below(900) as f64 / 3.0),
            resident_blocks: Some(world.below(40) as u64),
            lmcache_occupancy: Some(world.below(100) as f64 / 99.0),
            ..Candidate::default()
        });
        let excluded = world.below(4) == 0;
        let which = world.below(Exclusion::ALL.len());
        exclusions.push(excluded.then(|| Exclusion::ALL[which]));
    }
    (candidates, exclusions)
}

fn differences(lines: &[String]) -> Vec<String> {
    let mut replay = Replay::default();
    let lines = lines.iter().map(|line| from_str::<Line>(line).unwrap());
    lines.filter_map(|line| replay.line(&line).unwrap()).map(|d| d.to_string()).collect()
}

#[test]
fn every_policy_chooses_the_same_again() {
    for kind in PolicyKind::ALL {
        let spec = SelectionSpec {
            slo_ttft_ms: Some(200.0),
            sticky: Some(StickyOptions::default()),
            shadow: Some(PolicyKind::PowerOfTwo.into()),
            ..SelectionSpec::of(kind)
        };
        assert_eq!(differences(&log_of(&spec, 11)), Vec::<String>::new(), "{kind:?}");
        assert_eq!(differences(&log_of(&SelectionSpec::of(kind), 12)), Vec::<String>::new());
    }
}

#[test]
fn another_policy_does_not() {
    let mut lines = log_of(&SelectionSpec::of(PolicyKind::RoundRobin), 3);
    lines[0] = lines[0].replace("round_robin", "latency");
    let differences = differences(&lines);
    assert!(differences.len() > 50 && differences[0].contains("in the log"), "{differences:?}");
}

#[test]
fn a_record_says_what_was_known_and_why() {
    let lines = log_of(&SelectionSpec::of(PolicyKind::Latency), 5);
    let found = lines
        .iter()
        .map(|line| from_str::<Value>(line).unwrap())
        .find(|line| line["line"] == "decision" && line["choice"]["runner_up"].is_string());
    let record = found.unwrap();
    let choice = &record["choice"];
    assert_eq!(choice["policy"], "latency");
    assert_eq!(choice["stages"][0]["stage"], "eligibility");
    let endpoint = |name: &Value| {
        let endpoints = record["endpoints"].as_array().unwrap();
        endpoints.iter().find(|endpoint| &endpoint["name"] == name).unwrap().clone()
    };
    let (chosen, second) = (endpoint(&choice["endpoint"]), endpoint(&choice["runner_up"]));
    assert_eq!((&chosen["trust"], chosen.get("exclusion")), (&to_value("exact").unwrap(), None));
    assert!(chosen["expected_ttft_s"].as_f64() > Some(0.0) && chosen["overlap"]["device"].is_u64());
    assert!(second["score"].is_f64());
    assert!(lines.iter().any(|line| line.contains(r#""exclusion":"draining""#)));
}

#[test]
fn logs_that_cannot_be_replayed_say_why() {
    let lines = log_of(&SelectionSpec::default(), 1);
    let mut replay = Replay::default();
    let decision: Line = from_str(&lines[1]).unwrap();
    assert_eq!(replay.line(&decision), Err(ReplayError::NotStarted));
    let other: Line = from_str(&lines[0].replace(r#""format":1"#, r#""format":2"#)).unwrap();
    assert_eq!(replay.line(&other), Err(ReplayError::Format(2)));
}
