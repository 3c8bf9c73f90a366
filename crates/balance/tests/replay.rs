//! A log of decisions, read back and made again.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::time::Duration;

use kvasir_balance::record::{
    DecisionRecord, Line, Made, Memory, OutcomeRecord, Replay, ReplayError, Start, WhatIf,
};
use kvasir_balance::{
    Blind, Candidate, Cut, DEFAULT_TRANSFER_RATE, EndpointId, Exclusion, Legs, Load, Members,
    Moment, Outcome, PairSelect, Pairing, PolicyKind, Prefix, Query, Rng, Role, SelectionSpec,
    StickyOptions,
};
use kvasir_inventory::{Overlap, Tier, Trust};
use kvasir_kv_hash::BlockKey;
use serde_json::{Value, from_str, to_string, to_value};

const NAMES: [&str; 4] = ["http://a", "http://b", "http://c#0", "http://c#1"];

/// Plays random traffic against a selection and returns its log.
fn log_of(spec: &SelectionSpec, seed: u64) -> Vec<String> {
    log_by(spec, seed, None)
}

/// The same of a pool that may split requests.
fn log_by(spec: &SelectionSpec, seed: u64, pairing: Option<Pairing>) -> Vec<String> {
    let mut selection = spec.build(seed);
    let start = Start::new("m".to_owned(), spec.clone(), seed);
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
                salt: (world.below(2) == 0).then(|| world.below(3) as u64),
                ..Prefix::default()
            },
        };
        let (mut candidates, exclusions) = fleet(&mut world);
        if pairing.is_some() {
            give_roles(&mut candidates, &mut world);
        }
        let first_attempt = world.below(2) == 0;
        let cut = if pairing.is_some() { cuts(&mut world) } else { Vec::new() };
        let members = Members { candidates: &candidates, exclusions: &exclusions, first_attempt };
        let at_us = id * 1_000_000;
        let made = Made { id, request_id: Some("r"), at_us, waited_ms: None, seed: rng.state() };
        let now = Duration::from_secs(id);
        let mut moment = Moment { now, rng: &mut rng };
        let decision = match &pairing {
            Some(pairing) => selection.select_pair(&query, &members, pairing, &cut, &mut moment),
            None => selection.select(&query, &members, &mut moment),
        };
        let record = DecisionRecord::new(made, &query, &members, &NAMES, decision.as_ref());
        let record = record.split_by(pairing).cut_by(&cut);
        lines.push(to_string(&Line::Decision(record)).unwrap());
        if let Some(decision) = decision {
            let answered = world.below(4) > 0;
            let endpoint = candidates[decision.computes()].id;
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

/// Who hands over nothing: mostly nobody.
fn cuts(world: &mut Rng) -> Vec<Cut> {
    let (prefill, decode) = (world.below(4), world.below(4));
    match world.below(6) {
        0 => vec![Cut::Prefill(prefill)],
        1 => vec![Cut::Link { prefill, decode }, Cut::Decode(prefill)],
        _ => Vec::new(),
    }
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
                recent_work: world.below(9000) as f64 / 7.0,
                waiting: Some(world.below(5) as u32),
                kv_usage: Some(world.below(1000) as f64 / 999.0),
            },
            prefill_rate: 1000.0 + world.below(1000) as f64 / 7.0,
            fetch_rate: 3000.0 + world.below(1000) as f64 / 7.0,
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

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn give_roles(candidates: &mut [Candidate], world: &mut Rng) {
    for candidate in candidates {
        candidate.role = Role::ALL[world.below(3)];
        candidate.transfer_rate = 1000.0 + world.below(1000) as f64 / 7.0;
        if candidate.role != Role::Decode {
            candidate.transfer_rate = DEFAULT_TRANSFER_RATE;
        }
    }
}

fn differences(lines: &[String]) -> Vec<String> {
    let mut replay = Replay::default();
    let lines = lines.iter().map(|line| from_str::<Line>(line).unwrap());
    lines.filter_map(|line| replay.line(&line).unwrap()).map(|d| d.to_string()).collect()
}

#[test]
fn split_requests_are_chosen_the_same_again() {
    let sticky = Some(StickyOptions::default());
    let by_cost = PolicyKind::ALL.map(|kind| (kind, PairSelect::Cost));
    let by_load = [PairSelect::LeastLoad, PairSelect::E4].map(|how| (PolicyKind::Latency, how));
    for (kind, select) in by_cost.into_iter().chain(by_load) {
        let shadow = Some(PolicyKind::LeastLoad.into());
        let spec = SelectionSpec { sticky, shadow, ..SelectionSpec::of(kind) };
        let pairing = Pairing { select, transfer_s: 0.005, ..Pairing::default() };
        let lines = log_by(&spec, 5, Some(pairing));
        assert!(lines.iter().any(|line| line.contains("\"plan\":\"split\"")), "{kind:?}");
        assert_eq!(differences(&lines), [""; 0], "{kind:?} {select:?}");
    }
}

#[test]
fn another_prefill_endpoint_is_a_difference() {
    let spec = SelectionSpec::of(PolicyKind::Latency);
    let lines = log_by(&spec, 5, Some(Pairing { transfer_s: 0.005, ..Pairing::default() }));
    let split = lines.iter().position(|line| line.contains("\"plan\":\"split\"")).unwrap();
    let mut line: Value = from_str(&lines[split]).unwrap();
    line["choice"]["prefill"] = "http://z".into();
    let altered: Vec<String> = [&lines[..split], &[line.to_string()], &lines[split + 1..]].concat();
    let found = differences(&altered);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("; prefill: http://z in the log, "), "{found:?}");
}

#[test]
fn logs_of_the_form_before_are_read() {
    let spec = SelectionSpec::of(PolicyKind::Latency);
    let mut lines = log_of(&spec, 3);
    assert!(lines.iter().all(|line| !line.contains("\"pairing\"") && !line.contains("\"role\"")));
    lines[0] = lines[0].replace("\"format\":3", "\"format\":1");
    assert_eq!(differences(&lines), [""; 0]);
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
fn how_long_a_request_waited_is_told_where_it_did_and_changes_nothing() {
    let lines = log_of(&SelectionSpec::of(PolicyKind::RoundRobin), 3);
    assert!(!lines.iter().any(|line| line.contains("waited_ms")), "as in logs that never said it");
    let waited = |line: &String| line.replace("\"seed\":", "\"waited_ms\":120,\"seed\":");
    let lines: Vec<String> =
        lines[..1].iter().cloned().chain(lines[1..].iter().map(waited)).collect();
    let told = lines.iter().filter_map(|line| match from_str(line).unwrap() {
        Line::Decision(record) => record.waited_ms,
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [120; 200]);
    assert_eq!(differences(&lines), Vec::<String>::new());
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
fn what_was_not_split_is_as_it_was_called_once() {
    let spec = SelectionSpec::default();
    let lines = log_by(&spec, 5, Some(Pairing { legs: Legs::Whole, ..Pairing::default() }));
    let old: Vec<_> =
        lines.iter().map(|l| l.replace(r#""not_split""#, r#""no_prefill""#)).collect();
    assert_ne!(lines, old);
    for lines in [lines, old] {
        assert_eq!(play(&mut Replay::default(), &lines), 0);
    }
}

#[test]
fn logs_that_cannot_be_replayed_say_why() {
    let lines = log_of(&SelectionSpec::default(), 1);
    let mut replay = Replay::default();
    let decision: Line = from_str(&lines[1]).unwrap();
    assert_eq!(replay.line(&decision), Err(ReplayError::NotStarted));
    let other: Line = from_str(&lines[0].replace(r#""format":3"#, r#""format":4"#)).unwrap();
    assert_eq!(replay.line(&other), Err(ReplayError::Format(4)));
}

/// The log as two files: the second begins with a line of its own.
fn in_two_files(lines: &[String]) -> (Vec<String>, Vec<String>) {
    let (first, rest) = lines.split_at(lines.len() / 2);
    let Line::Start(start) = from_str(&lines[0]).unwrap() else { panic!("{}", lines[0]) };
    let continues = first.len() as u64 - 1;
    let start = to_string(&Line::Start(Start { continues, ..start })).unwrap();
    (first.to_vec(), [vec![start], rest.to_vec()].concat())
}

fn play(replay: &mut Replay, lines: &[String]) -> usize {
    let differs = |line: &String| replay.line(&from_str(line).unwrap()).unwrap();
    lines.iter().filter_map(differs).count()
}

#[test]
fn memory_goes_on_from_file_to_file() {
    for kind in PolicyKind::ALL {
        let spec = SelectionSpec {
            sticky: Some(StickyOptions::default()),
            shadow: Some(PolicyKind::PowerOfTwo.into()),
            ..SelectionSpec::of(kind)
        };
        let (first, second) = in_two_files(&log_of(&spec, 11));
        let mut replay = Replay::default();
        assert_eq!(play(&mut replay, &first) + play(&mut replay, &second), 0, "{kind:?}");
        assert_eq!((replay.decisions(), replay.memory()), (200, Memory::Known));
    }
}

#[test]
fn a_later_file_alone_may_differ_where_policies_remember_and_says_so() {
    let spec = SelectionSpec::of(PolicyKind::RoundRobin);
    let (first, second) = in_two_files(&log_of(&spec, 11));
    let mut replay = Replay::default();
    assert!(play(&mut replay, &second) > 0);
    assert_eq!(replay.memory(), Memory::BeganLater);
    // In the wrong order it is no better, and a new beginning is one.
    assert!(play(&mut replay, &second) > 0);
    assert_eq!((play(&mut replay, &first), replay.memory()), (0, Memory::Known));
    let (_, second) = in_two_files(&log_of(&SelectionSpec::of(PolicyKind::Latency), 11));
    let mut replay = Replay::default();
    assert_eq!((play(&mut replay, &second), replay.memory()), (0, Memory::Known));
}

#[test]
fn missing_lines_are_known_to_be_missing() {
    for (kind, memory) in
        [(PolicyKind::RoundRobin, Memory::LinesMissing), (PolicyKind::Latency, Memory::Known)]
    {
        let mut lines = log_of(&SelectionSpec::of(kind), 5);
        let decision = |line: &&String| line.contains(r#""line":"decision""#);
        assert!(decision(&&lines[1]) && lines.iter().filter(decision).count() == 200);
        lines[1] = to_string(&Line::Missing { lines: 1 }).unwrap();
        let (first, second) = in_two_files(&lines);
        let mut replay = Replay::default();
        let differing = play(&mut replay, &first);
        assert_eq!(differing > 0, kind == PolicyKind::RoundRobin, "{differing}");
        play(&mut replay, &second);
        assert_eq!((replay.decisions(), replay.memory()), (199, memory));
    }
}

#[test]
fn a_changed_choice_is_found_whatever_of_it_was_changed() {
    let lines = log_of(&SelectionSpec::of(PolicyKind::Latency), 5);
    let change = |from: &str, to: &str| {
        let place = lines.iter().position(|line| line.contains(from)).unwrap();
        let mut lines = lines.clone();
        lines[place] = lines[place].replacen(from, to, 1);
        let found = differences(&lines);
        assert_eq!(found.len(), 1, "{from}");
        found[0].clone()
    };
    let text = change(r#""choice":{"endpoint":"http://a""#, r#""choice":{"endpoint":"http://x""#);
    assert!(text.ends_with("http://x in the log, http://a now"), "{text}");
    let text = change(r#""reason":"least_latency_warm""#, r#""reason":"turn""#);
    assert!(text.ends_with("; reason: turn in the log, least_latency_warm now"), "{text}");
    let text = change(r#""outcome":"some""#, r#""outcome":"all""#);
    assert!(text.contains("; stages: eligibility=all("), "{text}");
}

#[test]
fn a_changed_reason_for_having_no_say_is_found() {
    let mut lines = log_of(&SelectionSpec::of(PolicyKind::PreciseCacheAware), 5);
    let (was, is) = (r#""miss":"no_tokenizer""#, r#""miss":"tokenize""#);
    let line = lines.iter_mut().find(|line| line.contains(was)).unwrap();
    *line = line.replacen(was, is, 1);
    let found = differences(&lines);
    assert_eq!(found.len(), 1, "{found:?}");
    let (logged, now) = found[0].split_once(" in the log, eligibility").unwrap();
    assert!(logged.contains("precise_cache_aware=no_say:tokenize("), "{logged}");
    assert!(now.contains("precise_cache_aware=no_say:no_tokenizer("), "{now}");
}

#[test]
fn digests_and_seeds_are_text_that_any_reader_of_json_keeps() {
    let lines = log_of(&SelectionSpec::of(PolicyKind::CacheAware), u64::MAX - 1);
    let record: Value = from_str(&lines[1]).unwrap();
    assert_eq!(record["seed"], "fffffffffffffffe");
    assert!(record["query"]["keys"][0].as_str().unwrap().len() == 16);
    let Line::Decision(known) = from_str(&lines[1]).unwrap() else { panic!() };
    assert_eq!(known.seed, u64::MAX - 1);
    for bad in ["\"fffffffffffffffe0\"", "\"+ffffffffffffffe\"", "\"\"", "12"] {
        let line = lines[1].replace("\"fffffffffffffffe\"", bad);
        assert!(from_str::<Line>(&line).is_err(), "{bad}");
    }
}

#[test]
fn another_policy_is_tried_on_what_the_log_knew() {
    let lines = log_of(&SelectionSpec::of(PolicyKind::RoundRobin), 3);
    let under = |kind: PolicyKind| {
        let mut what_if = WhatIf::new(kind.into());
        lines.iter().try_for_each(|line| what_if.line(&from_str(line).unwrap()))?;
        Ok(what_if.found())
    };
    let same = under(PolicyKind::RoundRobin).unwrap();
    assert_eq!((same.decisions, same.otherwise, same.logged), (200, 0, same.now));
    let latency = under(PolicyKind::Latency).unwrap();
    assert!(latency.otherwise > 50 && latency.otherwise < 200 && latency.compared <= 200);
    assert!(latency.now.cached_tokens > latency.logged.cached_tokens, "{latency:?}");
    assert!(latency.now.ttft_s < latency.logged.ttft_s, "{latency:?}");
    // Nothing of prompts' keys is read by the policies of the log; they are there in a test only.
    let error = under(PolicyKind::CacheAware).unwrap_err();
    assert!(matches!(error, ReplayError::Keys { policy: "cache_aware", .. }), "{error}");
}

#[test]
fn outcomes_of_decisions_that_are_not_known_are_said() {
    let outcome = |of| Line::Outcome(OutcomeRecord { of, answered: true, at_us: 1 << 40 });
    for (kind, wanted) in
        [(PolicyKind::RoundRobin, Memory::OutcomesUnknown), (PolicyKind::Latency, Memory::Known)]
    {
        let lines = log_of(&SelectionSpec::of(kind), 1);
        let mut replay = Replay::default();
        play(&mut replay, &lines);
        assert_eq!(replay.memory(), Memory::Known);
        replay.line(&outcome(9999)).unwrap();
        assert_eq!(replay.memory(), wanted);
    }
    // The oldest of too many open decisions is not known any more.
    let lines = log_of(&SelectionSpec::of(PolicyKind::RoundRobin), 1);
    let chosen = lines.iter().find(|line| line.contains(r#""choice":{"#)).unwrap();
    let Line::Decision(mut record) = from_str(chosen).unwrap() else { panic!("{chosen}") };
    record.query.keys.clear();
    let mut replay = Replay::default();
    replay.line(&from_str(&lines[0]).unwrap()).unwrap();
    for id in 0..=65_536 {
        record.id = id;
        replay.line(&Line::Decision(record.clone())).unwrap();
    }
    replay.line(&outcome(1)).unwrap();
    assert_eq!(replay.memory(), Memory::Known);
    replay.line(&outcome(0)).unwrap();
    assert_eq!(replay.memory(), Memory::OutcomesUnknown);
}
