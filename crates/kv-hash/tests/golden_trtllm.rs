//! TensorRT-LLM's block hashes against vectors made by its own Python function, which its C++ body
//! of 2025 agrees with.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test helpers")]

use kvasir_kv_hash::trtllm::{
    Algorithm, Contract, ContractError, Manager, Request, Salt, Unknowable, V1Block, salt_id,
    v1_block_key,
};
use serde_json::Value;

#[path = "support/golden.rs"]
mod golden;

use golden::{assert_all_read, files_on_disk, json, size, strings, text, tokens};

const FILE: &str = "trtllm-v1_block_key.json";

#[test]
fn every_case_of_the_file() {
    assert_eq!(files_on_disk("trtllm", ""), [FILE]);
    let doc = json("trtllm", FILE);
    assert_all_read(FILE, &doc, &["salt_ids", "cases", "partial_block"]);
    let salts = doc["salt_ids"].as_array().unwrap();
    for entry in salts {
        assert_eq!(salt_id(text(&entry["salt"])).to_string(), text(&entry["id"]), "{entry}");
    }
    let cases = doc["cases"].as_array().unwrap();
    let mut blocks = 0;
    for case in cases {
        blocks += check_case(&doc, case);
    }
    let entry = &doc["partial_block"];
    let contract = Contract::new(Algorithm::Auto, Manager::V1).unwrap();
    let mut chain = contract.chain(size(&entry["tokens_per_block"])).unwrap();
    let ids: Vec<u32> =
        entry["tokens"].as_array().unwrap().iter().map(|t| size(t) as u32).collect();
    assert!(chain.append(&ids).is_empty());
    assert_eq!(chain.partial().unwrap().to_string(), text(&entry["hash"]));
    println!(
        "{FILE}: {} cases ({blocks} blocks), {} salts, 1 partial block",
        cases.len(),
        salts.len()
    );
    assert!(blocks > 80, "{blocks}");
}

fn check_case(doc: &Value, case: &Value) -> usize {
    let lora_task_id = case["lora_task_id"].as_str().map(|id| id.parse().unwrap());
    let salt = case["cache_salt"].as_str();
    let request = |salt| Request { lora_task_id, salt, ..Request::default() };
    let block_size = size(&case["tokens_per_block"]);
    let tokens = tokens(doc, text(&case["tokens"]));
    let expected: Vec<&str> = strings(&case["hashes"]).collect();
    let requests = [
        (Manager::V2, request(salt.map(|salt| Salt::Text(salt.to_owned())))),
        (Manager::V2, request(salt.map(|salt| Salt::Id(salt_id(salt))))),
        (Manager::V1, request(salt.map(|salt| Salt::Id(salt_id(salt))))),
    ];
    for (manager, request) in requests {
        let contract = Contract::new(Algorithm::V1BlockKey, manager).unwrap();
        let mut whole = contract.chain_with(block_size, request).unwrap();
        let mut pieces = whole.clone();
        whole.append(&tokens);
        tokens.chunks(3).for_each(|piece| assert!(pieces.append(piece).len() <= 3));
        let ours: Vec<_> = whole.blocks().iter().map(ToString::to_string).collect();
        // Of long chains the file keeps the beginning.
        assert!(expected.len() >= ours.len().min(3), "{case}");
        assert_eq!(&ours[..expected.len()], expected, "{manager}: {case}");
        assert_eq!(whole.blocks(), pieces.blocks());
        assert_eq!(whole.partial(), pieces.partial());
    }
    let mut parent = 0;
    for (tokens, expected) in tokens.chunks_exact(block_size).zip(&expected) {
        let salt_id = salt.map(salt_id);
        let block = V1Block { tokens, lora_task_id, salt_id, ..V1Block::default() };
        parent = v1_block_key(parent, &block);
        assert_eq!(parent.to_string(), *expected);
    }
    if let Some(salt) = salt {
        let contract = Contract::new(Algorithm::Auto, Manager::V1).unwrap();
        let refused = contract.chain_with(4, request(Some(Salt::Text(salt.to_owned()))));
        assert_eq!(refused.unwrap_err(), ContractError::Unknowable(Unknowable::StdHashSalt));
    }
    expected.len()
}
