//! Detection on recorded engines: each recording's own settings are found, and nothing is off.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test helpers")]

use std::path::{Path, PathBuf};

use kvasir_kv_hash::detect::{Detector, EventHash, EventKey, Expected, Form, Leg, StoredEvent};
use rmpv::Value as Msgpack;
use serde_json::Value;

/// An event's parts, of which [`StoredEvent`] borrows.
struct Stored {
    hashes: Vec<EventHash>,
    parent: Option<EventHash>,
    tokens: Vec<u32>,
    block_size: usize,
    lora_name: Option<String>,
    keys: Vec<Vec<Key>>,
}

enum Key {
    Text(String),
    Item(String, i64),
}

#[test]
fn every_recording_is_as_it_says() {
    let dir: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../testdata/captures"].iter().collect();
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut checked = 0;
    for path in names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".jsonl") && name.contains("-int") | name.contains("-bytes") {
            check(&path, &name);
            checked += 1;
        }
    }
    println!("{checked} recordings");
    assert!(checked >= 15, "{checked}");
}

fn check(path: &Path, name: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let meta = lines.iter().find(|line| line["kind"] == "meta").unwrap();
    let stored: Vec<Stored> = lines
        .iter()
        .filter(|line| line["kind"] == "frames")
        .flat_map(|line| events(&unhex(line["frames_hex"][2].as_str().unwrap())))
        .collect();
    let keys: Vec<Vec<Vec<EventKey<'_>>>> = stored
        .iter()
        .map(|event| {
            event.keys.iter().map(|block| block.iter().map(Key::borrow).collect()).collect()
        })
        .collect();
    let key_slices: Vec<Vec<&[EventKey<'_>]>> =
        keys.iter().map(|event| event.iter().map(Vec::as_slice).collect()).collect();
    let events: Vec<StoredEvent<'_>> = stored
        .iter()
        .zip(&key_slices)
        .map(|(event, keys)| StoredEvent {
            hashes: &event.hashes,
            parent: event.parent.as_ref(),
            tokens: &event.tokens,
            block_size: event.block_size,
            lora_name: event.lora_name.as_deref(),
            extra_keys: keys,
            ..StoredEvent::default()
        })
        .collect();

    let setting = |name: &str| meta[name].as_str().unwrap();
    let bytes = setting("int_hashes") == "0";
    let expected = Expected {
        engine: Some("vllm"),
        version: Some(setting("version").parse().unwrap()),
        algorithm: Some(setting("algo")),
        seed: Some(Some(setting("pythonhashseed")).filter(|seed| *seed != "unset")),
        block_size: Some(setting("block_size").parse().unwrap()),
        form: Some(if bytes { Form::Bytes } else { Form::Int }),
    };
    let models = meta["models"]["data"].as_array().unwrap();
    let paths = models.iter().filter_map(|model| model["root"].as_str().map(str::to_owned));
    let report = Detector::new().lora_paths(paths).expect(expected).run(&events);
    println!("{name}: {report}");
    assert!(report.is_as_expected(), "{name}: {report}");
    let found = report.found.unwrap();
    assert_eq!(found.verified, found.checked);
    assert!(found.verified > 20, "{name}");

    // A neighbour's settings are told from these.
    let wrong = Expected { algorithm: Some("builtin"), seed: Some(Some("77")), ..expected };
    let report = Detector::new().expect(wrong).run(&events);
    assert!(report.legs.iter().any(|leg| matches!(leg, Leg::Algorithm { .. })), "{report}");
    assert!(report.legs.iter().any(|leg| matches!(leg, Leg::Seed { .. })), "{report}");
}

impl Key {
    fn borrow(&self) -> EventKey<'_> {
        match self {
            Self::Text(text) => EventKey::Text(text),
            Self::Item(identifier, offset) => EventKey::Item(identifier, *offset),
        }
    }
}

/// The stored events of a batch: arrays up to 0.23, then maps.
fn events(payload: &[u8]) -> Vec<Stored> {
    const FIELDS: [&str; 9] = [
        "type",
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
    ];
    let batch = rmpv::decode::read_value(&mut &payload[..]).unwrap();
    let events = batch[1].as_array().unwrap().iter();
    let stored = events.filter_map(|event| {
        let field = |name: &str| match event {
            Msgpack::Map(entries) => {
                entries.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, v)| v)
            }
            _ => event.as_array()?.get(FIELDS.iter().position(|field| *field == name)?),
        };
        let list = |name: &str| field(name).and_then(Msgpack::as_array).into_iter().flatten();
        (field("type")?.as_str() == Some("BlockStored")).then(|| Stored {
            hashes: list("block_hashes").map(|value| hash(value).unwrap()).collect(),
            parent: field("parent_block_hash").and_then(hash),
            tokens: list("token_ids").map(|token| token.as_u64().unwrap() as u32).collect(),
            block_size: field("block_size").unwrap().as_u64().unwrap() as usize,
            lora_name: field("lora_name").and_then(Msgpack::as_str).map(str::to_owned),
            keys: list("extra_keys")
                .map(|keys| keys.as_array().into_iter().flatten().map(key).collect())
                .collect(),
        })
    });
    stored.collect()
}

fn hash(value: &Msgpack) -> Option<EventHash> {
    match value {
        Msgpack::Integer(int) => int.as_u64().map(EventHash::Int),
        Msgpack::Binary(bytes) => Some(EventHash::Bytes(bytes.clone())),
        _ => None,
    }
}

fn key(value: &Msgpack) -> Key {
    match value.as_array() {
        Some(pair) => Key::Item(pair[0].as_str().unwrap().to_owned(), pair[1].as_i64().unwrap()),
        None => Key::Text(value.as_str().unwrap().to_owned()),
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}
