//! Every batch of SGLang's own encoder and event recorder, 0.5.3 to 0.5.23, decoded and compared
//! field by field: arrays and maps, signed hashes, salts in two places, pairs of tokens.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::path::{Path, PathBuf};

use kvasir_inventory::{EngineHash, Tier};
use kvasir_kv_events::{BlockRemoved, BlockStored, Event, Medium, decode};
use serde_json::Value;

const STORED: [&str; 7] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "metadata",
];
const REMOVED: [&str; 2] = ["block_hashes", "medium"];

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/sglang");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let vectors =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("sglang-");
    let mut files: Vec<PathBuf> = entries.filter(vectors).collect();
    files.sort();
    files
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// A field by its place in the array form, or its name in the map form.
fn field<'a>(event: &'a Value, names: &[&str], name: &str) -> &'a Value {
    if event.is_array() {
        let place = names.iter().position(|known| *known == name).unwrap_or(usize::MAX - 1);
        return event.get(place + 1).unwrap_or(&Value::Null);
    }
    event.get(name).unwrap_or(&Value::Null)
}

fn hash(value: &Value) -> EngineHash {
    EngineHash(value.as_i64().map_or_else(|| value.as_u64().unwrap(), i64::cast_unsigned))
}

fn hashes(value: &Value) -> Vec<EngineHash> {
    value.as_array().unwrap().iter().map(hash).collect()
}

fn id(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn medium(value: &Value) -> Medium {
    Medium::Known(match value.as_str() {
        None | Some("GPU") => Tier::Device,
        Some("CPU_PINNED") => Tier::Host,
        Some("DISK") => Tier::Disk,
        Some("EXTERNAL") => Tier::Remote,
        Some(other) => panic!("medium {other}"),
    })
}

fn check_stored(stored: &BlockStored, event: &Value) {
    let field = |name| field(event, &STORED, name);
    assert_eq!(stored.block_hashes, hashes(field("block_hashes")));
    let parent = field("parent_block_hash");
    assert_eq!(stored.parent, (!parent.is_null()).then(|| hash(parent)));
    assert_eq!(stored.block_size, id(field("block_size")));
    let tokens = field("token_ids").as_array().unwrap();
    let pairs = tokens.iter().any(Value::is_array);
    let first = |token: &Value| id(if token.is_array() { &token[0] } else { token });
    assert_eq!(stored.token_ids, tokens.iter().map(first).collect::<Vec<_>>());
    let followers = pairs.then(|| {
        let blocks = tokens.chunks_exact(stored.block_size as usize);
        blocks.map(|block| vec![id(&block.last().unwrap()[1])]).collect::<Vec<_>>()
    });
    assert_eq!(stored.lookahead_token_ids, followers);
    assert_eq!(stored.medium, medium(field("medium")));
    let salt = text(field("cache_salt")).or_else(|| text(&field("metadata")["cache_salt"]));
    assert_eq!(stored.cache_salt, salt);
    assert_eq!(stored.lora_name, text(field("lora_name")));
    assert_eq!((stored.lora_id, &stored.extra_keys, stored.group), (None, &None, None));
    assert_eq!(stored.extras().unwrap().salt, salt.as_deref());
}

fn check_removed(removed: &BlockRemoved, event: &Value) {
    assert_eq!(removed.block_hashes, hashes(field(event, &REMOVED, "block_hashes")));
    assert_eq!(removed.medium, medium(field(event, &REMOVED, "medium")));
}

#[test]
fn every_batch_of_every_version_decodes_to_what_the_engine_meant() {
    let (mut batches, mut salted, mut paired) = (0, 0, 0);
    for path in files() {
        let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for case in file["batches"].as_array().unwrap() {
            let batch = decode(&unhex(case["hex"].as_str().unwrap())).unwrap();
            let meant = &case["decoded"];
            assert_eq!(Some(batch.ts), meant[0].as_f64());
            assert_eq!(batch.rank.map(u64::from), meant[2].as_u64());
            assert_eq!(batch.unknown_events, 0);
            let events = meant[1].as_array().unwrap();
            assert_eq!(batch.events.len(), events.len());
            for (event, meant) in batch.events.iter().zip(events) {
                match event {
                    Event::Stored(stored) => {
                        check_stored(stored, meant);
                        salted += usize::from(stored.cache_salt.is_some());
                        paired += usize::from(stored.lookahead_token_ids.is_some());
                    }
                    Event::Removed(removed) => check_removed(removed, meant),
                    Event::Cleared => {}
                }
            }
            batches += 1;
        }
    }
    assert!(batches > 100 && salted > 5 && paired > 2, "{batches} {salted} {paired}");
}
