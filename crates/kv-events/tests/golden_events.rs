//! Every batch and frame that vLLM's own publisher writes, 0.9.2 to 0.33.0, and every frame of the
//! recorded servers, decoded and compared field by field.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvasir_inventory::{EngineHash, Tier};
use kvasir_kv_events::{
    Answer, Batch, BlockRemoved, BlockStored, Event, ExtraKey, Medium, Schema, SpecKind, decode,
    parse_answer, parse_live,
};
use serde_json::Value;

const STORED: [&str; 15] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
    "session_id",
    "lookahead_token_ids",
];
const REMOVED: [&str; 5] = ["block_hashes", "medium", "group_idx", "locality", "ownership"];

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

fn files(dir: &str, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(testdata(dir))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn frames(value: &Value) -> Vec<Vec<u8>> {
    value.as_array().unwrap().iter().map(hex).collect()
}

/// An event with its fields by name, whichever form it was recorded in.
fn by_name(event: &Value) -> (String, BTreeMap<String, Value>) {
    match event {
        Value::Object(map) => {
            let tag = map["type"].as_str().unwrap().to_owned();
            (tag, map.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
        }
        Value::Array(values) => {
            let tag = values[0].as_str().unwrap().to_owned();
            let names: &[&str] = if tag == "BlockStored" { &STORED } else { &REMOVED };
            let fields = names.iter().zip(&values[1..]).map(|(k, v)| ((*k).to_owned(), v.clone()));
            (tag, fields.collect())
        }
        other => panic!("no event: {other}"),
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.get("hex").or_else(|| value.get("$hex")).map(hex)
}

fn hash(value: &Value) -> EngineHash {
    match bytes(value) {
        Some(digest) => {
            let tail: [u8; 8] = digest[digest.len() - 8..].try_into().unwrap();
            EngineHash(u64::from_be_bytes(tail))
        }
        None => EngineHash(value.as_u64().unwrap()),
    }
}

fn u32s(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| u32::try_from(v.as_u64().unwrap()).unwrap()).collect()
}

fn medium(fields: &BTreeMap<String, Value>) -> Medium {
    if fields.get("locality").and_then(Value::as_str) == Some("REMOTE") {
        return Medium::Known(Tier::Remote);
    }
    Medium::Known(match fields.get("medium").and_then(Value::as_str) {
        None | Some("GPU") => Tier::Device,
        Some("CPU") => Tier::Host,
        Some("STORAGE") => Tier::Disk,
        Some(other) => panic!("medium {other}"),
    })
}

fn extra_key(value: &Value) -> ExtraKey {
    if let Some(bytes) = bytes(value) {
        return ExtraKey::Bytes(bytes);
    }
    match value {
        Value::String(text) => ExtraKey::Text(text.clone()),
        pair => ExtraKey::Item {
            identifier: pair[0].as_str().unwrap().to_owned(),
            offset: pair[1].as_i64().unwrap(),
        },
    }
}

fn expected_event(event: &Value, schema: Schema) -> Event {
    let (tag, fields) = by_name(event);
    let get = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let list = |name: &str| get(name).map(|value| value.as_array().unwrap().clone());
    let text = |name: &str| get(name).map(|value| value.as_str().unwrap().to_owned());
    let group = get("group_idx").map(|v| u32::try_from(v.as_u64().unwrap()).unwrap());
    let block_hashes = || fields["block_hashes"].as_array().unwrap().iter().map(hash).collect();
    match tag.as_str() {
        "AllBlocksCleared" => Event::Cleared,
        "BlockRemoved" => Event::Removed(BlockRemoved {
            block_hashes: block_hashes(),
            medium: medium(&fields),
            group,
        }),
        "BlockStored" => Event::Stored(BlockStored {
            block_hashes: block_hashes(),
            parent: get("parent_block_hash").map(hash),
            token_ids: u32s(&fields["token_ids"]),
            block_size: u32::try_from(fields["block_size"].as_u64().unwrap()).unwrap(),
            lora_id: get("lora_id").map(|v| v.as_i64().unwrap()),
            lora_name: text("lora_name"),
            medium: medium(&fields),
            extra_keys: list("extra_keys").map(|blocks| {
                let keys = |b: &Value| b.as_array().into_iter().flatten().map(extra_key).collect();
                blocks.iter().map(keys).collect()
            }),
            cache_salt: None,
            group,
            spec_kind: text("kv_cache_spec_kind").map(|kind| match kind.as_str() {
                "full_attention" => SpecKind::FullAttention,
                "sliding_window" => SpecKind::SlidingWindow,
                other => panic!("kind {other}"),
            }),
            sliding_window: get("kv_cache_spec_sliding_window").map(|v| v.as_u64().unwrap()),
            lookahead_token_ids: list("lookahead_token_ids").map(|l| l.iter().map(u32s).collect()),
            schema,
        }),
        other => panic!("event {other}"),
    }
}

/// A recorded batch: `[ts, events, rank]`.
fn expected(decoded: &Value, schema: Schema) -> Batch {
    Batch {
        ts: decoded[0].as_f64().unwrap(),
        rank: decoded[2].as_u64().map(|rank| u32::try_from(rank).unwrap()),
        events: decoded[1]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| expected_event(event, schema))
            .collect(),
        unknown_events: 0,
    }
}

/// Before 0.20 an array of events has at most nine elements.
fn schema_of(version: &str) -> Schema {
    let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
    if minor < 20 { Schema::Early } else { Schema::Paired }
}

#[test]
fn every_batch_of_every_version_decodes_to_what_the_engine_meant() {
    let index = read_json(&testdata("golden/vllm-events/index.json"));
    let versions = index["vllm_events"].as_object().unwrap();
    assert_eq!(versions.len(), 36);
    let mut batches = 0;
    for (version, file) in versions {
        let golden = read_json(&testdata("golden/vllm-events").join(file.as_str().unwrap()));
        for batch in golden["batches"].as_array().unwrap() {
            let name = &batch["name"];
            let got =
                decode(&hex(&batch["hex"])).unwrap_or_else(|e| panic!("{version} {name}: {e}"));
            let schema = schema_of(version);
            assert_eq!(got, expected(&batch["decoded"], schema), "{version} {name}");
            // The same through the events with all fields by name.
            let named = batch["events"].as_array().unwrap();
            let named: Vec<Event> = named.iter().map(|e| expected_event(e, schema)).collect();
            assert_eq!(got.events, named, "{version} {name}");
            batches += 1;
        }
    }
    assert!(batches > 600, "{batches} batches");
}

#[test]
fn a_byte_less_or_more_is_an_error_everywhere() {
    for path in files("golden/vllm-events", "json") {
        let golden = read_json(&path);
        for batch in golden["batches"].as_array().into_iter().flatten() {
            let payload = hex(&batch["hex"]);
            for len in 0..payload.len() {
                assert!(decode(&payload[..len]).is_err(), "{} {len}", batch["name"]);
            }
            assert!(decode(&[&payload[..], &[0]].concat()).is_err());
        }
    }
}

#[test]
fn extra_keys_of_the_real_block_pool_are_taken_apart() {
    let mut seen = 0;
    for version in ["0.17.1", "0.19.0", "0.20.2", "0.24.0", "0.31.0", "0.33.0"] {
        let path = testdata(&format!("golden/vllm-events/events-vllm-{version}.json"));
        let golden = read_json(&path);
        for batch in golden["batches"].as_array().unwrap() {
            if !batch["name"].as_str().unwrap().ends_with("_store") {
                continue;
            }
            for event in decode(&hex(&batch["hex"])).unwrap().events {
                let Event::Stored(stored) = event else { continue };
                let extras = stored.extras().unwrap();
                assert_eq!(stored.lora_name.as_deref(), Some("sql-lora"));
                let image = extras.items[0][0];
                assert_eq!(image.identity.len(), 64);
                let early = version == "0.17.1";
                let root = stored.parent.is_none();
                assert_eq!(extras.salt, root.then_some("tenant-a"), "{version}");
                assert_eq!(
                    image.offset,
                    if early {
                        0
                    } else if root {
                        4
                    } else {
                        -12
                    }
                );
                // Without pairs the salt may be an image, and is filed as both.
                assert_eq!(extras.items[0].len(), if early && root { 2 } else { 1 });
                seen += 1;
            }
        }
    }
    assert!(seen >= 24, "{seen}");
}

#[test]
fn live_and_replay_frames_of_every_version_parse() {
    for path in files("golden/vllm-events", "json") {
        let golden = read_json(&path);
        let Some(wire) = golden.get("wire") else { continue };
        let live: Vec<_> = wire["live"].as_array().unwrap().iter().map(frames).collect();
        assert_eq!(live.len(), 5);
        for (seq, message) in live.iter().enumerate() {
            let message = parse_live(message).unwrap();
            assert_eq!(message.seq, seq as u64);
            assert_eq!(message.topic, wire["topic"].as_str().unwrap().as_bytes());
            assert_eq!(decode(message.payload).unwrap().events, [Event::Cleared]);
        }
        let replay = |name: &str| -> Vec<Vec<Vec<u8>>> {
            wire[name].as_array().unwrap().iter().map(frames).collect()
        };
        for (name, first) in
            [("replay_dealer_from_3", 3), ("replay_dealer_from_0_buffer_steps_3", 2)]
        {
            let answers = replay(name);
            let (end, batches) = answers.split_last().unwrap();
            assert_eq!(parse_answer(end), Ok(Answer::End), "{}", path.display());
            assert_eq!(batches.len(), 5 - first);
            for (answer, seq) in batches.iter().zip(first..) {
                let payload = live[seq].last().unwrap();
                let expected = Answer::Batch { seq: seq as u64, payload };
                assert_eq!(parse_answer(answer), Ok(expected), "{}", path.display());
            }
        }
        let first = &replay("replay_req_from_3_first_reply")[0];
        assert!(matches!(parse_answer(first), Ok(Answer::Batch { seq: 3, .. })));
    }
}

#[test]
fn every_recorded_frame_decodes_and_every_recorded_replay_parses() {
    let (mut live, mut replayed, mut ends) = (0, 0, 0);
    for path in files("captures", "jsonl") {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            let entry: Value = serde_json::from_str(line).unwrap();
            if let Some(recorded) = entry.get("frames_hex") {
                let recorded = frames(recorded);
                let message = parse_live(&recorded).unwrap();
                let decoded = entry.get("decoded").unwrap_or(&entry);
                // Two kinds of recordings: with the envelope's fields, or the batch alone.
                let batch = decoded.get("payload").unwrap_or(decoded);
                assert_eq!(decode(message.payload).unwrap(), expected(batch, Schema::Paired));
                if let Some(seq) = decoded.get("seq") {
                    assert_eq!(message.seq, seq.as_u64().unwrap());
                }
                live += 1;
            }
            for reply in entry.get("replies").and_then(Value::as_array).into_iter().flatten() {
                let recorded = frames(&reply["frames_hex"]);
                let decoded = &reply["decoded"];
                match parse_answer(&recorded).unwrap() {
                    Answer::End => {
                        assert_eq!(decoded["seq"], -1);
                        ends += 1;
                    }
                    Answer::Batch { seq, payload } => {
                        assert_eq!(seq, decoded["seq"].as_u64().unwrap());
                        let batch = expected(&decoded["payload"], Schema::Paired);
                        assert_eq!(decode(payload).unwrap(), batch);
                        replayed += 1;
                    }
                }
            }
        }
    }
    assert_eq!(ends, 3 * 16, "three replays of sixteen servers");
    assert!(live > 350 && replayed > 350, "{live} live, {replayed} replayed");
}
