//! LoxiLB's hashes against its own shared vectors, and those its documentation lists.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test helpers")]

use kvasir_kv_hash::loxilb::{Algorithm, Contract, FirstParent};
use kvasir_kv_hash::vllm;
use serde_json::Value;

#[path = "support/golden.rs"]
mod golden;

use golden::{assert_all_read, files_on_disk, json, size, text, unhex};

const FILE: &str = "kv_hash_vectors.json";

#[test]
fn every_fixture_of_the_file() {
    assert_eq!(files_on_disk("loxilb", ""), [FILE]);
    let doc = json("loxilb", FILE);
    let mut checked = check_set(&doc);
    for (model, set) in doc["models"].as_object().unwrap() {
        let count = check_set(set);
        assert!(count > 0, "{model}");
        checked += count;
    }
    println!("{FILE}: {checked} fixtures");
    assert_eq!(checked, 12);
}

/// The fixtures of one set: chains that a first block with a known parent begins.
fn check_set(set: &Value) -> usize {
    let hashes = ["none_hash_seed", "none_hash_sha256_hex", "none_hash_xxhash_hex"];
    assert_all_read(FILE, set, &[&hashes[..], &["block_size", "fixtures", "models"]].concat());
    let seed = text(&set["none_hash_seed"]);
    for (algorithm, name) in [
        (Algorithm::Sha256Cbor, "none_hash_sha256_hex"),
        (Algorithm::XxhashCbor, "none_hash_xxhash_hex"),
    ] {
        let FirstParent::Seed(parent) = Contract::new(algorithm, Some(seed)).first_parent() else {
            panic!("{algorithm}: the seed is not used");
        };
        assert_eq!(parent.to_string(), text(&set[name]));
    }
    let fixtures = set["fixtures"].as_array().unwrap();
    for pair in fixtures.chunks(2) {
        let [first, second] = pair else { panic!("a chain of one block") };
        assert_eq!(second["parent_hash_hex"], first["expected_digest_hex"]);
        check_chain(size(&set["block_size"]), seed, first, second);
    }
    fixtures.len()
}

fn check_chain(block_size: usize, seed: &str, first: &Value, second: &Value) {
    let zeros = text(&first["parent_hash_hex"]).bytes().all(|digit| digit == b'0');
    let algorithm: Algorithm = text(&first["hash_algo"]).parse().unwrap();
    let contract = Contract::new(algorithm, (!zeros).then_some(seed));
    let mut chain = contract.chain(block_size).unwrap();
    for fixture in [first, second] {
        let name = text(&fixture["name"]);
        let tokens = ids(&fixture["tokens"]);
        let (last, most) = tokens.split_last().unwrap();
        assert!(chain.append(most).is_empty());
        assert!(chain.partial().is_some());
        let &[block] = chain.append(&[*last]) else { panic!("{name}: not one block") };
        assert_eq!(block.digest().to_string(), text(&fixture["expected_digest_hex"]), "{name}");
        assert_eq!(block.to_u64(), fixture["expected_hash_uint64"].as_u64().unwrap(), "{name}");
        if let Some(preimage) = fixture["cbor_hex"].as_str() {
            assert_eq!(cbor(algorithm, fixture), unhex(preimage), "{name}");
        }
    }
    assert_eq!(chain.partial(), None);
}

/// The bytes that vLLM's contract hashes for a fixture.
fn cbor(algorithm: Algorithm, fixture: &Value) -> Vec<u8> {
    let algorithm: vllm::Algorithm = algorithm.as_str().parse().unwrap();
    let contract =
        vllm::Contract::new(vllm::Version::release(0, 17, 0), algorithm, Some("0")).unwrap();
    let mut hasher = contract.hasher();
    let tokens = ids(&fixture["tokens"]);
    let block = vllm::Block { tokens: &tokens, ..vllm::Block::default() };
    let parent = text(&fixture["parent_hash_hex"]).parse().unwrap();
    assert_eq!(hasher.hash(&parent, &block).unwrap().to_string(), fixture["expected_digest_hex"]);
    hasher.preimage().to_vec()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| size(id) as u32).collect()
}

/// Its SGLang vectors, as its parity tests list them.
#[test]
fn sglang_vectors() {
    let ids = |range: std::ops::RangeInclusive<u32>| range.collect::<Vec<_>>();
    for (tokens, block_size, keys) in [
        (ids(1..=7), 16, vec![0x4c81_6952_ba53_cc36_u64]),
        (
            ids(1..=48),
            16,
            vec![0x77d7_35ce_8384_18aa, 0x1170_426c_f244_9ceb, 0x4ef6_43c3_50b1_4a37],
        ),
        (
            vec![65_537, 2_147_483_646, 2_147_483_647, 2_147_483_648, 4_294_967_295],
            5,
            vec![0x4329_c31d_2a34_1126],
        ),
        (vec![0], 1, vec![0xdf3f_6198_04a9_2fdb]),
        (ids(100_000..=100_063), 32, vec![0x069e_60c0_0e7d_aa33, 0xb9e5_c32b_5035_1992]),
    ] {
        for algorithm in [Algorithm::Sha256Sglang, Algorithm::BlockhashTrtllm] {
            let contract = Contract::new(algorithm, Some("0"));
            assert_eq!(contract.first_parent(), FirstParent::Nothing);
            let mut chain = contract.chain(block_size).unwrap();
            chain.append(&tokens);
            let blocks = chain.blocks().iter().copied().chain(chain.partial());
            let ours: Vec<u64> = blocks.map(|block| block.to_u64()).collect();
            assert_eq!(ours, keys, "{algorithm}");
        }
    }
}

#[test]
fn seeds_the_gateway_does_not_use() {
    let long = "a seed of 24 bytes......";
    assert_eq!(long.len(), 24);
    let parent = |seed| Contract::new(Algorithm::Sha256Cbor, seed).first_parent();
    assert!(matches!(parent(None), FirstParent::ZerosWithoutSeed(_)));
    assert!(matches!(parent(Some(long)), FirstParent::ZerosForLongSeed(_)));
    assert!(matches!(parent(Some(&long[1..])), FirstParent::Seed(_)));
    let keys = |seed| {
        let mut chain = Contract::new(Algorithm::XxhashCbor, seed).chain(2).unwrap();
        chain.append(&[1, 2, 3]).to_vec()
    };
    assert_eq!(keys(None), keys(Some(long)));
    assert_ne!(keys(None), keys(Some("0")));
}

#[test]
fn the_gateways_limits() {
    let chain = |block_size| {
        let mut chain = Contract::new(Algorithm::Sha256Sglang, None).chain(block_size).unwrap();
        for _ in 0..5 {
            chain.append(&[7; 1000]);
        }
        (chain.blocks().len(), chain.token_count(), chain.partial().is_some())
    };
    assert_eq!(chain(1), (256, 256, false));
    assert_eq!(chain(16), (256, 4096, false));
    assert_eq!(chain(100), (40, 4096, true));
    assert!(Contract::new(Algorithm::Sha256Cbor, None).chain(0).is_err());
}
