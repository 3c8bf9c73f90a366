//! A prefill and a decode engine against the recording of two that moved blocks over NIXL: the
//! batches of both are the recorded ones, byte for byte.

use std::collections::VecDeque;

use kvasir_engine_sim::{
    Algorithm, Engine, EngineConfig, EventFormat, HashForm, Hashing, NextToken, Request, RequestId,
    TokenRequest, Version,
};
use serde_json::Value;

use crate::recording::{captures, hex, ids};

const VERSION: Version = Version::release(0, 32, 0);

/// The recorded server, which generates what the recorded one did.
fn engine(outputs: Vec<Vec<u32>>) -> Engine {
    let source = move |request: &TokenRequest<'_>| {
        NextToken::Token(outputs[request.id.0 as usize][request.output.len()])
    };
    let config = EngineConfig {
        version: VERSION,
        block_size: 32,
        num_blocks: 1_000,
        max_model_len: 2_048,
        hashing: Hashing::of_engine(VERSION, Algorithm::Sha256Cbor, Some("0")).unwrap(),
        ..EngineConfig::default()
    };
    Engine::with_source(config, Box::new(source)).unwrap()
}

/// What each of the two published, in order.
fn batches(from: &str) -> VecDeque<Vec<u8>> {
    let text = std::fs::read_to_string(captures("nixl-pd-0.32.0-events.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_one = lines.filter(|line| line["from"] == from);
    of_one.map(|line| hex(line["frames_hex"][2].as_str().unwrap())).collect()
}

#[test]
fn both_sides_publish_what_was_recorded() {
    let text = std::fs::read_to_string(captures("nixl-pd-0.32.0.json")).unwrap();
    let recording: Value = serde_json::from_str(&text).unwrap();
    let log = recording["log"].as_array().unwrap();
    let outputs = log.iter().map(|entry| ids(&entry["response"]["choices"][0]["token_ids"]));
    let outputs: Vec<Vec<u32>> = outputs.collect();
    let format = EventFormat::new(VERSION, HashForm::Int);
    let mut sides = [
        (engine(outputs.clone()), batches("prefill")),
        (engine(outputs.clone()), batches("decode")),
    ];
    let mut compared = 0;
    for (number, entry) in log.iter().enumerate() {
        let params = &entry["request"]["kv_transfer_params"];
        let response = &entry["response"];
        let prompt = match &response["prompt_token_ids"] {
            Value::Null => ids(&response["choices"][0]["prompt_token_ids"]),
            prompt => ids(prompt),
        };
        let request = Request {
            ignore_eos: true,
            hold: params["do_remote_decode"] == true,
            remote_prefill: params["do_remote_prefill"] == true,
            ..Request::new(RequestId(number as u64), prompt, outputs[number].len())
        };
        let decodes = entry["url"].as_str().unwrap().contains(":8011/");
        let (engine, recorded) = &mut sides[usize::from(decodes)];
        engine.submit(request).unwrap();
        while let Some(step) = engine.step() {
            for held in step.held {
                let blocks = &response["kv_transfer_params"]["remote_block_ids"][0];
                assert_eq!(held.blocks, ids(blocks));
                // It has been fetched before the next request.
                assert!(engine.release_held(held.id));
            }
            if !step.events.is_empty() {
                let recorded = recorded.pop_front().unwrap();
                let ts = f64::from_be_bytes(recorded[2..10].try_into().unwrap());
                assert_eq!(format.encode(ts, &step.events, Some(0)), recorded, "{number}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 6);
    assert!(sides.iter().all(|(_, recorded)| recorded.is_empty()));
    let external = |side: usize| {
        let stats = sides[side].0.stats();
        (stats.external_queries, stats.external_hits)
    };
    assert_eq!((external(0), external(1)), ((661, 0), (630, 630)), "as both metrics pages say");
}
