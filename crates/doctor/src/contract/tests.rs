//! Contracts of recorded engines, and of events made up to be hard.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvasir_fleet::Adapter;
use kvasir_kv_events::{Update, decode};
use kvasir_kv_hash::vllm::{Algorithm, Contract, Digest, Lora, RequestExtras, Version};
use kvasir_testkit::publisher::payload::{EventSpec, Form, batch, stored};
use rmpv::Value as Msgpack;
use serde_json::Value;

use super::*;
use crate::facts::plain;
use crate::report::{LegName, Verdict};

fn take(heard: &mut Collected, payload: Vec<u8>) {
    let batch = decode(&payload).unwrap();
    let payload = Arc::new(payload);
    heard.take(&Update::Batch { seq: heard.batches, replayed: false, batch, payload });
}

fn heard(events: &[EventSpec]) -> Collected {
    let mut heard = Collected::default();
    take(&mut heard, batch(Form::Map, 1.0, events));
    heard
}

fn judge(target: &Target, facts: &Facts, heard: &Collected) -> Vec<Leg> {
    let mut legs = Vec::new();
    super::legs(target, facts, &Probed::default(), Some(heard), &mut legs);
    legs
}

#[track_caller]
fn says(legs: &[Leg], name: LegName, verdict: Verdict, text: &str) {
    let leg = legs.iter().find(|leg| leg.leg == name).unwrap();
    assert_eq!(leg.verdict, verdict, "{leg}");
    assert!(leg.to_string().contains(text), "no {text:?} in: {leg}");
}

/// The blocks of a request, as vLLM 0.32 publishes them.
fn event(contract: &Contract, tokens: &[u32], lora: Option<(&str, &str)>) -> EventSpec {
    let lora_of = |(name, path): (&str, &str)| Lora {
        name: name.to_owned(),
        path: Some(path.to_owned()),
        int_id: None,
    };
    let request = RequestExtras { lora: lora.map(lora_of), ..RequestExtras::default() };
    let mut chain = contract.chain_with(16, request).unwrap();
    let hashes: Vec<u64> = chain.append(tokens).iter().map(Digest::to_u64).collect();
    let keys = lora.map_or(Msgpack::Nil, |(name, _)| Msgpack::Array(vec![name.into()]));
    stored(&hashes, None, tokens)
        .field("extra_keys", Msgpack::Array(vec![keys; hashes.len()]))
        .field("lora_name", lora.map_or(Msgpack::Nil, |(name, _)| name.into()))
}

fn sha256() -> Contract {
    Contract::new(Version::release(0, 32, 0), Algorithm::Sha256, Some("42")).unwrap()
}

fn tokens(first: u32) -> Vec<u32> {
    (first..first + 48).collect()
}

#[test]
fn recorded_engines_are_recognised_and_their_neighbours_told_apart() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    let mut checked = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".jsonl") && (name.contains("-int") || name.contains("-bytes")) {
            recorded(&path, &name);
            checked += 1;
        }
    }
    assert!(checked >= 15, "{checked}");
}

fn recorded(path: &Path, name: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let meta = lines.iter().find(|line| line["kind"] == "meta").unwrap();
    let setting = |name: &str| meta[name].as_str().unwrap();
    let mut heard = Collected::default();
    for line in lines.iter().filter(|line| line["kind"] == "frames") {
        let hex = line["frames_hex"][2].as_str().unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        take(&mut heard, (0..hex.len()).step_by(2).map(byte).collect());
    }
    let mut facts = plain();
    facts.vllm_version = Some(setting("version").parse().unwrap());
    for model in meta["models"]["data"].as_array().unwrap() {
        let text = |field: &str| model[field].as_str().map(str::to_owned);
        if text("parent").is_some() {
            facts.card.adapters.push(Adapter { name: text("id").unwrap(), path: text("root") });
        }
    }
    let mut target = Target::new(facts.origin.authority().clone());
    let seed = Some(setting("pythonhashseed").to_owned()).filter(|seed| seed != "unset");
    target.expected.algorithm = Some(setting("algo").to_owned());
    target.expected.seed = Some(seed);
    target.expected.block_size = Some(setting("block_size").parse().unwrap());

    let legs = judge(&target, &facts, &heard);
    let contract = legs.iter().find(|leg| leg.leg == LegName::HashContract).unwrap();
    assert_eq!(contract.verdict, Verdict::Ok, "{name}: {contract}");
    let counts = contract.finding.split(", ").find(|part| part.ends_with("blocks verified"));
    let counts: Vec<&str> = counts.unwrap().split(' ').collect();
    assert_eq!(counts[0], counts[2], "{name}: {contract}");
    assert!(counts[0].parse::<usize>().unwrap() > 20, "{name}: {contract}");
    assert!(contract.finding.contains("cache_salt"), "{name}: {contract}");
    assert_eq!(contract.finding.contains("and lora"), name.contains("lora"), "{contract}");
    says(&legs, LegName::BlockSize, Verdict::Ok, "expected");
    let form = if name.contains("-int") { "integer hashes" } else { "byte hashes" };
    says(&legs, LegName::Wire, Verdict::Ok, form);
    let form = if name.starts_with("0.20") { "arrays" } else { "maps" };
    says(&legs, LegName::Wire, Verdict::Ok, form);

    target.expected.seed = Some(Some("77".to_owned()));
    says(&judge(&target, &facts, &heard), LegName::HashContract, Verdict::Off, "expected \"77\"");
    target.expected.seed = None;
    let other = if setting("algo") == "sha256" { "xxhash" } else { "sha256" };
    target.expected.algorithm = Some(other.to_owned());
    let text = format!("algorithm is {}, expected {other}", setting("algo"));
    says(&judge(&target, &facts, &heard), LegName::HashContract, Verdict::Off, &text);
    target.expected.block_size = Some(64);
    says(&judge(&target, &facts, &heard), LegName::BlockSize, Verdict::Off, "expected 64");
}

#[test]
fn adapters_of_different_paths_are_verified_and_strangers_named() {
    let contract = sha256();
    let events = [
        event(&contract, &tokens(0), None),
        event(&contract, &tokens(0), Some(("a", "/a"))),
        event(&contract, &tokens(0), Some(("b", "/b"))),
    ];
    let mut facts = plain();
    let adapter =
        |name: &str, path: &str| Adapter { name: name.to_owned(), path: Some(path.to_owned()) };
    facts.card.adapters = vec![adapter("a", "/a"), adapter("b", "/b")];
    let target = Target::new(facts.origin.authority().clone());
    let legs = judge(&target, &facts, &heard(&events));
    says(&legs, LegName::HashContract, Verdict::Ok, "9 of 9 blocks verified, with lora");

    facts.card.adapters.pop();
    let legs = judge(&target, &facts, &heard(&events));
    says(
        &legs,
        LegName::HashContract,
        Verdict::Ok,
        "6 of 6 blocks verified, with lora; adapter b: not checked",
    );

    facts.card.adapters = vec![adapter("a", "/a"), adapter("b", "/moved")];
    let mut target = target;
    target.expected.seed = Some(Some("42".to_owned()));
    let legs = judge(&target, &facts, &heard(&events));
    let text = "adapter b: its blocks do not fit the path";
    says(&legs, LegName::HashContract, Verdict::Unknown, text);
}

#[test]
fn expectations_that_no_hash_can_meet_are_not_passed_over() {
    use kvasir_kv_hash::detect::{Form as HashForm, Found, Match};
    use kvasir_kv_hash::sglang::Generation;
    let generations = (Generation::NamedAdapters, Generation::NamedAdapters);
    let found = Found::Sglang { generations, format: None };
    let (form, block_size, verified, checked) = (HashForm::Int, 16, 3, 3);
    let fits = [Match { found, form, block_size, verified, checked }];
    let mut target = Target::new(plain().origin.authority().clone());
    assert_eq!(hash::not_compared(&target, &fits), None);
    target.expected.algorithm = Some("sha256".to_owned());
    assert!(hash::not_compared(&target, &fits).is_some());
    target.expected.algorithm = None;
    target.expected.seed = Some(Some("0".to_owned()));
    assert!(hash::not_compared(&target, &fits).is_some());
}

#[test]
fn metrics_and_hashes_that_name_different_algorithms_are_off() {
    let events = heard(&[event(&sha256(), &tokens(0), None)]);
    let mut facts = plain();
    let target = Target::new(facts.origin.authority().clone());
    facts.cache.algorithm = Some("sha256".to_owned());
    says(&judge(&target, &facts, &events), LegName::HashContract, Verdict::Ok, "3 of 3");
    facts.cache.algorithm = Some("xxhash".to_owned());
    let text = "cache_config_info says xxhash, the published hashes are sha256";
    says(&judge(&target, &facts, &events), LegName::HashContract, Verdict::Off, text);
}

#[test]
fn blocks_that_do_not_fit_are_off() {
    let contract = sha256();
    let keys = Msgpack::Array(vec![Msgpack::Nil; 3]);
    let wrong = stored(&[1, 2, 3], None, &tokens(500)).field("extra_keys", keys);
    let events = [event(&contract, &tokens(0), None), wrong];
    let facts = plain();
    let target = Target::new(facts.origin.authority().clone());
    let legs = judge(&target, &facts, &heard(&events));
    says(&legs, LegName::HashContract, Verdict::Off, "1 blocks do not fit");
}

#[test]
fn without_a_first_block_the_seed_is_open() {
    let contract = sha256();
    let mut chain = contract.chain(16).unwrap();
    let digests = chain.append(&tokens(0)).to_vec();
    let bytes = |at: usize| Msgpack::Binary(digests[at].as_bytes().to_vec());
    let rest = stored(&[0, 0], Some(0), &tokens(0)[16..])
        .field("block_hashes", Msgpack::Array(vec![bytes(1), bytes(2)]))
        .field("parent_block_hash", bytes(0))
        .field("extra_keys", Msgpack::Array(vec![Msgpack::Nil; 2]));
    let facts = plain();
    let target = Target::new(facts.origin.authority().clone());
    let legs = judge(&target, &facts, &heard(&[rest]));
    let text = "no heard event begins a chain; sha256, seed unknown";
    says(&legs, LegName::HashContract, Verdict::Unknown, text);
}

#[test]
fn sizes_that_differ_are_all_named() {
    let mut facts = plain();
    let target = Target::new(facts.origin.authority().clone());
    let events = heard(&[stored(&[1], None, &[7; 16])]);
    facts.cache.block_size = Some(32);
    let legs = judge(&target, &facts, &events);
    says(&legs, LegName::BlockSize, Verdict::Off, "events 16, cache_config_info 32");
    // Blocks of a hybrid model are hashed in smaller pieces.
    (facts.cache.block_size, facts.cache.hash_block_size) = (Some(16), Some(8));
    let legs = judge(&target, &facts, &events);
    says(&legs, LegName::BlockSize, Verdict::Ok, "8 (hash_block_size), 16 (block_size)");
    let events = heard(&[stored(&[1], None, &[7; 16]), stored(&[2], None, &[7; 8])]);
    says(&judge(&target, &facts, &events), LegName::BlockSize, Verdict::Off, "events 8 and 16");
    let nothing = judge(&target, &plain(), &Collected::default());
    says(&nothing, LegName::BlockSize, Verdict::Unknown, "neither");
}

#[test]
fn lookahead_and_other_groups_are_named() {
    use kvasir_inventory::{SuspectReason, Trust};
    let facts = plain();
    let target = Target::new(facts.origin.authority().clone());
    let ahead = Msgpack::Array(vec![Msgpack::Array(vec![9.into()])]);
    let event = stored(&[1], None, &[7; 16]);
    let mut events = heard(&[event.clone().field("lookahead_token_ids", ahead)]);
    events.trust = Trust::Suspect(SuspectReason::LookaheadHashing);
    says(&judge(&target, &facts, &events), LegName::Wire, Verdict::Off, "lookahead tokens");
    let mut unpublished = heard(std::slice::from_ref(&event));
    unpublished.trust = Trust::Suspect(SuspectReason::ExtraKeysUnpublished);
    says(&judge(&target, &facts, &unpublished), LegName::Wire, Verdict::Off, "nothing is credited");
    let window = event.field("group_idx", 1).field("kv_cache_spec_kind", "sliding_window");
    let mut events = heard(&[window]);
    events.trust = Trust::Suspect(SuspectReason::UnsupportedGroup);
    says(
        &judge(&target, &facts, &events),
        LegName::Wire,
        Verdict::Off,
        "groups 1 (sliding_window)",
    );
}
