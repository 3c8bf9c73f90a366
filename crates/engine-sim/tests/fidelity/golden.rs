//! Batches encoded by the engines' own classes (`testdata/golden/vllm-events`).

use kvasir_engine_sim::{
    BlockHash, BlockRemoved, BlockStored, Event, EventFormat, ExtraKey, HashForm,
};
use serde_json::Value;

use crate::recording::hex;

/// Compares all batches of one file, and says how many there were.
pub(crate) fn compare(file: &Value) -> usize {
    let version = file["version"].as_str().unwrap().parse().unwrap();
    let batches = file["batches"].as_array().unwrap();
    for batch in batches {
        let events: Vec<Event> = batch["events"].as_array().unwrap().iter().map(event).collect();
        // Files of one release hold batches of both forms of hashes.
        let form = if hashes(batch).any(Value::is_object) {
            HashForm::Bytes(BlockHash::LEN)
        } else {
            HashForm::Int
        };
        let ts = batch["decoded"][0].as_f64().unwrap();
        let rank = batch["data_parallel_rank"].as_u64().map(|rank| rank as u32);
        let made = EventFormat::new(version, form).encode(ts, &events, rank);
        let recorded = hex(batch["hex"].as_str().unwrap());
        let name = format!("{} of {version}", batch["name"]);
        assert_eq!(rmp(&made), rmp(&recorded), "{name}");
        assert_eq!(made, recorded, "{name}");
    }
    batches.len()
}

fn rmp(bytes: &[u8]) -> String {
    format!("{:?}", kvasir_kv_events::decode(bytes))
}

fn hashes(batch: &Value) -> impl Iterator<Item = &Value> {
    let events = batch["events"].as_array().unwrap().iter();
    events.flat_map(|event| event["block_hashes"].as_array().into_iter().flatten())
}

fn event(value: &Value) -> Event {
    let hashes = || value["block_hashes"].as_array().unwrap().iter().map(hash).collect();
    match value["type"].as_str().unwrap() {
        "BlockStored" => Event::Stored(Box::new(BlockStored {
            block_hashes: hashes(),
            parent_block_hash: some(&value["parent_block_hash"]).map(hash),
            token_ids: numbers(&value["token_ids"]),
            block_size: value["block_size"].as_u64().unwrap() as u32,
            lora_id: value["lora_id"].as_u64(),
            medium: word(&value["medium"]),
            lora_name: value["lora_name"].as_str().map(Into::into),
            extra_keys: value["extra_keys"].as_array().map(|blocks| {
                let keys =
                    |block: &Value| block.as_array().into_iter().flatten().map(extra_key).collect();
                blocks.iter().map(keys).collect()
            }),
            group_idx: value["group_idx"].as_u64().map(|group| group as u32),
            kv_cache_spec_kind: word(&value["kv_cache_spec_kind"]),
            kv_cache_spec_sliding_window: value["kv_cache_spec_sliding_window"].as_u64(),
            locality: word(&value["locality"]),
            ownership: value["ownership"].as_str().map(Into::into),
            session_id: value["session_id"].as_str().map(Into::into),
            lookahead_token_ids: value["lookahead_token_ids"]
                .as_array()
                .map(|blocks| blocks.iter().map(numbers).collect()),
        })),
        "BlockRemoved" => Event::Removed(BlockRemoved {
            block_hashes: hashes(),
            medium: word(&value["medium"]),
            group_idx: value["group_idx"].as_u64().map(|group| group as u32),
            locality: word(&value["locality"]),
            ownership: value["ownership"].as_str().map(Into::into),
        }),
        "AllBlocksCleared" => Event::Cleared,
        other => panic!("event of kind {other}"),
    }
}

fn some(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| !value.is_null())
}

fn hash(value: &Value) -> BlockHash {
    match value["hex"].as_str() {
        Some(digest) => BlockHash::new(hex(digest).try_into().unwrap()),
        None => value.as_u64().unwrap().into(),
    }
}

fn extra_key(value: &Value) -> ExtraKey {
    match value {
        Value::String(text) => ExtraKey::Text(text.as_str().into()),
        Value::Array(pair) => ExtraKey::Item {
            identifier: pair[0].as_str().unwrap().into(),
            offset: pair[1].as_i64().unwrap(),
        },
        other => ExtraKey::Bytes(hex(other["hex"].as_str().unwrap())),
    }
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
}

/// One of the engine's constants.
fn word(value: &Value) -> Option<&'static str> {
    const WORDS: [&str; 9] = [
        "GPU",
        "CPU",
        "STORAGE",
        "LOCAL",
        "REMOTE",
        "full_attention",
        "mla_attention",
        "sliding_window",
        "mamba",
    ];
    let text = value.as_str()?;
    Some(WORDS.into_iter().find(|word| *word == text).unwrap_or_else(|| panic!("word {text}")))
}
